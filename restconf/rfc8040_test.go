package restconf

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The capabilities by the letter of RFC 8040 section 9.1 and of the RFCs after it:
// each capability is there, and so is what it stands for.
func TestCapabilities(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	at := served(t, b.Server)
	var body map[string]struct{ Capability []string }
	got := b.do("GET", "/rests/data/ietf-restconf-monitoring:restconf-state/capabilities", "")
	require.NoError(t, json.Unmarshal([]byte(got.body), &body), got.body)
	served := map[string]string{
		"urn:ietf:params:restconf:capability:defaults:1.0?basic-mode=explicit": coeRFC,
		"urn:ietf:params:restconf:capability:depth:1.0":                        coeRFC + "?depth=1",
		"urn:ietf:params:restconf:capability:fields:1.0":                       coeRFC + "?fields=pods/name",
		"urn:ietf:params:restconf:capability:with-defaults:1.0":                coeRFC + "?with-defaults=report-all-tagged",
		"urn:ietf:params:restconf:capability:with-operational-defaults:1.0":    "/rests/ds/ietf-datastores:operational/pod:coe?with-defaults=report-all",
		"urn:ietf:params:restconf:capability:filter:1.0":                       "/rests/streams/changes=pod:coe?filter=/coe-changes:entry-changed",
		"urn:ietf:params:restconf:capability:replay:1.0":                       "/rests/streams/changes=pod:coe?start-time=2020-01-01T00:00:00Z",
		"urn:ietf:params:restconf:capability:yang-patch:1.0":                   "patch",
		"urn:coe-bridge:restconf:capability:dry-run:1.0":                       "patch",
	}
	require.Len(t, body["ietf-restconf-monitoring:capabilities"].Capability, len(served))
	for _, capability := range body["ietf-restconf-monitoring:capabilities"].Capability {
		path := served[capability]
		switch {
		case strings.HasPrefix(path, "/rests/streams/"):
			require.Equal(t, 200, followIt(t, http.DefaultClient, at+path).resp.StatusCode, capability)
		case path == "patch":
			patched := b.do("PATCH", coeRFC+"?dry-run=true", `{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[]}}`, header("Content-Type", "application/yang-patch+json"))
			require.Equal(t, 200, patched.status, capability)
		default:
			require.Equal(t, 200, b.do("GET", path, "").status, capability)
		}
	}
}

// Streams are found where the list of them says, by the address that the client has used:
// one of each top container that can be written.
func TestListOfStreams(t *testing.T) {
	b := newBed(t)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/rests/data/ietf-restconf-monitoring:restconf-state/streams", nil)
	require.NoError(t, err)
	r.SetBasicAuth("admin", "admin")
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	var body map[string]struct {
		Stream []struct {
			Name   string
			Replay bool `json:"replay-support"`
			Access []struct{ Encoding, Location string }
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	require.NoError(t, resp.Body.Close())
	listed := map[string]bool{}
	for _, one := range body["ietf-restconf-monitoring:streams"].Stream {
		listed[one.Name] = one.Replay
		require.Len(t, one.Access, 2)
		for _, access := range one.Access {
			require.Contains(t, []string{"json", "xml"}, access.Encoding)
			f := followIt(t, server.Client(), access.Location)
			require.Equal(t, 200, f.resp.StatusCode, access.Location)
			require.Equal(t, stream.Media, f.resp.Header.Get("Content-Type"))
			require.NoError(t, f.resp.Body.Close())
			head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, access.Location, nil)
			require.NoError(t, err)
			head.SetBasicAuth("admin", "admin")
			resp, err := server.Client().Do(head)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode, "HEAD of what can be got")
			require.Equal(t, stream.Media, resp.Header.Get("Content-Type"))
		}
	}
	for _, module := range b.cfg.Schema.Modules {
		for _, top := range module.Top {
			if replay, is := listed["changes="+wire.TopName(top)]; b.tree.Writable(top) {
				require.True(t, is && replay, wire.TopName(top))
			}
		}
	}
	require.Equal(t, 404, b.do("HEAD", "/rests/streams/none", "").status)
	require.Eventually(t, func() bool { return b.shares.followed() == 0 }, patience.Patience, 10*time.Millisecond, "nobody keeps a place")
}

// OPTIONS lists the methods of every resource. HEAD answers as GET, without the body.
func TestOptionsAndHead(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	const (
		reads  = "OPTIONS, HEAD, GET"
		entry  = "OPTIONS, HEAD, GET, POST, PUT, DELETE, PATCH"
		leaf   = "OPTIONS, HEAD, GET, PUT, DELETE, PATCH"
		draft  = "OPTIONS, HEAD, GET, POST, PUT, DELETE"
		asking = "OPTIONS, POST"
	)
	for path, allow := range map[string]string{
		"/.well-known/host-meta":                        reads,
		"/rests":                                        reads,
		"/rests/operations":                             reads,
		"/rests/yang-library-version":                   reads,
		"/rests/modules/pod@2017-06-11.yang":            reads,
		"/rests/streams/changes=pod:coe":                reads,
		"/rests/data/ietf-yang-library:yang-library":    reads,
		"/rests/data/elan:elan-instances":               reads,
		coeRFC + "/pods":                                reads,
		"/rests/ds/ietf-datastores:operational/pod:coe": reads,
		"/restconf/operational/pod:coe":                 reads,
		"/restconf/modules":                             reads,
		"/restconf/streams":                             reads,
		"/restconf/operations":                          reads,
		"/rests/data":                                   "OPTIONS, HEAD, GET, POST, PUT, PATCH",
		coeRFC:                                          entry,
		podsRFC + uid1:                                  entry,
		podsRFC + uid1 + "/name":                        leaf,
		"/rests/ds/ietf-datastores:running/pod:coe":     entry,
		"/restconf/config":                              "OPTIONS, HEAD, GET, POST",
		coe:                                             draft,
		pods + uid1:                                     draft,
		subscribePath:                                   asking,
	} {
		options := b.do("OPTIONS", path, "")
		require.Equal(t, 200, options.status, path)
		require.Empty(t, options.body, path)
		require.Equal(t, allow, options.header.Get("Allow"), path)
		require.Equal(t, strings.Contains(allow, "PATCH"), options.header.Get("Accept-Patch") != "", path)
		refused := b.do("TRACE", path, "")
		require.Equal(t, 405, refused.status, path)
		if allow == asking || strings.Contains(path, "streams/") || strings.HasPrefix(path, "/rests/data/elan") {
			continue // there is nothing to GET, or no end of it
		}
		get, head := b.do("GET", path, ""), b.do("HEAD", path, "")
		require.Equal(t, 200, get.status, path+get.body)
		require.Equal(t, 200, head.status, path)
		for _, name := range []string{"Content-Type", "Content-Length", "ETag", "Last-Modified", "Vary", "Cache-Control"} {
			require.Equal(t, get.header.Get(name), head.header.Get(name), "%s of %s", name, path)
		}
	}
}

// The paths of section 3.5.3: what is percent-encoded in keys, empty keys, names with and
// without their module.
func TestDataResourceIdentifiers(t *testing.T) {
	b := newBed(t)
	const lists = "/rests/data/ietf-access-control-list:access-lists"
	for key, segment := range map[string]string{
		`plain`: "plain", `a/b`: "a%2Fb", `a,b`: "a%2Cb", `a b`: "a%20b", `a=b`: "a=b", `a:b`: "a:b", `a%b`: "a%25b", `a+b`: "a+b", `"`: "%22", `'`: "'", `ü`: "%C3%BC", `[x]`: "%5Bx%5D", ``: "",
	} {
		body, err := json.Marshal(map[string]any{"ietf-access-control-list:acl": []any{map[string]string{"acl-type": "ietf-access-control-list:ipv4-acl", "acl-name": key}}})
		require.NoError(t, err)
		made := b.do("POST", lists, string(body))
		require.Equal(t, 201, made.status, made.body)
		at := strings.TrimPrefix(made.header.Get("Location"), "http://127.0.0.1:8181")
		for _, path := range []string{at, lists + "/acl=ietf-access-control-list:ipv4-acl," + segment, lists + "/ietf-access-control-list:acl=ipv4-acl," + segment} {
			got := b.do("GET", path, "")
			require.Equal(t, 200, got.status, path+got.body)
			require.JSONEq(t, string(body), got.body, path)
		}
		require.Equal(t, 204, b.do("DELETE", at, "").status, at)
	}
	for _, path := range []string{"/acl=ipv4-acl", "/acl=ipv4-acl,a,b", "/pod:acl=ipv4-acl,a", "/acl=none,a"} {
		require.Equal(t, 400, b.do("GET", lists+path, "").status, path)
	}
}
