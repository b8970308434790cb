package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// TestReasonsAreExplained: every reason of a problem has a line in the table of troubleshoot.md, and the table has
// no other lines.
func TestReasonsAreExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "coe/facts.go"), nil, 0)
	require.NoError(t, err)
	var reasons []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			reasons = append(reasons, text)
		}
		return true
	})
	require.NotEmpty(t, reasons)
	text := string(read(t, filepath.Join(root, "docs/troubleshoot.md")).text)
	_, table, found := strings.Cut(text, "| reason | meaning |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var explained []string
	for _, line := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		explained = append(explained, line[1])
	}
	require.Equal(t, reasons, explained)
}

// TestChecksAreExplained: every kind of check of connectivity test has a line in the table of troubleshoot.md.
func TestChecksAreExplained(t *testing.T) {
	text := string(read(t, filepath.Join(root, "docs/troubleshoot.md")).text)
	_, table, found := strings.Cut(text, "| check | what connects to what |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var explained []connectivity.Kind
	for _, line := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		explained = append(explained, connectivity.Kind(line[1]))
	}
	require.Equal(t, connectivity.Kinds(), explained)
}

// TestPackagesAreListed: every package of the product has a line in the tables of architecture.md.
func TestPackagesAreListed(t *testing.T) {
	text := string(read(t, filepath.Join(root, "docs/architecture.md")).text)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	list.Dir = root
	names, err := list.Output()
	require.NoError(t, err, "the test needs a git checkout")
	var missing []string
	for name := range strings.Lines(string(names)) {
		folder := path.Dir(name)
		if !strings.HasPrefix(name, "test/") && !strings.Contains(text, "`"+folder+"`") && !slices.Contains(missing, folder) {
			missing = append(missing, folder)
		}
	}
	require.Empty(t, missing, "add a line for each to docs/architecture.md")
}

// TestMakeTargets: make help shows at most 15 targets, and CONTRIBUTING.md describes the
// others.
func TestMakeTargets(t *testing.T) {
	makefile := string(read(t, filepath.Join(root, "Makefile")).text)
	contributing := string(read(t, filepath.Join(root, "CONTRIBUTING.md")).text)
	shown := 0
	for _, target := range regexp.MustCompile(`(?m)^([a-z0-9-]+):(?:.*(## ))?`).FindAllStringSubmatch(makefile, -1) {
		if target[2] != "" {
			shown++
		} else {
			require.Contains(t, contributing, "`"+target[1]+"`")
		}
	}
	require.Positive(t, shown)
	require.LessOrEqual(t, shown, 15)
}

// TestAgentMetricsAreListed: every metric of the agent has a line in the table of reference.md.
func TestAgentMetricsAreListed(t *testing.T) {
	text := string(read(t, filepath.Join(root, "docs/reference.md")).text)
	grep := exec.CommandContext(t.Context(), "git", "grep", "-hoE", `Name: *"coe_agent_[a-z_]+"`, "--", "*.go")
	grep.Dir = root
	names, err := grep.Output()
	require.NoError(t, err, "the test needs a git checkout")
	for name := range strings.Lines(string(names)) {
		require.Contains(t, text, "\n| `"+strings.Split(name, `"`)[1]+"` |")
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noLink  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinks(t *testing.T) {
	for _, path := range documents(t) {
		for _, found := range link.FindAllSubmatch(read(t, path).text, -1) {
			to := string(found[1])
			if strings.Contains(to, "://") {
				continue
			}
			name, anchor, _ := strings.Cut(to, "#")
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), name)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", path, to)
			if anchor != "" {
				require.Contains(t, anchors(t, target), anchor, "%s links to %s", path, to)
			}
		}
	}
}

// anchors returns the names of the headings of a document in links.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, h := range heading.FindAllSubmatch(read(t, path).text, -1) {
		name := noLink.ReplaceAllString(strings.ToLower(string(h[1])), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}
