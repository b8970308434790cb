package restconf

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

// text writes a selection as a fields parameter below parent.
func (s *selection) text(parent *yang.Node) string {
	var out []string
	for _, node := range slices.SortedFunc(maps.Keys(s.below), func(a, b *yang.Node) int { return strings.Compare(a.Path(""), b.Path("")) }) {
		name := node.Name
		if parent == nil || node.Module != parent.Module {
			name = node.Module.Name + ":" + name
		}
		below := s.below[node]
		if below.whole {
			out = append(out, name)
		}
		if len(below.below) > 0 {
			out = append(out, name+"("+below.text(node)+")")
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
		sel, err := parseFields(schema, data.Node, text)
		if err != nil {
			_, ok := asErrors(err)
			require.True(t, ok, "%v", err)
			return
		}
		written := sel.text(data.Node)
		again, err := parseFields(schema, data.Node, written)
		require.NoError(t, err, written)
		require.Equal(t, written, again.text(data.Node))

		all := trimFields(data, sel, 0)
		require.True(t, within(all, data))
		require.Equal(t, all, trimFields(all, sel, 0))
		require.Equal(t, all, trimFields(data, again, 0))
		some := trimFields(data, sel, int(depth))
		require.True(t, within(some, all))
		for levels := range 5 {
			trimmed := trimDepth(data, levels+1, false)
			require.LessOrEqual(t, height(trimmed), levels+1)
			require.Equal(t, trimmed, trimDepth(trimmed, levels+1, false))
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
		for _, d := range []*dialect{draft02, rfc8040, nmda} {
			q, err := d.parseQuery(r)
			if err != nil {
				_, ok := asErrors(err)
				require.True(t, ok, "%v", err)
				continue
			}
			require.True(t, 0 <= q.depth && q.depth <= maxDepth)
			require.Contains(t, []string{"config", "nonconfig", "all"}, q.content)
			require.Equal(t, q.point != "", q.insert == "before" || q.insert == "after")
		}
	})
}
