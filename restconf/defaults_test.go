package restconf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
)

// The modes of RFC 6243 in every tree, where one leaf is set to its default, one to
// something else and one not at all.
func TestWithDefaults(t *testing.T) {
	b := newBed(t, func(c *Config) {
		const text = `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"a","external":false},{"elan-instance-name":"b","external":true},{"elan-instance-name":"c"}]}}`
		c.ReadOnly["elan:elan-instances"] = tree.ReadOnly{Says: "it is computed", Source: fixed{schema: c.Schema, config: text, operational: text}}
	})
	entries := func(a, b, c string) string {
		return `[{"elan-instance-name":"a"` + a + `},{"elan-instance-name":"b"` + b + `},{"elan-instance-name":"c"` + c + `}]`
	}
	const no, yes = `,"external":false`, `,"external":true`
	modes := map[string]string{
		"":                                entries(no, yes, ""),
		"with-defaults=explicit":          entries(no, yes, ""),
		"with-defaults=trim":              entries("", yes, ""),
		"with-defaults=report-all":        entries(no, yes, no),
		"with-defaults=report-all-tagged": entries(no, yes, no+`,"@external":{"ietf-netconf-with-defaults:default":true}`),
	}
	for _, at := range []struct{ tree, top, query string }{
		{"/restconf/config/", "elan-instances", ""},
		{"/restconf/operational/", "elan-instances", ""},
		{"/rests/data/", "elan:elan-instances", ""},
		{"/rests/data/", "elan:elan-instances", "&content=config"},
		{"/rests/ds/ietf-datastores:running/", "elan:elan-instances", ""},
		{"/rests/ds/ietf-datastores:operational/", "elan:elan-instances", ""},
	} {
		for mode, want := range modes {
			got := b.do("GET", at.tree+"elan:elan-instances?"+mode+at.query, "")
			require.Equal(t, 200, got.status, got.body)
			require.JSONEq(t, `{"`+at.top+`":{"elan-instance":`+want+`}}`, got.body, at.tree+mode)
		}
	}
	const all = "/rests/data/elan:elan-instances"
	require.Equal(t, `<elan-instance xmlns="urn:opendaylight:netvirt:elan"><elan-instance-name>c</elan-instance-name>`+
		`<external xmlns:wd="urn:ietf:params:xml:ns:netconf:default:1.0" wd:default="true">false</external></elan-instance>`,
		b.do("GET", all+"/elan-instance=c?with-defaults=report-all-tagged", "", header("Accept", "application/xml")).body)
	require.JSONEq(t, `{"elan:elan-instances":{"elan-instance":[{"external":false},{"external":true},{"external":false}]}}`,
		b.do("GET", all+"?with-defaults=report-all&fields=elan-instance(external)", "").body)
	require.Equal(t, 404, b.do("GET", all+"?with-defaults=report-all&content=nonconfig", "").status, "it is configuration")

	// A GET of one leaf returns its default in every mode, except in a datastore by name.
	for path, want := range map[string]string{
		all + "/elan-instance=c/external":                                                `{"elan:external":false}`,
		all + "/elan-instance=c/external?with-defaults=explicit":                         `{"elan:external":false}`,
		all + "/elan-instance=c/external?with-defaults=report-all-tagged":                `{"elan:external":false,"@elan:external":{"ietf-netconf-with-defaults:default":true}}`,
		all + "/elan-instance=c/external?with-defaults=trim":                             "",
		all + "/elan-instance=a/external?with-defaults=trim":                             "",
		all + "/elan-instance=b/external?with-defaults=trim":                             `{"elan:external":true}`,
		all + "/elan-instance=d/external":                                                "",
		all + "/elan-instance=c/external?content=nonconfig":                              "",
		"/rests/ds/ietf-datastores:running/elan:elan-instances/elan-instance=c/external": "",
	} {
		got := b.do("GET", path, "")
		if want == "" {
			require.Equal(t, 404, got.status, path+got.body)
			continue
		}
		require.Equal(t, 200, got.status, path+got.body)
		require.JSONEq(t, want, got.body, path)
	}
	require.Equal(t, 400, b.do("GET", all+"?with-defaults=all", "").status)
}
