package yang

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// yanglint returns the command line of libyang's yanglint. It fails the test if yanglint is not
// installed, and skips it in short runs.
func yanglint(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs yanglint")
	}
	path, err := exec.LookPath("yanglint")
	require.NoError(t, err, "install the Debian package libyang-tools")
	return path
}

func TestModulesPassYanglint(t *testing.T) {
	lint := yanglint(t)
	modules, err := filepath.Glob("*.yang")
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	for _, module := range append(modules, "testdata/sample.yang") {
		out, err := exec.CommandContext(t.Context(), lint, "-p", ".", module).CombinedOutput()
		require.NoError(t, err, "%s: %s", module, out)
		require.Empty(t, string(out), module)
	}
}

// validDocuments returns whole valid documents with many kinds of nodes.
func validDocuments(t testing.TB) [][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/valid/*.json")
	require.NoError(t, err)
	var out [][]byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		out = append(out, text)
	}
	require.NotEmpty(t, out)
	return out
}

// TestValidDocumentsHoldEverything requires that the documents contain every node. Otherwise
// the comparison would not cover it.
func TestValidDocumentsHoldEverything(t *testing.T) {
	schema := sample(t)
	held := newMutator(t, schema, validDocuments(t)).samples
	var look func(*Node, string)
	look = func(n *Node, at string) {
		_, found := held[n]
		require.True(t, found, "no document in testdata/valid has %s", n.Path(at))
		for _, child := range n.Children {
			look(child, n.Path(at))
		}
	}
	for _, top := range schema.top.Children {
		look(top, "")
	}
}

func TestValidDocuments(t *testing.T) {
	schema := sample(t)
	for _, document := range validDocuments(t) {
		require.NoError(t, judge(t, schema, document))
		got := decoded(t, schema, "", string(document))
		require.JSONEq(t, compact(t, document), encoded(got))
	}
}

func compact(t testing.TB, document []byte) string {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// judge returns this package's result for a whole document.
func judge(t testing.TB, s *Schema, document []byte) error {
	t.Helper()
	_, err := judged(s, s.DecodeJSON, document)
	return err
}

// judged decodes and validates a whole document.
func judged(s *Schema, decode decodeFunc, document []byte) ([]*Data, error) {
	got, err := decode(document, nil, "", Strict)
	if err != nil {
		return nil, err
	}
	lookup := func(target *Node, value string) bool { return holdsValue(got, target, value) }
	for _, d := range append(slices.Clone(got), implied(got)...) {
		if err := s.Validate(d, "", lookup); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// implied returns the absent top-level containers with required nodes, of modules that have
// other data in the document.
func implied(got []*Data) []*Data {
	var out []*Data
	there := map[*Node]bool{}
	for _, d := range got {
		there[d.Node] = true
	}
	for _, d := range got {
		for _, top := range d.Node.Module.Top {
			if top.demanding && !there[top] {
				out = append(out, &Data{Node: top})
			}
		}
	}
	return out
}

func holdsValue(siblings []*Data, target *Node, value string) bool {
	for _, d := range siblings {
		if d.Node == target && d.Value == value || holdsValue(d.Children, target, value) {
			return true
		}
	}
	return false
}

// runs runs yanglint, which may succeed without output.
func runs(t testing.TB, lint string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), lint, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}
