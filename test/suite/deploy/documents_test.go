package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// commands returns the commands of the guide that are of some kinds.
func commands(t *testing.T, kinds ...string) string {
	t.Helper()
	code, err := guide.Commands(kinds...)
	require.NoError(t, err)
	return code
}

// checkout is a copy of those files of the repository that the commands need.
type checkout struct {
	dir string
	env []string
}

// newCheckout returns a checkout with bin/coe-bridge as built by make build. Its kubectl has the
// rights of the administrator.
func newCheckout(t *testing.T, plane *kube.ControlPlane, program string) *checkout {
	t.Helper()
	c := &checkout{dir: t.TempDir()}
	require.NoError(t, os.CopyFS(filepath.Join(c.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	hyperkube, err := kube.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	for _, name := range []string{"bin", "path"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.dir, name), 0o755))
	}
	require.NoError(t, os.Symlink(program, filepath.Join(c.dir, "bin/coe-bridge")))
	require.NoError(t, os.Symlink(hyperkube, filepath.Join(c.dir, "path/kubectl")))
	c.env = append(os.Environ(),
		"PATH="+filepath.Join(c.dir, "path")+":"+os.Getenv("PATH"),
		"KUBECONFIG="+plane.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(c.dir, "cache"),
	)
	return c
}

// run runs commands, and types a password.
func (c *checkout) run(t *testing.T, code string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", code)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, strings.NewReader(password+"\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", code, out)
	return string(out)
}

// edit changes files of the checkout as a person would.
func (c *checkout) edit(t *testing.T, dir string, changes ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, dir, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(f, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o644))
	}
}
