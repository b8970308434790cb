package document

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

const uid = "8f2a6d5e-0000-4000-8000-000000000001"

func newReader(t testing.TB) *Reader {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	var tops []*yang.Node
	for _, top := range []string{
		"pod:coe", "service:service-information", "service:endpoints-info", "k8s-node:k8s-nodes-info",
		"k8s:k8s", "dhcp_allocation_pool:dhcp_allocation_pool",
	} {
		module, name, _ := strings.Cut(top, ":")
		tops = append(tops, schema.Module(module).Child(name))
	}
	return NewReader(schema, tops)
}

// shown is each entry as "line target body", or what is wrong.
func shown(t *testing.T, text string) (lines []string) {
	t.Helper()
	entries, err := newReader(t).Read(File{"f", []byte(text)})
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%d %s %s", e.Line, e.Target(), e.Body()))
		for _, p := range e.Problems {
			lines = append(lines, p.Error())
		}
	}
	if err != nil {
		lines = append(lines, strings.Split(err.Error(), "\n")...)
	}
	return lines
}

func TestRead(t *testing.T) {
	pod := `1 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `"}]}`
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a top container":      {`{"pod:coe": {"pods": [{"uid": "` + uid + `"}]}}`, []string{pod}},
		"a list":               {`{"pod:pods": [{"pod:uid": "` + uid + `"}]}`, []string{pod}},
		"no modules":           {`{"pods": [{"uid": "` + uid + `"}]}`, []string{pod}},
		"one, and no list":     {`{"pods": {"uid": "` + strings.ToUpper(uid) + `"}}`, []string{pod}},
		"YAML":                 {`pods: [{uid: ` + uid + `}]`, []string{pod}},
		"numbers in quotes":    {`{"pods": [{"uid": "` + uid + `", "interface": [{"uid": "` + uid + `", "segmentation-id": "0"}]}]}`, []string{`1 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","interface":[{"uid":"` + uid + `","segmentation-id":0}]}]}`}},
		"nested lists":         {"k8s:k8s: {network-policies: {network-policy: [{uuid: " + uid + "}]}}", []string{`1 /k8s:k8s/network-policies/network-policy=` + uid + ` {"k8s:network-policy":[{"uuid":"` + uid + `"}]}`}},
		"a nested list alone":  {"network-policy: [{uuid: " + uid + "}]", []string{`1 /k8s:k8s/network-policies/network-policy=` + uid + ` {"k8s:network-policy":[{"uuid":"` + uid + `"}]}`}},
		"keys with slashes":    {"network:\n- network-id: 10.0.0.1:a/b c", []string{`2 /dhcp_allocation_pool:dhcp_allocation_pool/network=10.0.0.1%3Aa%2Fb%20c {"dhcp_allocation_pool:network":[{"network-id":"10.0.0.1:a/b c"}]}`}},
		"beside the entries":   {"k8s-nodes-info:\n  id: x\n  k8s-nodes: [{uid: " + uid + "}]", []string{`3 /k8s-node:k8s-nodes-info/k8s-nodes=` + uid + ` {"k8s-node:k8s-nodes":[{"uid":"` + uid + `"}]}`, `1 /k8s-node:k8s-nodes-info {"k8s-node:k8s-nodes-info":{"id":"x"}}`}},
		"two in JSON":          {"{}\n{\"pods\": [\n{\"uid\": \"" + uid + "\"}]}", []string{strings.Replace(pod, "1 ", "3 ", 1)}},
		"escapes of JSON":      {`{"pods": [{"uid": "` + uid + `", "name": "\/\ud83d\ude00"}]}`, []string{`1 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","name":"/😀"}]}`}},
		"JSON and ---":         {"{\"pods\": []}\n---\n{\"pods\": [{\"uid\": \"" + uid + "\"}]}", []string{strings.Replace(pod, "1 ", "3 ", 1)}},
		"YAML in braces":       {`{pods: [{uid: ` + uid + `}]}`, []string{pod}},
		"an anchor":            {"pods:\n- &a {uid: " + uid + ", name: x}\n---\nservices:\n- uid: " + uid + "\n  name: y\n", []string{`2 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","name":"x"}]}`, `5 /service:service-information/services=` + uid + ` {"service:services":[{"uid":"` + uid + `","name":"y"}]}`}},
		"merge keys":           {"pods:\n- uid: " + uid + "\n  interface:\n  - &i {uid: " + uid + ", network-type: FLAT}\n  - <<: *i\n    uid: 8f2a6d5e-0000-4000-8000-000000000002\n", []string{`2 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","interface":[{"uid":"` + uid + `","network-type":"FLAT"},{"uid":"8f2a6d5e-0000-4000-8000-000000000002","network-type":"FLAT"}]}]}`}},
		"a word as a number":   {"pods: [{uid: " + uid + ", interface: [{uid: " + uid + ", segmentation-id: 0x10}]}]", []string{`1 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","interface":[{"uid":"` + uid + `","segmentation-id":16}]}]}`}},
		"nothing":              {"", nil},
		"only comments":        {"# nothing\n---\n", nil},
		"null":                 {"pods: null\npod:coe:\n", nil},
		"an unknown name":      {"\npodz: []", []string{`f:2: "podz" is nothing that is written to a bridge: want pod:coe, service:service-information, service:endpoints-info, k8s-node:k8s-nodes-info, k8s:k8s or dhcp_allocation_pool:dhcp_allocation_pool, or what is in one of them`}},
		"an unknown member":    {"pod:coe:\n  podz: 1", []string{`1 /pod:coe {"pod:coe":{"podz":1}}`, `f:2: coe: no member "podz" in coe: want pods`}},
		"a value that is none": {"pods:\n- uid: " + uid + "\n  interface:\n  - uid: " + uid + "\n    ip-address: 1\n", []string{`2 /pod:coe/pods=` + uid + ` {"pod:pods":[{"uid":"` + uid + `","interface":[{"uid":"` + uid + `","ip-address":1}]}]}`, `f:5: pods ` + uid + `: ip-address: 1 is not a valid value: want an IPv4 or IPv6 address`}},
		"in an unkeyed list":   {"services:\n- uid: " + uid + "\n  service-ports:\n  - port: 1\n  - port: x\n", []string{`2 /service:service-information/services=` + uid + ` {"service:services":[{"uid":"` + uid + `","service-ports":[{"port":1},{"port":"x"}]}]}`, `f:5: services ` + uid + `: port: "x" is not a valid value: want an integer in -2147483648..2147483647`}},
		"in a leaf-list":       {"services:\n- uid: " + uid + "\n  endpoints:\n  - " + uid + "\n  - x\n", []string{`2 /service:service-information/services=` + uid + ` {"service:services":[{"uid":"` + uid + `","endpoints":["` + uid + `","x"]}]}`, `f:5: services ` + uid + `: endpoints: "x" is not a valid value: want a UUID`}},
		"a member twice":       {"pods: []\npods: []", []string{`f:2: "pods" is there twice, first at line 1: want it once`}},
		"a list as a word":     {"pods: x", []string{`f:1: pods: want a list of entries`}},
		"an entry as a word":   {"pods:\n- x", []string{`f:2: pods: want an entry, an object with uid`}},
		"a container as word":  {"pod:coe: x", []string{`f:1: coe: want an object`}},
		"broken JSON":          {"{\n\t\"pods\": [,]\n}", []string{"f:2: jsontext: invalid character ',' at start of value within \"/pods\" after offset 12"}},
		"cut JSON":             {"{\n\"pods\": [", []string{"f:2: jsontext: unexpected EOF within \"/pods\" after offset 11"}},
		"not a number":         {"pods: [{uid: .nan}]", []string{"f:1: .nan is not a number of JSON"}},
		"a tag":                {"pods: !!binary YQ==", []string{"f:1: the tag !!binary means nothing here"}},
		"odd names":            {"? [a]\n: 1", []string{"f:1: a member's name has to be a word"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, shown(t, c.text)) })
	}
}

func TestReadBounds(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'm'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 9) + "]\n"
	}
	for name, c := range map[string]struct{ text, says string }{
		"aliases":       {bomb, "it has more than 4194304 values"},
		"a cycle":       {"a: &a\n- *a\n", "nested more than 100 deep"},
		"deep YAML":     {"pods: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested more than 100 deep"},
		"deep JSON":     {`{"pods": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "nested more than 100 deep"},
		"many members":  {"{" + strings.Repeat(`"a":1,`, 1) + manyMembers(300) + "}", "an object has more than 256 members"},
		"a large file":  {strings.Repeat(" ", MaxBytes+1), "it has more than 33554432 bytes: split it"},
		"many elements": {`{"pods": [` + strings.Repeat("1,", 5<<20) + "1]}", "it has more than 4194304 values"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newReader(t).Read(File{"f", []byte(c.text)})
			require.ErrorContains(t, err, c.says)
		})
	}
}

func manyMembers(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"b%d":1`, i))
	}
	return strings.Join(names, ",")
}

func TestSame(t *testing.T) {
	one := func(text string) *Entry {
		entries, err := newReader(t).Read(File{"f", []byte(text)})
		require.NoError(t, err)
		require.Len(t, entries, 1)
		return entries[0]
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"pods: [{uid: " + uid + ", name: a}]", `{"pod:coe": {"pods": [{"name": "a", "uid": "` + strings.ToUpper(uid) + `"}]}}`, true},
		{"pods: [{uid: " + uid + ", name: a}]", "pods: [{uid: " + uid + "}]", false},
		{"pods: [{uid: " + uid + ", nome: a}]", "pods: [{uid: " + uid + ", nome: a}]", false},
		{"k8s-nodes-info: {id: x}", "k8s-nodes-info: {id: x}", true},
	} {
		require.Equal(t, c.same, one(c.a).Same(one(c.b)), "%s, %s", c.a, c.b)
	}
	require.False(t, one("pods: [{uid: "+uid+"}]").Same(nil))
}

// Whatever a path is, an error has a line of the file.
func FuzzAt(f *testing.F) {
	f.Add("/pod:coe/pods[uid='" + uid + "']/interface[2]/uid")
	f.Add("/pod:coe/pods[uid=\"" + uid + "\"]/interface[uid='x][")
	f.Add("/pod:coe/pods[1]/[=']")
	f.Add("//")
	entries, err := newReader(f).Read(File{"f", []byte("pods:\n- uid: " + uid + "\n  interface:\n  - uid: " + uid + "\n")})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, path string) {
		entries[0].Has(path)
		var located *Error
		require.ErrorAs(t, entries[0].At(path, &yang.Error{Message: "m"}), &located)
		require.GreaterOrEqual(t, located.Line, 2)
		require.LessOrEqual(t, located.Line, 4)
	})
}

// Whatever is read, it ends, and what is taken is JSON.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"pods: [{uid: " + uid + ", name: &a x}]", `{"pods": [{"uid": "` + uid + `"}]}`, "a: &a {<<: *a}", "? [a]\n: b", "{\"pods\":"} {
		f.Add([]byte(text))
	}
	r := newReader(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, _ := NewReader(r.schema, r.tops).Read(File{"f", text})
		for _, e := range entries {
			require.True(t, json.Valid(e.Body()), "%s", e.Body())
			require.NotZero(t, e.Line)
		}
	})
}
