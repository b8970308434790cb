package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every reason of a problem has its line in the table of operations.md, and the
// table has no other.
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
	text := string(read(t, filepath.Join(root, "docs/operations.md")).text)
	_, table, found := strings.Cut(text, "| reason | meaning |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var explained []string
	for _, line := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		explained = append(explained, line[1])
	}
	require.Equal(t, reasons, explained)
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

// anchors are the names that headings of a document have in links.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, h := range heading.FindAllSubmatch(read(t, path).text, -1) {
		name := noLink.ReplaceAllString(strings.ToLower(string(h[1])), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}
