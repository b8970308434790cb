package restconf

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

func TestBadInputChangesNothing(t *testing.T) {
	b := newBed(t, func(c *Config) { c.BodyLimit = 4096 })
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	at := "/pod:coe/pods[uid='" + uid1 + "']"
	entry := func(members string) string { return `{"pod:pods":[{"uid":"` + uid1 + `",` + members + `}]}` }
	for _, c := range []struct {
		name, method, path, body string
		options                  []option
		status                   int
		tag, draftTag            string // draftTag: where draft-02 answers otherwise
		errorPath                string
	}{
		{name: "broken JSON", method: "PUT", path: "uid1", body: `{"pod:pods":[{`, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "text after the body", method: "PUT", path: "uid1", body: podRFC(uid1) + "{}", status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "no body", method: "PUT", path: "uid1", options: []option{header("Content-Type", "application/json")}, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "an array", method: "PUT", path: "uid1", body: `[]`, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "an empty object", method: "PUT", path: "uid1", body: `{}`, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "an empty object for the container", method: "PUT", path: "coe", body: `{}`, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "an empty POST", method: "POST", path: "coe", body: `{}`, status: 400, tag: "malformed-message", errorPath: "any"},
		{name: "another resource", method: "PUT", path: "uid1", body: `{"pod:interface":[]}`, status: 400, tag: "malformed-message", errorPath: at},
		{name: "another container", method: "PUT", path: "coe", body: `{"pod:nobody":[]}`, status: 400, tag: "malformed-message", errorPath: "/pod:coe"},
		{name: "unknown member", method: "PUT", path: "uid1", body: entry(`"colour":"red"`), status: 400, tag: "unknown-element", draftTag: "malformed-message", errorPath: at},
		{name: "wrong type", method: "PUT", path: "uid1", body: entry(`"interface":"none"`), status: 400, tag: "any", draftTag: "malformed-message", errorPath: at + "/interface"},
		{name: "wrong type of a leaf", method: "PUT", path: "uid1", body: entry(`"name":{}`), status: 400, tag: "any", draftTag: "malformed-message", errorPath: at + "/name"},
		{name: "bad uuid", method: "PUT", path: "uid1", body: entry(`"cluster-id":"x"`), status: 400, tag: "invalid-value", draftTag: "malformed-message", errorPath: at + "/cluster-id"},
		{name: "bad address", method: "PUT", path: "uid1", body: entry(`"host-ip-address":"300.1.2.3"`), status: 400, tag: "invalid-value", draftTag: "malformed-message", errorPath: at + "/host-ip-address"},
		{name: "bad prefix", method: "POST", path: "dhcp", body: `{"dhcp_allocation_pool:network":[{"network-id":"x","allocation-pool":[{"subnet":"10.0.0.0/33"}]}]}`,
			status: 400, tag: "invalid-value", draftTag: "malformed-message", errorPath: "any"},
		{name: "number out of range", method: "PUT", path: "uid1", body: entry(`"interface":[{"uid":"` + uid1 + `","segmentation-id":4294967296}]`),
			status: 400, tag: "invalid-value", draftTag: "malformed-message", errorPath: at + "/interface[uid='" + uid1 + "']/segmentation-id"},
		{name: "key in the body differs", method: "PUT", path: "uid1", body: podRFC(uid2), status: 400, tag: "invalid-value", errorPath: at},
		{name: "key missing", method: "PUT", path: "uid1", body: `{"pod:pods":[{"name":"x"}]}`, status: 400, tag: "missing-element", draftTag: "malformed-message", errorPath: "any"},
		{name: "two entries in a PUT", method: "PUT", path: "uid1", body: `{"pod:pods":[{"uid":"` + uid1 + `"},{"uid":"` + uid2 + `"}]}`, status: 400, tag: "malformed-message", errorPath: at},
		{name: "duplicate entries", method: "POST", path: "coe", body: `{"pod:pods":[{"uid":"` + uid2 + `"},{"uid":"` + strings.ToUpper(uid2) + `"}]}`, status: 400, tag: "any", draftTag: "malformed-message", errorPath: "any"},
		{name: "duplicate members", method: "PUT", path: "uid1", body: entry(`"name":"a","name":"b"`), status: 400, tag: "any", draftTag: "malformed-message", errorPath: "any"},
		{name: "POST of what exists", method: "POST", path: "coe", body: podRFC(uid1), status: 409, tag: "data-exists", errorPath: at},
		{name: "POST of two, one of which exists", method: "POST", path: "coe", body: `{"pod:pods":[{"uid":"` + uid2 + `"},{"uid":"` + uid1 + `"}]}`, status: 409, tag: "data-exists", errorPath: at},
		{name: "POST of a container that exists", method: "POST", path: "root", body: `{"pod:coe":{}}`, status: 409, tag: "data-exists", errorPath: "/pod:coe"},
		{name: "DELETE of what is not there", method: "DELETE", path: "uid2", status: 404, tag: "data-missing", errorPath: strings.ReplaceAll(at, uid1, uid2)},
		{name: "too large", method: "PUT", path: "uid1", body: entry(`"name":"` + strings.Repeat("x", 5000) + `"`), status: 413, tag: "too-big"},
		{name: "too large, length unsaid", method: "PUT", path: "uid1", body: entry(`"name":"` + strings.Repeat("x", 5000) + `"`),
			options: []option{func(r *http.Request) { r.ContentLength = -1 }}, status: 413, tag: "too-big"},
		{name: "no credentials", method: "PUT", path: "uid1", body: podRFC(uid1), options: []option{header("Authorization", "")}, status: 401, tag: "access-denied"},
		{name: "wrong credentials", method: "DELETE", path: "uid1", options: []option{func(r *http.Request) { r.SetBasicAuth("admin", "guess") }}, status: 401, tag: "access-denied"},
		{name: "unknown user", method: "DELETE", path: "uid1", options: []option{func(r *http.Request) { r.SetBasicAuth("eve", "") }}, status: 401, tag: "access-denied"},
		{name: "read-only tree", method: "POST", path: "elan", body: `{"elan:elan-instance":[{"elan-instance-name":"x"}]}`, status: 405, tag: "operation-not-supported", errorPath: "/elan:elan-instances"},
		{name: "read-only tree in a POST to the datastore", method: "POST", path: "root", body: `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"x"}]}}`,
			status: 405, tag: "operation-not-supported", errorPath: "/elan:elan-instances"},
		{name: "read-only tree beside another", method: "POST", path: "root", body: `{"service:endpoints-info":{},"elan:elan-instances":{}}`,
			status: 405, tag: "operation-not-supported", errorPath: "/elan:elan-instances"},
		{name: "DELETE of all", method: "DELETE", path: "root", status: 405, tag: "operation-not-supported"},
		{name: "unknown module", method: "PUT", path: "/nosuch:thing", body: `{}`, status: 400, tag: "unknown-element"},
		{name: "unknown node", method: "DELETE", path: "/pod:thing", status: 400, tag: "invalid-value"},
		{name: "unknown child", method: "DELETE", path: "/pod:coe/thing", status: 400, tag: "invalid-value", errorPath: "/pod:coe"},
		{name: "no module", method: "DELETE", path: "/coe", status: 400, tag: "invalid-value"},
		{name: "text", method: "PUT", path: "uid1", body: podRFC(uid1), options: []option{header("Content-Type", "text/plain")}, status: 415, tag: "invalid-value"},
	} {
		for _, d := range []struct {
			dialect *wire.Dialect
			paths   map[string]string
		}{
			{wire.Draft02, map[string]string{"root": "/restconf/config", "coe": coe, "uid1": pods + uid1, "uid2": pods + uid2,
				"dhcp": "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool", "elan": "/restconf/config/elan:elan-instances"}},
			{wire.RFC8040, map[string]string{"root": "/rests/data", "coe": coeRFC, "uid1": podsRFC + uid1, "uid2": podsRFC + uid2,
				"dhcp": "/rests/data/dhcp_allocation_pool:dhcp_allocation_pool", "elan": "/rests/data/elan:elan-instances"}},
		} {
			t.Run(fmt.Sprintf("%s/draft=%v", c.name, d.dialect.Draft), func(t *testing.T) {
				b := &bed{b.Server, t, b.store}
				path, named := d.paths[c.path]
				if !named {
					path = d.paths["root"] + c.path
				}
				revision, before := b.store.Revision(), b.everything()
				got := b.do(c.method, path, c.body, c.options...)
				require.Equal(t, c.status, got.status, got.body)
				tag := c.tag
				if d.dialect.Draft && c.draftTag != "" {
					tag = c.draftTag
				}
				require.NotEmpty(t, got.tag(), got.body)
				if tag != "any" {
					require.Equal(t, tag, got.tag(), got.body)
				}
				if c.errorPath != "any" {
					require.Equal(t, c.errorPath, got.path(), got.body)
				}
				require.NotEmpty(t, got.firstError()["error-message"])
				require.Equal(t, d.dialect.Errors.Name, got.header.Get("Content-Type"))
				require.Equal(t, before, b.everything())
				require.Equal(t, revision, b.store.Revision())
			})
		}
	}
}

func TestLimitsOfAnswers(t *testing.T) {
	b := newBed(t)
	got := b.do("GET", "/restconf/configuration", "")
	require.Equal(t, 404, got.status)
	require.Equal(t, "invalid-value", got.tag())
	require.Equal(t, 404, b.do("GET", "/", "").status)
	denied := b.do("GET", "/", "", header("Authorization", ""))
	require.Equal(t, 401, denied.status, "nothing is answered without credentials")
	require.Contains(t, denied.header.Get("WWW-Authenticate"), `Basic realm="coe-bridge"`)
}

// late is a body that does not come in time.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestBodiesThatDoNotComeInTime(t *testing.T) {
	b := newBed(t)
	for _, path := range []string{coe, coeRFC, subscribePath} {
		got := b.do("POST", path, "{}", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(late{}), -1 })
		require.Equal(t, 408, got.status, "%s: %s", path, got.body)
	}
}

// In draft-02 no path reaches an entry with an empty key, so none can be made; RFC 8040
// reaches it.
func TestEmptyKeys(t *testing.T) {
	b := newBed(t)
	const pools = "dhcp_allocation_pool:dhcp_allocation_pool"
	entry := `{"network":[{"network-id":""}]}`
	for path, body := range map[string]string{
		"/restconf/config/" + pools: entry,
		"/restconf/config":          `{"` + pools + `":` + entry + `}`,
	} {
		got := b.do("POST", path, body)
		require.Equal(t, 400, got.status, got.body)
		require.Contains(t, got.body, "network-id")
	}
	require.Equal(t, 400, b.do("PUT", "/restconf/config/"+pools, `{"dhcp_allocation_pool":`+entry+`}`).status)
	require.Equal(t, 404, b.do("GET", "/rests/data/"+pools, "").status, "nothing is made")
	require.Equal(t, 204, b.do("POST", "/restconf/config/"+pools, strings.Replace(entry, `""`, `"n"`, 1)).status)
	made := b.do("POST", "/rests/data/"+pools, `{"dhcp_allocation_pool:network":[{"network-id":""}]}`)
	require.Equal(t, 201, made.status, made.body)
	require.Equal(t, 204, b.do("DELETE", "/rests/data/"+pools+"/network=", "").status)
}
