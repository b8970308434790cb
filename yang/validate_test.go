package yang

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	schema := sample(t)
	wants := func(rest string) string {
		return `{"sample:wants":{"name":"n","implied":{"deeper":{"must-be":"x"}},` + rest + `}}`
	}
	for _, test := range []struct{ name, body, tag, appTag, path, message string }{
		{name: "right", body: wants(`"rail":"x"`)},
		{name: "container that isn't wanted", body: `{"pod:coe":{}}`},
		{"mandatory", `{"sample:wants":{"implied":{"deeper":{"must-be":"x"}},"rail":"x"}}`,
			"missing-element", "", "/sample:wants/name", "name: missing: want a string"},
		{"mandatory below what is implied", `{"sample:wants":{"name":"n","rail":"x"}}`,
			"missing-element", "", "/sample:wants/implied/deeper/must-be", "must-be: missing"},
		{"mandatory in what is there", wants(`"optional":{},"rail":"x"`),
			"missing-element", "", "/sample:wants/optional/must-be", "must-be: missing"},
		{"mandatory in the case", wants(`"road":"r"`), "missing-element", "", "/sample:wants/toll", "toll: missing: want an integer in 0..255"},
		{name: "all of the case", body: wants(`"road":"r","toll":5`)},
		{"no case", wants(`"pair":[]`), "data-missing", "missing-choice", "/sample:wants", "way: missing: want one of its cases"},
		{"no case within", wants(`"airport":"a"`), "data-missing", "missing-choice", "/sample:wants", "craft: missing"},
		{name: "case within", body: wants(`"balloon":"a"`)},
		{"min-elements", `{"sample:types":{}}`, "invalid-value", "too-few-elements", "/sample:types/ids", "ids: 0 of them: want at least 1"},
		{"max-elements of values", `{"sample:types":{"ids":[1,2,3,4]}}`, "invalid-value", "too-many-elements", "/sample:types/ids", "ids: 4 of them: want at most 3"},
		{"max-elements of entries", wants(`"rail":"x","server":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]`),
			"invalid-value", "too-many-elements", "/sample:wants/server", "server: 4 of them: want at most 3"},
		{"unique", wants(`"rail":"x","server":[{"name":"a","address":"::1","port":1},{"name":"b","address":"0::1","port":1}]`),
			"invalid-value", "data-not-unique", "/sample:wants/server[name='b']", `server: another entry also has "::1 1"`},
		{name: "unique where one is absent", body: wants(`"rail":"x","server":[{"name":"a","address":"::1"},{"name":"b","address":"::1"}]`)},
		{name: "when", body: `{"ietf-interfaces:interfaces":{"interface":[{"name":"a","type":"iana-if-type:l2vlan","odl-interface:vlan-id":1}]}}`},
		{"when not", `{"ietf-interfaces:interfaces":{"interface":[{"name":"a","type":"iana-if-type:tunnel","odl-interface:vlan-id":1}]}}`,
			"unknown-element", "", "/ietf-interfaces:interfaces/interface[name='a']/odl-interface:vlan-id",
			`vlan-id: not allowed here: allowed only if type is "iana-if-type:l2vlan"`},
		{"mandatory when", `{"ietf-interfaces:interfaces":{"interface":[{"name":"a","type":"sample:own-type"}]}}`,
			"missing-element", "", "/ietf-interfaces:interfaces/interface[name='a']/sample:own", "own: missing"},
		{"mandatory of an entry", `{"elan:elan-interfaces":{"elan-interface":[{"name":"a"}]}}`,
			"missing-element", "", "/elan:elan-interfaces/elan-interface[name='a']/elan-instance-name", "elan-instance-name: missing: want a string"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := schema.Validate(decoded(t, schema, "", test.body)[0], "", nil)
			if test.tag == "" {
				require.NoError(t, err)
				return
			}
			var errs Errors
			require.ErrorAs(t, err, &errs)
			require.Len(t, errs, 1, "%v", errs)
			require.Equal(t, test.tag, errs[0].Tag)
			require.Equal(t, test.appTag, errs[0].AppTag)
			require.Equal(t, test.path, errs[0].Path)
			require.Equal(t, "application", errs[0].Type)
			require.Contains(t, errs[0].Message, test.message)
		})
	}
}

func TestValidateLeafrefs(t *testing.T) {
	schema := sample(t)
	d := decoded(t, schema, "", `{"sample:wants":{"name":"n","implied":{"deeper":{"must-be":"x"}},"rail":"x",`+
		`"server":[{"name":"a","peer":"a"},{"name":"b","peer":"c","friend":"nobody"}]}}`)[0]
	require.NoError(t, schema.Validate(d, "", nil), "not checked without a lookup")

	name := find(t, schema, "sample:wants", "server", "name")
	err := schema.Validate(d, "", func(target *Node, value string) bool {
		require.Same(t, name, target)
		return value == "a" || value == "b"
	})
	var errs Errors
	require.ErrorAs(t, err, &errs)
	require.Equal(t, Errors{{
		Type: "application", Tag: "data-missing", AppTag: "instance-required", Path: "/sample:wants/server[name='b']/peer",
		Message: `peer: name "c" does not exist: want an existing one`,
	}}, errs)
	require.Equal(t, `/sample:wants/server[name='b']/peer: peer: name "c" does not exist: want an existing one`, err.Error())

	entry := decoded(t, schema, "/elan:elan-interfaces", `{"elan-interface":[{"name":"a","elan-instance-name":"e"}]}`)[0]
	err = schema.Validate(entry, "/elan:elan-interfaces", func(*Node, string) bool { return false })
	require.ErrorContains(t, err, "/elan:elan-interfaces/elan-interface[name='a']/name: name: name \"a\" does not exist")
}
