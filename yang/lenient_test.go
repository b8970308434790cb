package yang

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	goyang "github.com/openconfig/goyang/pkg/yang"
	"github.com/stretchr/testify/require"
)

// tolerances lists all that the lenient mode accepts and the strict mode does not, each with
// its strict form.
var tolerances = []struct{ why, written, meant string }{
	{"a name at the top without its module", `{"coe":{}}`, `{"pod:coe":{}}`},
	{"a name without its module where that changes",
		`{"ietf-interfaces:interfaces":{"interface":[{"name":"a","type":"sample:own-type","own":"o"}]}}`,
		`{"ietf-interfaces:interfaces":{"interface":[{"name":"a","type":"sample:own-type","sample:own":"o"}]}}`},
	{"an identity of another module without that", `{"sample:types":{"ids":[1],"interface-type":"l2vlan"}}`,
		`{"sample:types":{"ids":[1],"interface-type":"iana-if-type:l2vlan"}}`},
	{"a quoted number", `{"sample:types":{"ids":["1"],"int8":"-5"}}`, `{"sample:types":{"ids":[1],"int8":-5}}`},
	{"a number that should be quoted", `{"sample:types":{"ids":[1],"uint64":7}}`, `{"sample:types":{"ids":[1],"uint64":"7"}}`},
	{"a quoted boolean", `{"sample:types":{"ids":[1],"boolean":"true"}}`, `{"sample:types":{"ids":[1],"boolean":true}}`},
	{"a number or boolean for a text", `{"sample:types":{"ids":[1],"string":7,"left":true}}`, `{"sample:types":{"ids":[1],"string":"7","left":"true"}}`},
	{"an empty text for what is empty", `{"sample:types":{"ids":[1],"empty":""}}`, `{"sample:types":{"ids":[1],"empty":[null]}}`},
	{"null for what is absent", `{"pod:coe":{"pods":[{"uid":"` + uidA + `","name":null,"interface":null}]}}`, `{"pod:coe":{"pods":[{"uid":"` + uidA + `"}]}}`},
	{"an empty text for an address that is absent", `{"pod:coe":{"pods":[{"uid":"` + uidA + `","host-ip-address":""}]}}`, `{"pod:coe":{"pods":[{"uid":"` + uidA + `"}]}}`},
	{"an object for a list of one entry", `{"pod:coe":{"pods":{"uid":"` + uidA + `"}}}`, `{"pod:coe":{"pods":[{"uid":"` + uidA + `"}]}}`},
}

// TestTolerances compares each tolerance with yanglint. Both yanglint and the strict mode refuse
// the lenient form and accept the strict form. The lenient mode decodes both to the same data.
func TestTolerances(t *testing.T) {
	schema := sample(t)
	for _, c := range tolerances {
		t.Run(c.why, func(t *testing.T) {
			got, err := schema.DecodeJSON([]byte(c.written), nil, "", Lenient)
			require.NoError(t, err)
			require.Equal(t, encoded(decoded(t, schema, "", c.meant)), encoded(got))
			require.Error(t, judge(t, schema, []byte(c.written)))
			require.JSONEq(t, string(marshal(t, unmarshal(t, []byte(c.meant)))), string(meant(t, schema, []byte(c.written))))
			theirs := newLinter(t, schema).judge(t, [][]byte{[]byte(c.written), []byte(c.meant)}, "json", "json")
			require.Error(t, theirs[0].err)
			require.NoError(t, theirs[1].err)
		})
	}
}

// TestLenientMatchesStrictForm changes valid documents. The lenient mode must accept a
// document exactly if the strict mode accepts its strict form.
func TestLenientMatchesStrictForm(t *testing.T) {
	schema := sample(t)
	for _, m := range mutantsOf(t, schema) {
		lenient, ours := schema.DecodeJSON(m.text, nil, "", Lenient)
		text := meant(t, schema, m.text)
		strict, want := schema.DecodeJSON(text, nil, "", Strict)
		if (want == nil) != (ours == nil) || encoded(strict) != encoded(lenient) {
			t.Fatalf("%s: %v %s\nstrictly: %v %s\n%s\n%s", m.what, ours, encoded(lenient), want, encoded(strict), m.text, text)
		}
	}
}

// meant returns the strict form of a document.
func meant(t testing.TB, s *Schema, document []byte) []byte {
	t.Helper()
	root := unmarshal(t, document)
	object, ok := root.(map[string]any)
	if !ok {
		return document
	}
	return marshal(t, meantMembers(&s.top, object))
}

func meantMembers(parent *Node, object map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range object {
		node := parent.children[name]
		if node == nil {
			out[name] = value
			continue
		}
		full := node.Module.Name + ":" + node.Name
		if _, twice := object[full]; node.Module != parent.Module && !twice {
			name = full
		}
		if value, ok := meantMember(node, value); ok {
			out[name] = value
		}
	}
	return out
}

// meantMember returns the strict form of a member's value; ok is false if it means nothing.
func meantMember(node *Node, value any) (any, bool) {
	if value == nil {
		return nil, false
	}
	if object, isObject := value.(map[string]any); isObject && node.typ == nil {
		object = meantMembers(node, object)
		if node.Kind == List {
			return []any{object}, true
		}
		return object, true
	}
	values, isList := value.([]any)
	switch {
	case node.Kind == Leaf:
		return node.typ.meant(value)
	case !isList || node.Kind == Container:
		return value, true
	}
	out := []any{}
	for _, one := range values {
		object, isObject := one.(map[string]any)
		switch {
		case isObject && node.Kind == List:
			out = append(out, meantMembers(node, object))
		case node.Kind == LeafList:
			if one, ok := node.typ.meant(one); ok {
				out = append(out, one)
			}
		default:
			out = append(out, one)
		}
	}
	return out, true
}

// meant returns the strict form of a leaf's value.
func (t *valueType) meant(value any) (any, bool) {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case json.Number:
		text = value.String()
	case bool:
		text = map[bool]string{true: "true", false: "false"}[value]
	default:
		return value, true
	}
	switch {
	case text == "" && t.absent:
		return nil, false
	case t.kind == goyang.Yidentityref && t.loose[text] != "" && t.identities[text] == "":
		return t.loose[text], true
	case t.written == asBool && (text == "true" || text == "false"):
		return text == "true", true
	case t.written == asEmpty && text == "":
		return []any{nil}, true
	case t.written == asNumber:
		return meantNumber(value, text)
	case t.written == asString:
		return text, true
	}
	return value, true
}

func meantNumber(value any, text string) (any, bool) {
	number, ok := new(big.Int).SetString(strings.TrimSpace(text), 10)
	if !ok {
		return value, true
	}
	return json.Number(number.String()), true
}
