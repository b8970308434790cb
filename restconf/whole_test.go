package restconf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// The datastore is replaced and merged into as a whole, by both encodings and by its name.
func TestWholeDatastore(t *testing.T) {
	const service = `"service:service-information":{"services":[{"uid":"` + uid1 + `","name":"s"}]}`
	pods := func(uid, name string) string {
		return `"pod:coe":{"pods":[{"uid":"` + uid + `","name":"` + name + `"}]}`
	}
	for _, at := range []string{"/rests/data", "/restconf/data", "/rests/ds/ietf-datastores:running"} {
		t.Run(at, func(t *testing.T) {
			b := newBed(t)
			holds := func(want string) {
				t.Helper()
				require.JSONEq(t, `{"ietf-restconf:data":{`+want+`}}`, b.do("GET", at+"?content=config", "").body)
			}
			if at[:9] == "/rests/ds" {
				holds = func(want string) {
					t.Helper()
					require.JSONEq(t, `{"ietf-restconf:data":{`+want+`}}`, b.do("GET", at, "").body)
				}
			}
			options := b.do("OPTIONS", at, "")
			require.Equal(t, "OPTIONS, HEAD, GET, POST, PUT, PATCH", options.header.Get("Allow"))
			require.Contains(t, options.header.Get("Accept-Patch"), "application/yang-data+json, ")

			require.Equal(t, 204, b.do("PUT", at, `{"ietf-restconf:data":{`+pods(uid1, "a")+`,`+service+`}}`).status)
			holds(pods(uid1, "a") + `,` + service)
			got := b.do("PATCH", at, `{"ietf-restconf:data":{"k8s-node:k8s-nodes-info":{},`+pods(uid1, "b")+`}}`)
			require.Equal(t, 204, got.status, got.body)
			holds(`"k8s-node:k8s-nodes-info":{},` + pods(uid1, "b") + `,` + service)
			require.Equal(t, 204, b.do("PATCH", at, `{"ietf-restconf:data":{}}`).status, "nothing is merged")
			require.Equal(t, 412, b.do("PUT", at, `{"ietf-restconf:data":{}}`, header("If-Match", `"x"`)).status)
			tag := b.do("HEAD", at, "").header.Get("ETag")
			got = b.do("PUT", at, `{"ietf-restconf:data":{`+pods(uid2, "c")+`}}`, header("If-Match", tag))
			require.Equal(t, 204, got.status, got.body)
			require.NotEqual(t, tag, got.header.Get("ETag"))
			require.Equal(t, b.do("HEAD", at, "").header.Get("ETag"), got.header.Get("ETag"))
			holds(pods(uid2, "c"))

			inXML := header("Content-Type", "application/yang-data+xml")
			got = b.do("PATCH", at, `<r:data xmlns:r="`+wire.Space+`" xmlns:p="urn:opendaylight:coe:northbound:pod"><p:coe><p:pods><p:uid>`+uid2+`</p:uid><p:name>d</p:name></p:pods></p:coe>`+
				`<k8s-nodes-info xmlns="urn:opendaylight:coe:northbound:k8s-node"/></r:data>`, inXML)
			require.Equal(t, 204, got.status, got.body)
			holds(`"k8s-node:k8s-nodes-info":{},` + pods(uid2, "d"))
			require.Equal(t, 204, b.do("PUT", at, `<data xmlns="`+wire.Space+`"/>`, inXML).status)
			require.JSONEq(t, `{"ietf-restconf:data":{}}`, b.do("GET", "/rests/ds/ietf-datastores:running", "").body)
		})
	}
}

func TestWholeDatastoreRefusals(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	before := b.everything()
	for body, want := range map[string]struct {
		status int
		tag    string
	}{
		`{}`:                                     {400, "malformed-message"},
		`{"pod:coe":{}}`:                         {400, "malformed-message"},
		`{"data":{"pod:coe":{}}}`:                {400, "malformed-message"},
		`{"ietf-restconf:data":[]}`:              {400, "malformed-message"},
		`{"ietf-restconf:data":{},"pod:coe":{}}`: {400, "malformed-message"},
		`{"ietf-restconf:data":{"pod:coe":{"pods":[{"uid":"x"}]}}}`:      {400, "invalid-value"},
		`{"ietf-restconf:data":{"pod:coe":{},"elan:elan-instances":{}}}`: {405, "operation-not-supported"},
		`<data xmlns="urn:x"/>`:                                                {400, "malformed-message"},
		`<data xmlns="` + wire.Space + `">x</data>`:                            {400, "malformed-message"},
		`<data xmlns="` + wire.Space + `"/><data xmlns="` + wire.Space + `"/>`: {400, "malformed-message"},
		`<data xmlns="` + wire.Space + `"><coe xmlns="urn:opendaylight:coe:northbound:pod"/><coe xmlns="urn:opendaylight:coe:northbound:pod"/></data>`: {400, "malformed-message"},
	} {
		kind := "application/yang-data+json"
		if body[0] == '<' {
			kind = "application/yang-data+xml"
		}
		for _, method := range []string{"PUT", "PATCH"} {
			got := b.do(method, "/rests/data", body, header("Content-Type", kind), header("Accept", "application/yang-data+json"))
			require.Equal(t, want.status, got.status, "%s %s: %s", method, body, got.body)
			require.Equal(t, want.tag, got.tag(), body)
			require.Equal(t, before, b.everything())
		}
	}
	require.Equal(t, 400, b.do("PUT", "/rests/data?insert=first", `{"ietf-restconf:data":{}}`).status)
	require.Equal(t, 405, b.do("DELETE", "/rests/data", "").status)
	require.Equal(t, 405, b.do("PUT", "/restconf/config", `{"data":{}}`).status, "draft-02 has none")
	require.Equal(t, 405, b.do("PUT", "/rests/ds/ietf-datastores:operational", `{"ietf-restconf:data":{}}`).status)
	require.Equal(t, before, b.everything())
}

// What Kubernetes says stays where all is replaced.
func TestWholeDatastoreWithExternalEntries(t *testing.T) {
	w := newWorld(t)
	w.speak(uid2)
	require.Equal(t, 201, w.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	all := w.do("GET", "/rests/ds/ietf-datastores:running", "").body
	require.Contains(t, all, uid2)
	require.Equal(t, 204, w.do("PUT", "/rests/data", all).status, "what was read is sent back")
	require.Equal(t, 204, w.do("PUT", "/rests/data", `{"ietf-restconf:data":{}}`).status)
	left := w.do("GET", "/rests/ds/ietf-datastores:running", "").body
	require.Contains(t, left, uid2)
	require.NotContains(t, left, uid1)
}
