package restconf

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	uid1 = "9f2a6d5e-0000-4000-8000-00000000000a"
	uid2 = "9f2a6d5e-0000-4000-8000-00000000000b"
	uid3 = "9f2a6d5e-0000-4000-8000-00000000000c"
)

// fixed is a Source of canned JSON.
type fixed struct {
	schema              *yang.Schema
	config, operational string
}

func (f fixed) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	text := f.config
	if asked.Content == tree.ContentOperational {
		text = f.operational
	}
	if text == "" {
		return nil, nil
	}
	data, err := f.schema.DecodeJSON([]byte(text), nil, "", yang.Strict)
	if err != nil {
		return nil, err
	}
	return data[0], nil
}

// bed is a server over a real embedded etcd.
type bed struct {
	*Server
	t     testing.TB
	store *datastore.Datastore
}

func newBed(t testing.TB, change ...func(*Config)) *bed {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/dev/shm", "restconf") // a disk can be slower than Config.Timeout
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: dir, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, store.Close())
		require.NoError(t, os.RemoveAll(dir))
	})
	cfg := Config{Config: tree.Config{Schema: schema, Datastore: store, ReadOnly: map[string]tree.ReadOnly{}}, Auth: FixedUsers{"admin": "admin"}}
	for _, name := range []string{
		"elan:elan-instances", "elan:elan-interfaces", "l3vpn:vpn-instances", "l3vpn:vpn-interfaces",
		"ietf-interfaces:interfaces", "odl-nat:floating-ip-info",
	} {
		cfg.ReadOnly[name] = tree.ReadOnly{Source: fixed{schema: schema}, Says: "it is computed from pods and services: change those"}
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return &bed{s, t, store}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// tag is the error-tag, path the error-path of the first error.
func (a answer) tag() string  { return a.firstError()["error-tag"] }
func (a answer) path() string { return a.firstError()["error-path"] }

func (a answer) firstError() map[string]string {
	var body map[string]struct {
		Error []map[string]string `json:"error"`
	}
	if json.Unmarshal([]byte(a.body), &body) != nil {
		return nil
	}
	for _, member := range []string{"errors", "ietf-restconf:errors"} {
		if len(body[member].Error) > 0 {
			return body[member].Error[0]
		}
	}
	return nil
}

type option func(*http.Request)

func header(name, value string) option {
	return func(r *http.Request) {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

// do makes a request; an option with an empty value takes the header away.
func (b *bed) do(method, path, body string, options ...option) answer {
	b.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8181"+path, strings.NewReader(body))
	r.SetBasicAuth("admin", "admin")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, o := range options {
		o(r)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	got, err := io.ReadAll(w.Result().Body)
	require.NoError(b.t, err)
	return answer{w.Code, w.Result().Header, string(got)}
}

// everything is all that is stored, to see that nothing changed.
func (b *bed) everything() string {
	return b.do("GET", "/rests/data", "").body
}

const (
	coe      = "/restconf/config/pod:coe"
	pods     = coe + "/pods/"
	coeRFC   = "/rests/data/pod:coe"
	podsRFC  = coeRFC + "/pods="
	services = "/restconf/config/service:service-information"
)

func pod(uid string) string {
	return `{"pods":[{"uid":"` + uid + `","name":"x","interface":[{"uid":"` + uid + `","ip-address":"10.9.9.9","network-type":"VXLAN"}]}]}`
}

func podRFC(uid string) string { return strings.Replace(pod(uid), "pods", "pod:pods", 1) }

func TestDraft02(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 404, b.do("GET", coe, "").status)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	require.Equal(t, 200, b.do("PUT", pods+uid1, pod(uid1)).status)
	got := b.do("GET", pods+strings.ToUpper(uid1), "")
	require.Equal(t, 200, got.status)
	require.JSONEq(t, pod(uid1), got.body)
	require.Equal(t, "application/yang.data+json", got.header.Get("Content-Type"))
	require.JSONEq(t, `{"coe":`+pod(uid1)+`}`, b.do("GET", coe+"/", "").body)

	// The data within an entry.
	at := pods + uid1 + "/interface/" + uid1
	require.JSONEq(t, `{"interface":[{"uid":"`+uid1+`","ip-address":"10.9.9.9","network-type":"VXLAN"}]}`, b.do("GET", at, "").body)
	require.Equal(t, 204, b.do("POST", pods+uid1, `{"interface":[{"uid":"`+uid2+`"}]}`).status)
	require.Equal(t, 409, b.do("POST", pods+uid1, `{"interface":[{"uid":"`+uid2+`"}]}`).status)
	require.Equal(t, 200, b.do("PUT", at, `{"interface":{"uid":"`+uid1+`","segmentation-id":"7"}}`).status)
	require.JSONEq(t, `{"interface":[{"uid":"`+uid1+`","segmentation-id":7}]}`, b.do("GET", at, "").body)
	require.Equal(t, 200, b.do("DELETE", at, "").status)
	require.Equal(t, 404, b.do("DELETE", at, "").status)
	require.Equal(t, 200, b.do("PUT", pods+uid1+"/name", `{"name":"y"}`).status)
	require.JSONEq(t, `{"pods":[{"uid":"`+uid1+`","name":"y","interface":[{"uid":"`+uid2+`"}]}]}`, b.do("GET", pods+uid1, "").body)
	require.Equal(t, 200, b.do("DELETE", pods+uid1+"/name", "").status)
	require.Equal(t, 404, b.do("PUT", pods+uid3+"/name", `{"name":"y"}`).status)
	require.Equal(t, 400, b.do("DELETE", pods+uid1+"/uid", "").status)

	// The container.
	require.Equal(t, 200, b.do("PUT", coe, `{"coe":{"pods":[{"uid":"`+uid2+`"}]}}`).status)
	require.JSONEq(t, `{"coe":{"pods":[{"uid":"`+uid2+`"}]}}`, b.do("GET", coe, "").body)
	require.Equal(t, 200, b.do("DELETE", pods+uid2, "").status)
	require.JSONEq(t, `{"coe":{}}`, b.do("GET", coe, "").body)
	require.Equal(t, 200, b.do("DELETE", coe, "").status)
	require.Equal(t, 404, b.do("GET", coe, "").status)
	require.Equal(t, 404, b.do("DELETE", coe, "").status)
}

func TestRFC8040(t *testing.T) {
	b := newBed(t)
	missing := b.do("GET", podsRFC+uid1, "")
	require.Equal(t, 404, missing.status)
	require.Equal(t, "invalid-value", missing.tag())
	require.Equal(t, "application/yang-data+json", missing.header.Get("Content-Type"))
	require.Equal(t, "data-missing", b.do("DELETE", podsRFC+uid1, "").tag())
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	require.Equal(t, 204, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	require.JSONEq(t, podRFC(uid1), b.do("GET", podsRFC+uid1, "").body)
	require.Equal(t, 400, b.do("PUT", podsRFC+uid1, pod(uid1)).status, "names need their module")

	created := b.do("POST", "/restconf/data/pod:coe", podRFC(uid2))
	require.Equal(t, 201, created.status)
	require.Equal(t, "http://127.0.0.1:8181/restconf/data/pod:coe/pods="+uid2, created.header.Get("Location"))
	require.Equal(t, 409, b.do("POST", coeRFC, podRFC(uid2)).status)

	require.Equal(t, 204, b.do("PATCH", podsRFC+uid2, `{"pod:pods":[{"uid":"`+uid2+`","network-NS":"web"}]}`).status)
	require.JSONEq(t, `{"pod:pods":[{"uid":"`+uid2+`","name":"x","network-NS":"web","interface":[{"uid":"`+uid2+`","ip-address":"10.9.9.9","network-type":"VXLAN"}]}]}`,
		b.do("GET", podsRFC+uid2, "").body)
	require.Equal(t, 404, b.do("PATCH", podsRFC+uid3, `{"pod:pods":[{"uid":"`+uid3+`"}]}`).status)
	require.Equal(t, 204, b.do("PATCH", coeRFC, `{"pod:coe":{"pods":[{"uid":"`+uid2+`","name":"z"},{"uid":"`+uid3+`"}]}}`).status)
	require.JSONEq(t, `{"pod:coe":{"pods":[{"name":"x"},{"name":"z"},{}]}}`, b.do("GET", coeRFC+"?fields=pods(name)", "").body)

	require.JSONEq(t, `{"pod:name":"z"}`, b.do("GET", podsRFC+uid2+"/name", "").body)
	require.Equal(t, 204, b.do("PUT", podsRFC+uid2+"/name", `{"pod:name":"w"}`).status)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid3+"/name", `{"pod:name":"w"}`).status)
	require.Equal(t, 400, b.do("PUT", podsRFC+uid3+"/uid", `{"pod:uid":"`+uid1+`"}`).status)
	require.Equal(t, 204, b.do("DELETE", podsRFC+uid2+"/name", "").status)
	require.Equal(t, 404, b.do("GET", podsRFC+uid2+"/name", "").status)
	require.Equal(t, 405, b.do("DELETE", coeRFC+"/pods", "").status)

	options := b.do("OPTIONS", podsRFC+uid1, "")
	require.Equal(t, "OPTIONS, HEAD, GET, POST, PUT, DELETE, PATCH", options.header.Get("Allow"))
	require.Equal(t, "application/yang-data+json, application/yang-data+xml, application/yang-patch+json, application/yang-patch+xml", options.header.Get("Accept-Patch"))
	head := b.do("HEAD", podsRFC+uid1, "")
	require.Equal(t, 200, head.status)
	require.NotEmpty(t, head.header.Get("Content-Length"))

	root := b.do("POST", "/rests/data", `{"service:service-information":{"services":[{"uid":"`+uid1+`"}]}}`)
	require.Equal(t, 201, root.status)
	require.Equal(t, "http://127.0.0.1:8181/rests/data/service:service-information", root.header.Get("Location"))
	require.JSONEq(t, `{"ietf-restconf:data":{"ietf-restconf-monitoring:restconf-state":{},"ietf-yang-library:modules-state":{},"ietf-yang-library:yang-library":{},"pod:coe":{},"service:service-information":{}}}`, b.do("GET", "/rests/data?depth=2", "").body)
}

func TestQueries(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	whole := podRFC(uid1)
	for _, c := range []struct{ path, want string }{
		{coeRFC + "?depth=1", `{"pod:coe":{}}`},
		{coeRFC + "?depth=2", `{"pod:coe":{"pods":[{}]}}`},
		{coe + "?depth=2", `{"coe":{"pods":[{"uid":"` + uid1 + `"}]}}`},
		{coe + "?depth=3", `{"coe":{"pods":[{"uid":"` + uid1 + `","name":"x","interface":[{"uid":"` + uid1 + `"}]}]}}`},
		{podsRFC + uid1 + "?depth=unbounded&content=config&with-defaults=trim", whole},
		{podsRFC + uid1 + "?fields=uid;interface/network-type", `{"pod:pods":[{"uid":"` + uid1 + `","interface":[{"network-type":"VXLAN"}]}]}`},
		{podsRFC + uid1 + "?fields=interface(uid;pod:ip-address)", `{"pod:pods":[{"interface":[{"uid":"` + uid1 + `","ip-address":"10.9.9.9"}]}]}`},
		{podsRFC + uid1 + "?fields=interface;interface/uid", `{"pod:pods":[{"interface":[{"uid":"` + uid1 + `","ip-address":"10.9.9.9","network-type":"VXLAN"}]}]}`},
		{coeRFC + "?fields=pods/interface&depth=1", `{"pod:coe":{"pods":[{"interface":[{}]}]}}`},
		{coeRFC + "/pods", whole},
		{"/rests/data?fields=pod:coe/pods/name", `{"ietf-restconf:data":{"pod:coe":{"pods":[{"name":"x"}]}}}`},
		{"/rests/data?depth=1", `{"ietf-restconf:data":{}}`},
		{"//restconf//config///pod:coe//pods/" + uid1 + "//", pod(uid1)},
		{"/restconf/operational/pod:coe", `{"coe":` + pod(uid1) + `}`},
	} {
		got := b.do("GET", c.path, "")
		require.Equal(t, 200, got.status, "%s: %s", c.path, got.body)
		require.JSONEq(t, c.want, got.body, c.path)
	}
	pretty := b.do("GET", pods+uid1+"?prettyPrint=true&nobody=knows", "")
	require.JSONEq(t, pod(uid1), pretty.body)
	require.Contains(t, pretty.body, "\n  ")
	for _, query := range []string{
		"depth=0", "depth=65536", "depth=x", "depth=1&depth=2", "nobody=knows", "content=some", "with-defaults=never",
		"fields=", "fields=nobody", "fields=name(", "fields=name)", "fields=interface(uid", "fields=a;;b", "prettyPrint=true", "%zz=1",
		"fields=" + strings.Repeat("interface(", 50),
	} {
		got := b.do("GET", podsRFC+uid1+"?"+query, "")
		require.Equal(t, 400, got.status, query)
		require.Equal(t, "invalid-value", got.tag(), query)
	}
	require.Equal(t, 400, b.do("PUT", podsRFC+uid1+"?depth=1", podRFC(uid1)).status)
	require.Equal(t, 404, b.do("GET", podsRFC+uid1+"?content=nonconfig", "").status)
}

func TestMedia(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	for _, c := range []struct{ path, accept, want string }{
		{pods + uid1, "application/json", "application/json"},
		{pods + uid1, "application/yang.data+json", "application/yang.data+json"},
		{pods + uid1, "text/html, */*;q=0.1", "application/yang.data+json"},
		{pods + uid1, "application/*;q=0.2, application/json;q=0.9", "application/json"},
		{podsRFC + uid1, "*/*", "application/yang-data+json"},
		{podsRFC + uid1, " ", "application/yang-data+json"},
		{pods + uid1, "application/xml", "application/xml"},
		{pods + uid1, "text/*", "text/xml"},
		{pods + uid1, "application/*", "application/yang.data+json"},
		{pods + uid1, "*/*, application/yang.data+json;q=0, application/json;q=0", "application/yang.data+xml"},
		{pods + uid1, "application/json;q=0.5, text/xml;q=0.6", "text/xml"},
		{podsRFC + uid1, "application/yang-data+xml", "application/yang-data+xml"},
		{podsRFC + uid1, "application/yang-data+xml;q=0.3, application/*;q=0.2", "application/yang-data+xml"},
		{podsRFC + uid1, "application/yang.data+xml", ""},
		{pods + uid1, "application/json;q=0, application/xml;q=0", ""},
		{pods + uid1, "application/xml;q=2", ""},
		{pods + uid1, "text/html", ""},
		{pods + uid1, "application/json;q=0", ""},
		{pods + uid1, "application/json;q=many", ""},
	} {
		got := b.do("GET", c.path, "", header("Accept", c.accept))
		if c.want == "" {
			require.Equal(t, 406, got.status, c.accept)
			continue
		}
		require.Equal(t, 200, got.status, c.accept)
		require.Equal(t, c.want, got.header.Get("Content-Type"), c.accept)
	}
	for name, status := range map[string]int{
		"application/json; charset=utf-8": 200, "application/yang.data+json": 200, "text/plain": 415, "": 415, "application/yang-data+json": 415,
	} {
		require.Equal(t, status, b.do("PUT", pods+uid1, pod(uid1), header("Content-Type", name)).status, name)
	}
}

func TestReadOnlyTreesAndState(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.ReadOnly["elan:elan-instances"] = tree.ReadOnly{Says: "it is computed from pods", Source: fixed{
			schema:      c.Schema,
			config:      `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"10.0.0.1:default"},{"elan-instance-name":"10.0.0.2:default"}]}}`,
			operational: `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"10.0.0.1:default"}]}}`,
		}}
		c.ReadOnly["coe-status:status"] = tree.ReadOnly{Says: "it is this program's state", Source: fixed{
			schema: c.Schema, operational: `{"coe-status:status":{"in-sync":true}}`,
		}}
		c.State = map[string]tree.Source{"dhcp_allocation_pool:dhcp_allocation_pool": fixed{
			schema: c.Schema,
			operational: `{"dhcp_allocation_pool:dhcp_allocation_pool":{"network":[{"network-id":"default","allocations":[
				{"subnet":"10.1.0.0/24","allocation-instance":[{"mac":"0a:58:0a:01:00:03","allocated-ip":"10.1.0.3"}]}]}]}}`,
		}}
	})
	require.Contains(t, b.do("GET", "/restconf/config/elan:elan-instances", "").body, "10.0.0.2:default")
	require.NotContains(t, b.do("GET", "/restconf/operational/elan:elan-instances", "").body, "10.0.0.2:default")
	require.JSONEq(t, `{"elan:elan-instance":[{"elan-instance-name":"10.0.0.2:default"}]}`,
		b.do("GET", "/rests/data/elan:elan-instances/elan-instance=10.0.0.2:default", "").body)
	require.Equal(t, 404, b.do("GET", "/restconf/config/coe-status:status", "").status)
	require.JSONEq(t, `{"status":{"in-sync":true}}`, b.do("GET", "/restconf/operational/coe-status:status", "").body)
	require.JSONEq(t, `{"coe-status:status":{"in-sync":true}}`, b.do("GET", "/rests/data/coe-status:status", "").body)
	for _, path := range []string{"/restconf/config/elan:elan-instances", "/rests/data/elan:elan-instances", "/restconf/operational/pod:coe", "/rests/data/coe-status:status"} {
		for _, method := range []string{"PUT", "POST", "DELETE"} {
			got := b.do(method, path, `{}`)
			require.Equal(t, 405, got.status, path)
			require.Equal(t, "operation-not-supported", got.tag())
			require.Equal(t, "OPTIONS, HEAD, GET", got.header.Get("Allow"))
		}
	}
	require.Contains(t, b.do("DELETE", "/restconf/config/elan:elan-instances", "").body, "it is computed from pods")

	const pool = `{"subnet":"10.1.0.0/24","allocate-from":"10.1.0.2","allocate-to":"10.1.0.9"}`
	const dhcp = "dhcp_allocation_pool:dhcp_allocation_pool"
	require.Equal(t, 201, b.do("PUT", "/restconf/config/"+dhcp+"/network/default", `{"network":[{"network-id":"default","allocation-pool":[`+pool+`]}]}`).status)
	require.JSONEq(t, `{"dhcp_allocation_pool":{"network":[{"network-id":"default","allocation-pool":[`+pool+`]}]}}`, b.do("GET", "/restconf/config/"+dhcp, "").body)
	const lease = `{"subnet":"10.1.0.0/24","allocation-instance":[{"mac":"0a:58:0a:01:00:03","allocated-ip":"10.1.0.3"}]}`
	all := `{"network-id":"default","allocations":[` + lease + `],"allocation-pool":[` + pool + `]}`
	require.JSONEq(t, `{"dhcp_allocation_pool":{"network":[`+all+`]}}`, b.do("GET", "/restconf/operational/"+dhcp, "").body)
	require.JSONEq(t, `{"dhcp_allocation_pool:network":[`+all+`]}`, b.do("GET", "/rests/data/"+dhcp+"/network=default", "").body)
	require.JSONEq(t, `{"dhcp_allocation_pool:network":[{"network-id":"default","allocations":[`+lease+`]}]}`, b.do("GET", "/rests/data/"+dhcp+"/network=default?content=nonconfig", "").body)
	require.JSONEq(t, `{"dhcp_allocation_pool:network":[{"network-id":"default","allocation-pool":[`+pool+`]}]}`, b.do("GET", "/rests/data/"+dhcp+"/network=default?content=config", "").body)
	state := b.do("PUT", "/rests/data/"+dhcp+"/network=default", `{"dhcp_allocation_pool:network":[`+all+`]}`)
	require.Equal(t, 400, state.status)
	require.Contains(t, state.path(), "allocations")
	require.Equal(t, 405, b.do("DELETE", "/rests/data/"+dhcp+"/network=default/allocations=10.1.0.0%2F24", "").status)
}

func TestNestedUnits(t *testing.T) {
	b := newBed(t)
	const k8s = "/rests/data/k8s:k8s"
	policy := func(uid string) string { return `{"k8s:network-policy":[{"uuid":"` + uid + `","name":"p"}]}` }
	require.Equal(t, 201, b.do("PUT", k8s+"/network-policies/network-policy="+uid1, policy(uid1)).status)
	require.JSONEq(t, `{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"`+uid1+`","name":"p"}]}}}`, b.do("GET", k8s, "").body)
	require.Equal(t, 201, b.do("POST", k8s+"/network-policies", policy(uid2)).status)
	require.Equal(t, 409, b.do("POST", k8s, `{"k8s:network-policies":{"network-policy":[{"uuid":"`+uid3+`"}]}}`).status)
	require.Equal(t, 204, b.do("PUT", k8s+"/network-policies", `{"k8s:network-policies":{"network-policy":[{"uuid":"`+uid3+`"}]}}`).status)
	require.JSONEq(t, `{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"`+uid3+`"}]}}}`, b.do("GET", k8s, "").body)
	require.Equal(t, 204, b.do("DELETE", k8s+"/network-policies/network-policy="+uid3, "").status)
	require.JSONEq(t, `{"k8s:k8s":{"network-policies":{}}}`, b.do("GET", k8s, "").body)
	require.Equal(t, 204, b.do("DELETE", k8s+"/network-policies", "").status)
	require.JSONEq(t, `{"k8s:k8s":{}}`, b.do("GET", k8s, "").body)
	require.Equal(t, 201, b.do("POST", k8s, `{"k8s:network-policies":{"network-policy":[{"uuid":"`+uid1+`"}]}}`).status)
	require.Equal(t, 204, b.do("PATCH", k8s, `{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"`+uid1+`","name":"q"}]}}}`).status)
	require.JSONEq(t, `{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"`+uid1+`","name":"q"}]}}}`, b.do("GET", k8s, "").body)
	require.Equal(t, 204, b.do("DELETE", k8s, "").status)
	require.Equal(t, 404, b.do("GET", k8s, "").status)
}

func TestListsWithoutKeys(t *testing.T) {
	b := newBed(t)
	at := services + "/services/" + uid1
	require.Equal(t, 201, b.do("PUT", at, `{"services":[{"uid":"`+uid1+`"}]}`).status)
	require.Equal(t, 204, b.do("POST", at, `{"service-ports":[{"port":80},{"port":81}],"external-ip-address":["10.0.0.1"]}`).status)
	require.Equal(t, 204, b.do("POST", at, `{"service-ports":[{"port":82}],"external-ip-address":["10.0.0.2"]}`).status)
	require.Equal(t, 409, b.do("POST", at, `{"external-ip-address":["10.0.0.1"]}`).status)
	require.JSONEq(t, `{"services":[{"uid":"`+uid1+`","external-ip-address":["10.0.0.1","10.0.0.2"],"service-ports":[{"port":80},{"port":81},{"port":82}]}]}`, b.do("GET", at, "").body)
	value := "/rests/data/service:service-information/services=" + uid1 + "/external-ip-address="
	require.Equal(t, 204, b.do("DELETE", value+"10.0.0.1", "").status)
	require.Equal(t, 404, b.do("DELETE", value+"10.0.0.1", "").status)
	require.Equal(t, 201, b.do("PUT", value+"10.0.0.3", `{"service:external-ip-address":["10.0.0.3"]}`).status)
	require.JSONEq(t, `{"service:external-ip-address":["10.0.0.3"]}`, b.do("GET", value+"10.0.0.3", "").body)
}

func TestChecks(t *testing.T) {
	const dhcp = "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool"
	b := newBed(t, func(c *Config) {
		c.Checks = map[string]func([]*yang.Data) error{
			"dhcp_allocation_pool:dhcp_allocation_pool": func(entries []*yang.Data) error {
				if len(entries) > 2 {
					return errors.New("two are enough")
				}
				return nil
			},
		}
		c.EntryChecks = map[string]func(*yang.Data) error{
			"pod:coe/pods": func(entry *yang.Data) error {
				if strings.Contains(entry.Leaf("name"), ":") {
					return &yang.Error{Type: "application", Tag: "invalid-value", Path: "name", Message: "no colon in a name"}
				}
				if entry.Leaf("name") == "x" {
					return errors.New("no such pod")
				}
				return nil
			},
		}
	})
	got := b.do("PUT", pods+uid1, `{"pods":[{"uid":"`+uid1+`","name":"a:b"}]}`)
	require.Equal(t, 400, got.status)
	require.Equal(t, "/pod:coe/pods[uid='"+uid1+"']/name", got.path())
	require.Equal(t, "/pod:coe/pods[uid='"+uid1+"']", b.do("PUT", pods+uid1, pod(uid1)).path())
	require.Equal(t, 404, b.do("GET", coe, "").status)

	network := func(id string) string { return `{"network":[{"network-id":"` + id + `"}]}` }
	statuses := make(chan int, 8)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		go func() { statuses <- b.do("PUT", dhcp+"/network/"+id, network(id)).status }()
	}
	made := map[int]int{}
	for range 8 {
		made[<-statuses]++
	}
	require.Equal(t, map[int]int{201: 2, 400: 6}, made)
	all := b.do("PUT", dhcp, `{"dhcp_allocation_pool":{"network":[{"network-id":"a"},{"network-id":"b"},{"network-id":"c"}]}}`)
	require.Equal(t, 400, all.status)
	require.Equal(t, 200, b.do("PUT", dhcp, `{"dhcp_allocation_pool":{"network":[{"network-id":"y"},{"network-id":"z"}]}}`).status)
	require.Equal(t, 200, b.do("DELETE", dhcp+"/network/y", "").status)
	require.Equal(t, 201, b.do("PUT", dhcp+"/network/x", network("x")).status)
	require.Equal(t, 200, b.do("DELETE", dhcp, "").status)
	require.Equal(t, 404, b.do("GET", dhcp, "").status)

	_, err := New(Config{Config: tree.Config{Schema: b.cfg.Schema, EntryChecks: map[string]func(*yang.Data) error{"pod:nobody": nil}}, Auth: FixedUsers{}})
	require.ErrorContains(t, err, "pod:nobody")
}
