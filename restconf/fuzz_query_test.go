package restconf

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// textOf writes a selection as a fields parameter below parent.
func textOf(s *tree.Selection, parent *yang.Node) string {
	var out []string
	for _, node := range slices.SortedFunc(maps.Keys(s.Below), func(a, b *yang.Node) int { return strings.Compare(a.Path(""), b.Path("")) }) {
		name := node.Name
		if parent == nil || node.Module != parent.Module {
			name = node.Module.Name + ":" + name
		}
		below := s.Below[node]
		if below.Whole {
			out = append(out, name)
		}
		if len(below.Below) > 0 {
			out = append(out, name+"("+textOf(below, node)+")")
		}
	}
	return strings.Join(out, ";")
}

// within reports whether all of part is in whole, in the same place.
func within(part, whole *yang.Data) bool {
	if part.Node != whole.Node || part.Value != whole.Value {
		return false
	}
	rest := whole.Children
	for _, child := range part.Children {
		i := slices.IndexFunc(rest, func(d *yang.Data) bool { return within(child, d) })
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}

func height(d *yang.Data) int {
	most := 0
	for _, child := range d.Children {
		most = max(most, height(child))
	}
	return most + 1
}

// everythingOf is an instance with something of all that pods have.
func everythingOf(t testing.TB, schema *yang.Schema) *yang.Data {
	t.Helper()
	got, err := schema.DecodeJSON([]byte(`{"pod:coe":{"pods":[{"uid":"`+uid1+`","name":"a","host-ip-address":"10.0.0.1","interface":[`+
		`{"uid":"`+uid1+`","ip-address":"10.0.0.2"},{"uid":"`+uid2+`","segmentation-id":5}]},{"uid":"`+uid2+`"}]}}`), nil, "", yang.Strict)
	require.NoError(t, err)
	return got[0]
}

// FuzzFields holds, for any fields parameter and depth: what is understood means what
// its own text says again; what it selects is in the data, no deeper than asked, and is
// selected from that as a whole again.
func FuzzFields(f *testing.F) {
	schema, err := yang.Load()
	require.NoError(f, err)
	data := everythingOf(f, schema)
	for _, text := range []string{
		"pods", "pods/uid", "pods(uid;name)", "pods(uid;interface/ip-address);pods/interface(uid)", "pod:pods(pod:uid)", "pods;pods/uid",
		"pods(", "pods()", ")", ";", "pods(uid;)", "pods/", "/pods", "", "pods(interface(uid", strings.Repeat("pods(", 40), "none:pods",
	} {
		f.Add(text, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, depth uint8) {
		sel, err := wire.ParseFields(schema, data.Node, text)
		if err != nil {
			_, ok := tree.AsErrors(err)
			require.True(t, ok, "%v", err)
			return
		}
		written := textOf(sel, data.Node)
		again, err := wire.ParseFields(schema, data.Node, written)
		require.NoError(t, err, written)
		require.Equal(t, written, textOf(again, data.Node))

		trimmed := func(d *yang.Data, sel *tree.Selection, depth int) *yang.Data {
			return tree.Question{At: tree.StepsTo(d.Node), Fields: sel, Depth: depth}.Trim([]*yang.Data{d})[0]
		}
		all := trimmed(data, sel, 0)
		require.True(t, within(all, data))
		require.Equal(t, all, trimmed(all, sel, 0))
		require.Equal(t, all, trimmed(data, again, 0))
		some := trimmed(data, sel, int(depth))
		require.True(t, within(some, all))
		for levels := range 5 {
			cut := trimmed(data, nil, levels+1)
			require.LessOrEqual(t, height(cut), levels+1)
			require.Equal(t, cut, trimmed(cut, nil, levels+1))
		}
	})
}

// FuzzQuery holds, for any query in both dialects: it is refused with errors, or asks for
// no more than there is.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{
		"depth=1", "depth=unbounded", "depth=65536", "depth=-1", "depth=+1", "depth=01", "depth=", "content=config&depth=3&fields=a(b;c)",
		"content=all&content=all", "insert=first", "insert=before&point=%2Fpod%3Acoe", "prettyPrint=true", "with-defaults=trim", "dry-run=true", "%zz", "&&", "=",
	} {
		f.Add(raw, "GET")
	}
	f.Fuzz(func(t *testing.T, raw, method string) {
		if strings.ContainsAny(raw, "#\r\n") {
			return
		}
		r := &http.Request{Method: method, URL: &url.URL{RawQuery: raw}, Header: http.Header{}}
		for _, d := range []*wire.Dialect{wire.Draft02, wire.RFC8040, wire.NMDA} {
			q, err := d.ParseQuery(r)
			if err != nil {
				_, ok := tree.AsErrors(err)
				require.True(t, ok, "%v", err)
				continue
			}
			require.True(t, 0 <= q.Depth && q.Depth <= wire.MaxDepth)
			require.Contains(t, []tree.Part{tree.PartConfig, tree.PartState, tree.PartAll}, q.Content)
			require.Equal(t, q.Point != "", q.Insert == "before" || q.Insert == "after")
		}
	})
}
