package restconf

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// contract is the OpenAPI document of a server as a stranger's tools read it.
type contract struct {
	bed    *bed
	doc    *openapi3.T
	router routers.Router
}

func newContract(t *testing.T) *contract {
	b := newBed(t)
	got := b.do("GET", "/openapi.json", "")
	require.Equal(t, 200, got.status)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	doc, err := openapi3.NewLoader().LoadFromData([]byte(got.body))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return &contract{b, doc, router}
}

// holds makes a request, and checks that it and its answer are as the document says.
func (c *contract) holds(t *testing.T, status int, method, path, body string, options ...option) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, o := range options {
		o(r)
	}
	route, parameters, err := c.router.FindRoute(r)
	require.NoError(t, err, path)
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	require.NoError(t, openapi3filter.ValidateRequest(t.Context(), in), "%s %s", method, path)
	got := c.bed.do(method, path, body, options...)
	require.Equal(t, status, got.status, got.body)
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: got.status, Header: got.header,
		Body: io.NopCloser(bytes.NewReader([]byte(got.body))), Options: in.Options,
	}), "%s %s: %s", method, path, got.body)
}

func TestOpenAPIIsWhatIsServed(t *testing.T) {
	c := newContract(t)
	const (
		pod   = `{"uid":"` + uid1 + `","name":"a","host-ip-address":"192.0.2.1","interface":[{"uid":"` + uid1 + `","ip-address":"10.0.0.5"}]}`
		entry = "/rests/data/pod:coe/pods=" + uid1
		draft = "/restconf/config/pod:coe/pods/" + uid1
	)
	c.holds(t, 404, "GET", entry, "")
	c.holds(t, 201, "PUT", entry, `{"pod:pods":[`+pod+`]}`)
	c.holds(t, 204, "PUT", entry, `{"pod:pods":[`+pod+`]}`)
	c.holds(t, 409, "POST", "/rests/data/pod:coe", `{"pod:pods":[`+pod+`]}`)
	c.holds(t, 200, "GET", entry, "")
	c.holds(t, 200, "GET", entry+"?depth=1&fields=name&content=config", "")
	c.holds(t, 200, "GET", entry+"/interface="+uid1, "")
	c.holds(t, 200, "GET", "/rests/data/pod:coe/pods", "")
	c.holds(t, 200, "GET", "/rests/data/pod:coe", "")
	c.holds(t, 200, "GET", "/rests/data", "")
	c.holds(t, 204, "PATCH", entry, `{"pod:pods":[{"uid":"`+uid1+`","name":"b"}]}`)
	c.holds(t, 204, "PATCH", "/rests/data", `{"ietf-restconf:data":{"pod:coe":{"pods":[{"uid":"`+uid1+`","name":"c"}]}}}`)
	c.holds(t, 200, "PATCH", "/rests/data?dry-run=true", `{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[{"edit-id":"1","operation":"delete","target":"/pod:coe"}]}}`,
		header("Content-Type", "application/yang-patch+json"))
	c.holds(t, 204, "PUT", "/rests/data", `{"ietf-restconf:data":{"pod:coe":{"pods":[`+pod+`]}}}`)
	c.holds(t, 204, "DELETE", entry, "")
	c.holds(t, 404, "DELETE", entry, "")
	c.holds(t, 204, "POST", "/restconf/config/pod:coe", `{"pods":[`+pod+`]}`)
	c.holds(t, 200, "PUT", draft, `{"pods":[`+pod+`]}`)
	c.holds(t, 200, "GET", draft, "")
	c.holds(t, 200, "GET", "/restconf/operational/pod:coe", "")
	c.holds(t, 200, "DELETE", draft, "")
	c.holds(t, 404, "GET", draft, "")
	c.holds(t, 201, "PUT", "/rests/data/dhcp_allocation_pool:dhcp_allocation_pool/network=n", `{"dhcp_allocation_pool:network":[{"network-id":"n",
		"allocation-pool":[{"subnet":"192.168.10.0/24","allocate-from":"192.168.10.3","allocate-to":"192.168.10.50","gateway":"192.168.10.2"}]}]}`)
	c.holds(t, 200, "GET", "/rests/data/dhcp_allocation_pool:dhcp_allocation_pool", "")
	c.holds(t, 200, "GET", "/restconf/modules", "")
	c.holds(t, 200, "GET", "/rests/data/ietf-yang-library:yang-library", "")
	c.holds(t, 200, "GET", "/rests/data/ietf-yang-library:modules-state", "")
	c.holds(t, 200, "GET", "/rests/data/ietf-restconf-monitoring:restconf-state", "")
}

// Every container and list of the schema has its paths, and what can't be written has
// GET alone.
func TestOpenAPIHasEveryNode(t *testing.T) {
	c := newContract(t)
	require.Equal(t, "3.1.0", c.doc.OpenAPI)
	nodes := 0
	for _, module := range c.bed.cfg.Schema.Modules {
		for _, top := range module.Top {
			path := "/rests/data/" + wire.TopName(top)
			item := c.doc.Paths.Value(path)
			require.NotNil(t, item, path)
			require.NotNil(t, item.Get, path)
			require.Equal(t, c.bed.tree.Writable(top), item.Put != nil, path)
			require.Equal(t, c.bed.tree.Writable(top), item.Delete != nil, path)
			require.Nil(t, c.doc.Paths.Value("/restconf/operational/"+wire.TopName(top)).Put)
			nodes += count(top)
		}
	}
	held := 0
	for name := range c.doc.Components.Schemas {
		if strings.Contains(name, ".") && !strings.HasSuffix(name, ".write") && !strings.HasPrefix(name, "errors.") {
			held++
		}
	}
	require.Equal(t, nodes, held)
	ids := map[string]bool{}
	for _, item := range c.doc.Paths.Map() {
		for _, op := range item.Operations() {
			require.False(t, ids[op.OperationID], op.OperationID)
			ids[op.OperationID] = true
		}
	}
}

// count is the number of containers and lists at and below n.
func count(n *yang.Node) int {
	if tree.IsLeaf(n) {
		return 0
	}
	total := 1
	for _, child := range n.Children {
		total += count(child)
	}
	return total
}

func TestAPIDocumentsAreKept(t *testing.T) {
	b := newBed(t)
	first := b.do("GET", "/openapi.json", "")
	tag := first.header.Get("ETag")
	require.NotEmpty(t, tag)
	require.Equal(t, "private, no-cache", first.header.Get("Cache-Control"))
	require.Equal(t, 304, b.do("GET", "/openapi.json", "", header("If-None-Match", tag)).status)
	require.Equal(t, 412, b.do("GET", "/openapi.json", "", header("If-Match", `"x"`)).status)
	require.Equal(t, first.body, b.do("GET", "/apidoc/openapi3/single", "").body)
	require.Equal(t, first.body, newBed(t).do("GET", "/openapi.json", "").body, "equal servers have equal documents")
	page := b.do("GET", "/apidoc/explorer/index.html", "")
	require.Equal(t, 200, page.status)
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, page.body, "://", "nothing comes from elsewhere")
	require.Equal(t, 405, b.do("POST", "/apidoc", "{}").status)
	require.Equal(t, 200, b.do("OPTIONS", "/apidoc", "").status)
	require.Equal(t, 401, b.do("GET", "/apidoc/", "", header("Authorization", "")).status)
}
