package kubelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// checkout is a directory with everything that the commands of docs/kubernetes.md need.
type checkout struct {
	dir string
	env []string // the environment of the commands
}

// newCheckout creates a checkout in dir, with the programs of bin and a kubectl.
func newCheckout(dir, bin, kubectl string) (*checkout, error) {
	manifests, err := kube.FindSource("deploy/kubernetes")
	if err != nil {
		return nil, fmt.Errorf("find the manifests: %w", err)
	}
	c := &checkout{dir: dir, env: append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))}
	if err := c.fill(filepath.Dir(manifests), bin, kubectl); err != nil {
		return nil, fmt.Errorf("make a checkout: %w", err)
	}
	return c, nil
}

func (c *checkout) fill(deploy, bin, kubectl string) error {
	if err := os.CopyFS(filepath.Join(c.dir, "deploy"), os.DirFS(deploy)); err != nil {
		return err
	}
	if err := os.Symlink(bin, filepath.Join(c.dir, "bin")); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(c.dir, "path"), 0o755); err != nil {
		return err
	}
	return os.Symlink(kubectl, filepath.Join(c.dir, "path/kubectl"))
}

// path returns the path of a file in the checkout.
func (c *checkout) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// run runs the commands of some kinds in the guide, after other commands, with input.
func (c *checkout) run(ctx context.Context, before, typed string, kinds ...string) error {
	code, err := guide.Commands(kinds...)
	if err != nil {
		return err
	}
	code = before + code
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", code)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, strings.NewReader(typed)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run what docs/kubernetes.md says: %w\n%s\n%s", err, code, out)
	}
	return nil
}
