package kubelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/kube"
)

// guide is what docs/kubernetes.md says to whoever installs coe-bridge, to be done as it
// is printed, with the addresses of this cluster.
type guide struct {
	text string
	dir  string   // a checkout, of what the commands need
	env  []string // of the commands
}

// block is one that is run: it begins with ```sh cluster, and the word after that is its
// kind.
var block = regexp.MustCompile("(?ms)^```sh cluster ?(\\w*)\n(.*?)^```$")

// newGuide makes a checkout in dir, with the programs of bin and a kubectl.
func newGuide(dir, bin, kubectl string) (*guide, error) {
	docs, err := kube.FindSource("docs/kubernetes.md")
	if err != nil {
		return nil, fmt.Errorf("find the guide: %w", err)
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		return nil, fmt.Errorf("read the guide: %w", err)
	}
	g := &guide{text: string(text), dir: dir}
	if err := g.checkOut(filepath.Dir(filepath.Dir(docs)), bin, kubectl); err != nil {
		return nil, fmt.Errorf("make a checkout: %w", err)
	}
	g.env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))
	return g, nil
}

func (g *guide) checkOut(root, bin, kubectl string) error {
	if err := os.CopyFS(filepath.Join(g.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		return err
	}
	if err := os.Symlink(bin, filepath.Join(g.dir, "bin")); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(g.dir, "path"), 0o755); err != nil {
		return err
	}
	return os.Symlink(kubectl, filepath.Join(g.dir, "path/kubectl"))
}

// commands are those of some kinds, in the order in which they are printed.
func (g *guide) commands(kinds ...string) string {
	var code strings.Builder
	for _, found := range block.FindAllStringSubmatch(g.text, -1) {
		if slices.Contains(kinds, found[1]) {
			code.WriteString(found[2])
		}
	}
	return code.String()
}

// run runs commands, with what a person types.
func (g *guide) run(ctx context.Context, code, typed string) error {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", code)
	cmd.Dir, cmd.Env, cmd.Stdin = g.dir, g.env, strings.NewReader(typed)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run what docs/kubernetes.md says: %w\n%s\n%s", err, code, out)
	}
	return nil
}
