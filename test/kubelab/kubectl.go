package kubelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// kubectlTimeout bounds one run of kubectl.
const kubectlTimeout = 2 * time.Minute

// wrapper is kubectl for a person, who is not in the cluster's network.
const wrapper = `#!/bin/sh
# kubectl of the cluster that this folder belongs to, as its administrator.
export KUBECONFIG='%s' KUBECACHEDIR='%s' KUBERC=off
exec nsenter --net='/run/netns/%s' '%s' kubectl "$@"
`

// Kubectl is the path of a script that is kubectl of this cluster.
func (l *Lab) Kubectl() string { return l.dir.path("kubectl") }

func (l *Lab) writeWrapper() error {
	text := fmt.Sprintf(wrapper, l.Kubeconfig(), l.dir.path("plane", "kubectl"), l.OVN.Namespace(ovnhost.CentralNamespace), l.tools.hyperkube)
	if err := os.WriteFile(l.Kubectl(), []byte(text), 0o755); err != nil {
		return fmt.Errorf("write kubectl: %w", err)
	}
	return nil
}

// Run runs kubectl with something to read, and returns what it prints; an error holds
// what it complained of.
func (l *Lab) Run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.Kubectl(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// ApplyManifest applies the text of YAML documents.
func (l *Lab) ApplyManifest(ctx context.Context, manifest string) error {
	_, err := l.Run(ctx, manifest, "apply", "--server-side", "--force-conflicts", "--filename=-")
	return err
}
