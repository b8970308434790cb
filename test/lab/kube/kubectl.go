package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// kubectlTimeout bounds one run of kubectl.
const kubectlTimeout = 2 * time.Minute

// Kubectl runs kubectl as the administrator, and returns its output. An error includes its error output.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies YAML manifests with server-side apply, and takes over fields that others have set.
func (c *ControlPlane) Apply(ctx context.Context, manifests ...string) error {
	_, err := c.kubectl(ctx, strings.Join(manifests, "\n---\n"),
		"apply", "--server-side", "--force-conflicts", "--filename=-")
	return err
}

func (c *ControlPlane) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"),
		"KUBERC=off",
	)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
