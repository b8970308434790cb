package kubelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// commandTimeout bounds one run of a command.
const commandTimeout = 2 * time.Minute

// wrapper is kubectl for a user outside of the cluster's network.
const wrapper = `#!/bin/sh
# kubectl of the cluster that this folder belongs to, as its administrator.
export KUBECONFIG='%s' KUBECACHEDIR='%s' KUBERC=off
exec nsenter --net='/run/netns/%s' '%s' kubectl "$@"
`

// Kubectl returns the path of a script that runs kubectl for this cluster.
func (l *Lab) Kubectl() string { return l.dir.path("kubectl") }

func (l *Lab) writeWrapper() error {
	text := fmt.Sprintf(wrapper, l.Kubeconfig(), l.dir.path("plane", "kubectl"), l.OVN.Namespace(ovnhost.CentralNamespace), l.tools.hyperkube)
	if err := os.WriteFile(l.Kubectl(), []byte(text), 0o755); err != nil {
		return fmt.Errorf("write kubectl: %w", err)
	}
	return nil
}

// bridgeWrapper is coe-bridge for a user of the cluster's bridge, and an administrator of the cluster. The nodes have the image
// of connectivity test.
const bridgeWrapper = `#!/bin/sh
# coe-bridge of the cluster that this folder belongs to, for its commands that ask a bridge or the API server.
export COE_BRIDGE_PASSWORD="%s" COE_BRIDGE_SERVER='https://%s:8181' COE_BRIDGE_CA_FILE='%s/certificates/coe-bridge-ca.crt'
export KUBECONFIG='%s' COE_BRIDGE_IMAGE='%s'
exec nsenter --net='/run/netns/%s' '%s' "$@"
`

// Bridge returns the path of a script that runs coe-bridge for the bridge of this cluster.
func (l *Lab) Bridge() string { return l.dir.path("coe-bridge") }

func (l *Lab) writeBridgeWrapper() error {
	text := fmt.Sprintf(bridgeWrapper, Password, l.Nodes[0].inURL(), l.checkout.dir, l.Kubeconfig(), TestImage, l.OVN.Namespace(ovnhost.CentralNamespace), l.Program())
	if err := os.WriteFile(l.Bridge(), []byte(text), 0o755); err != nil {
		return fmt.Errorf("write coe-bridge: %w", err)
	}
	return nil
}

// Program returns the path of coe-bridge. Its commands that ask the API server run at Outside, with Kubeconfig.
func (l *Lab) Program() string { return l.checkout.path("bin", "coe-bridge") }

// Ask runs a client command of coe-bridge, and returns its output.
func (l *Lab) Ask(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "", l.Bridge(), args...)
}

// Run runs kubectl with input, and returns its output. An error includes its error output.
func (l *Lab) Run(ctx context.Context, stdin string, args ...string) (string, error) {
	return run(ctx, stdin, l.Kubectl(), args...)
}

func run(ctx context.Context, stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run %s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// ApplyManifest applies YAML documents.
func (l *Lab) ApplyManifest(ctx context.Context, manifest string) error {
	_, err := l.Run(ctx, manifest, "apply", "--server-side", "--force-conflicts", "--filename=-")
	return err
}
