package restconf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
)

func TestDatastoresByName(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.ReadOnly["elan:elan-instances"] = tree.ReadOnly{Says: "it is computed", Source: fixed{
			schema:      c.Schema,
			config:      `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"wanted"}]}}`,
			operational: `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"confirmed"}]}}`,
		}}
	})
	const running, operational = "/rests/ds/ietf-datastores:running/", "/rests/ds/ietf-datastores:operational/"
	require.Equal(t, 201, b.do("PUT", running+"pod:coe/pods="+uid1, podRFC(uid1)).status)
	for _, at := range []string{running, operational, "/rests/data/"} {
		require.JSONEq(t, podRFC(uid1), b.do("GET", at+"pod:coe/pods="+uid1, "").body)
	}
	for _, c := range []struct {
		method, path string
		status       int
		has          string
	}{
		{"GET", running + "elan:elan-instances", 200, "wanted"},
		{"GET", operational + "elan:elan-instances", 200, "confirmed"},
		{"GET", running + discovery.LibraryTop, 404, "invalid-value"},
		{"GET", operational + discovery.LibraryTop, 200, "content-id"},
		{"GET", running, 200, "pod:coe"},
		{"GET", "/rests/ds/ietf-datastores%3Arunning/pod%3Acoe", 200, uid1},
		{"GET", "/rests/ds/ietf-datastores%3aoperational", 200, "content-id"},
		{"GET", "/rests/ds/ietf-datastores%3Astartup", 404, "no such resource"},
		{"GET", operational, 200, "content-id"},
		{"GET", running + "pod:coe?content=config", 400, "content"},
		{"GET", operational + "pod:coe?depth=1", 200, "{}"},
		{"DELETE", operational + "pod:coe", 405, "read-only"},
		{"PUT", running + "elan:elan-instances", 405, "computed"},
		{"DELETE", running + "pod:coe", 204, ""},
		{"GET", "/rests/ds/ietf-datastores:startup/pod:coe", 404, "no such resource"},
	} {
		got := b.do(c.method, c.path, "")
		require.Equal(t, c.status, got.status, "%s %s: %s", c.method, c.path, got.body)
		require.Contains(t, got.body, c.has, c.path)
	}
}
