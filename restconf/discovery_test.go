package restconf

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

func TestDiscovery(t *testing.T) {
	b := newBed(t)
	const space = `xmlns="urn:ietf:params:xml:ns:yang:ietf-restconf"`
	for _, c := range []struct{ path, accept, mediaType, body string }{
		{"/.well-known/host-meta", "", "application/xrd+xml", `<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0"><Link rel="restconf" href="/rests"/></XRD>`},
		{"/.well-known/host-meta", "application/xrd+xml", "application/xrd+xml", discovery.HostMetaXML},
		{"/.well-known/host-meta", "application/json", "application/json", `{"links":[{"rel":"restconf","href":"/rests"}]}`},
		{"/.well-known/host-meta.json", "*/*", "application/json", discovery.HostMetaJSON},
		{"/rests", "", "application/yang-data+json", `{"ietf-restconf:restconf":{"data":{},"operations":{},"yang-library-version":"2019-01-04"}}`},
		{"/rests/", "application/*", "application/yang-data+json", `{"ietf-restconf:restconf":{"data":{},"operations":{},"yang-library-version":"2019-01-04"}}`},
		{"/rests?depth=1", "", "application/yang-data+json", `{"ietf-restconf:restconf":{}}`},
		{"/rests?depth=2", "", "application/yang-data+json", `{"ietf-restconf:restconf":{"data":{},"operations":{},"yang-library-version":"2019-01-04"}}`},
		{"/rests?fields=data;ietf-restconf:yang-library-version", "", "application/yang-data+json", `{"ietf-restconf:restconf":{"data":{},"yang-library-version":"2019-01-04"}}`},
		{"/rests?fields=operations", "application/yang-data+xml", "application/yang-data+xml", `<restconf ` + space + `><operations></operations></restconf>`},
		{"//restconf//", "application/yang-data+xml", "application/yang-data+xml",
			`<restconf ` + space + `><data></data><operations></operations><yang-library-version>2019-01-04</yang-library-version></restconf>`},
		{"/rests/yang-library-version", "", "application/yang-data+json", `{"ietf-restconf:yang-library-version":"2019-01-04"}`},
		{"/restconf/yang-library-version", "application/json;q=0.2, text/xml", "text/xml", `<yang-library-version ` + space + `>2019-01-04</yang-library-version>`},
		{"/rests/operations", "", "application/yang-data+json", `{"ietf-restconf:operations":{}}`},
		{"/rests/operations", "application/xml", "application/xml", `<operations ` + space + `></operations>`},
		{"/restconf/operations", "", "application/yang.api+json", `{"operations":{"sal-remote:create-data-change-event-subscription":[null]}}`},
		{"/restconf/operations/", "application/yang.api+xml", "application/yang.api+xml", `<operations ` + space + `><create-data-change-event-subscription xmlns="` + salRemote +
			`"></create-data-change-event-subscription></operations>`},
		{"/restconf/modules/module/pod/2017-06-11", "", "application/yang.api+json",
			`{"module":[{"name":"pod","revision":"2017-06-11","namespace":"urn:opendaylight:coe:northbound:pod"}]}`},
		{"/restconf/modules/module/pod/2017-06-11?prettyPrint=true", "text/xml", "text/xml",
			`<module ` + space + `><name>pod</name><revision>2017-06-11</revision><namespace>urn:opendaylight:coe:northbound:pod</namespace></module>`},
		{"/restconf/streams/stream/changes=pod:coe", "application/xml", "application/xml",
			`<stream ` + space + `><name>changes=pod:coe</name><description>every change of the data of a top container</description>` +
				`<replay-support>true</replay-support><replay-log-creation-time></replay-log-creation-time><events></events></stream>`},
		{"/restconf/streams/stream/changes%3Dpod:coe/", "", "application/yang.api+json",
			`{"stream":[{"name":"changes=pod:coe","description":"every change of the data of a top container","replay-support":true,"replay-log-creation-time":"","events":[null]}]}`},
	} {
		got := b.do("GET", c.path, "", header("Accept", c.accept))
		require.Equal(t, 200, got.status, "%s %s: %s", c.path, c.accept, got.body)
		require.Equal(t, c.mediaType, got.header.Get("Content-Type"), c.path)
		require.Equal(t, c.body, got.body, c.path)
		head := b.do("HEAD", c.path, "", header("Accept", c.accept))
		require.Equal(t, 200, head.status)
		require.Equal(t, got.header.Get("Content-Length"), head.header.Get("Content-Length"))
	}
	require.Contains(t, b.do("GET", "/restconf/modules", "").body, `{"name":"pod","revision":"2017-06-11","namespace":"urn:opendaylight:coe:northbound:pod"}`)
	require.Contains(t, b.do("GET", "/restconf/streams", "").body, `{"name":"changes=dhcp_allocation_pool:dhcp_allocation_pool","description":`)
}

func TestDiscoveryRefusals(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		method, path, accept string
		status               int
		Allow, member        string
	}{
		{"PUT", "/rests", "", 405, "OPTIONS, HEAD, GET", "ietf-restconf:errors"},
		{"DELETE", "/.well-known/host-meta", "", 405, "OPTIONS, HEAD, GET", "ietf-restconf:errors"},
		{"POST", "/restconf/modules", "", 405, "OPTIONS, HEAD, GET", "errors"},
		{"OPTIONS", "/restconf/modules", "", 200, "OPTIONS, HEAD, GET", ""},
		{"OPTIONS", "/rests/operations", "", 200, "OPTIONS, HEAD, GET", ""},
		{"GET", "/rests", "text/html", 406, "", "ietf-restconf:errors"},
		{"GET", "/restconf/streams", "image/png", 406, "", "errors"},
		{"GET", "/rests?depth=0", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/rests?depth=1&depth=1", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/rests?content=all", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/rests?fields=nothing", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/rests?fields=", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/rests/operations?depth=1", "", 400, "", "ietf-restconf:errors"},
		{"GET", "/restconf/modules/module/pod/1970-01-01", "", 404, "", "errors"},
		{"GET", "/restconf/streams/stream/none", "", 404, "", "errors"},
		{"GET", "/restconf/streams/stream/none/events", "text/event-stream", 404, "", "errors"},
		{"GET", "/rests/modules/pod", "", 404, "", "ietf-restconf:errors"},
		{"POST", "/rests/data/ietf-yang-library:yang-library", "", 405, "OPTIONS, HEAD, GET", "ietf-restconf:errors"},
	} {
		got := b.do(c.method, c.path, "", header("Accept", c.accept))
		require.Equal(t, c.status, got.status, "%s %s: %s", c.method, c.path, got.body)
		require.Equal(t, c.Allow, got.header.Get("Allow"), c.path)
		if c.member != "" {
			require.Contains(t, got.body, `"`+c.member+`"`, c.path)
		}
	}
	require.Equal(t, 401, b.do("GET", "/.well-known/host-meta", "", func(r *http.Request) { r.Header.Del("Authorization") }).status)
	asXML := b.do("GET", "/rests/modules/nothing", "", header("Accept", "application/yang-data+xml"))
	require.Equal(t, "application/yang-data+xml", asXML.header.Get("Content-Type"))
}

const libraryPath = "/rests/data/ietf-yang-library:yang-library"

// The modules of the library can be downloaded, and are those that the program was built with.
func TestSourcesOfModules(t *testing.T) {
	b := newBed(t)
	var body map[string]struct {
		ID  string `json:"module-set-id"`
		All []struct {
			Name, Revision, Schema, Namespace string
			Conformance                       string `json:"conformance-type"`
		} `json:"module"`
	}
	got := b.do("GET", "/rests/data/ietf-yang-library:modules-state", "")
	require.NoError(t, json.Unmarshal([]byte(got.body), &body), got.body)
	state := body["ietf-yang-library:modules-state"]
	require.Len(t, state.All, len(b.modules))
	require.Contains(t, b.do("GET", libraryPath+"/content-id", "").body, state.ID)
	for _, m := range state.All {
		require.Contains(t, []string{"implement", "import"}, m.Conformance)
		require.True(t, strings.HasPrefix(m.Schema, "http://127.0.0.1:8181/rests/modules/"), m.Schema)
		m.Schema = strings.TrimPrefix(m.Schema, "http://127.0.0.1:8181")
		source := b.do("GET", m.Schema, "")
		require.Equal(t, 200, source.status, m.Schema)
		require.Equal(t, "application/yang", source.header.Get("Content-Type"))
		if module := b.cfg.Schema.Module(m.Name); module != nil {
			require.Equal(t, module.Text, source.body)
		}
		require.Contains(t, source.body, "revision "+m.Revision)
		require.Contains(t, source.body, `namespace "`+m.Namespace+`"`)
		require.Equal(t, 401, b.do("GET", m.Schema, "", func(r *http.Request) { r.Header.Del("Authorization") }).status)
	}
	require.Equal(t, 406, b.do("GET", "/rests/modules/pod@2017-06-11.yang", "", header("Accept", "application/json")).status)
}

// Modules of messages are listed in every form: as implemented, except the one whose
// grouping and extension another module uses.
func TestModulesOfMessages(t *testing.T) {
	b := newBed(t)
	for _, m := range b.modules {
		if b.cfg.Schema.Module(m.Name) != nil {
			continue
		}
		conformance, list := "implement", "module"
		if !m.Implemented {
			conformance, list = "import", "import-only-module"
		}
		listed := b.do("GET", "/rests/data/ietf-yang-library:modules-state/module="+m.Name+","+m.Revision+"/conformance-type", "")
		require.JSONEq(t, `{"ietf-yang-library:conformance-type":"`+conformance+`"}`, listed.body)
		key := m.Name
		if !m.Implemented {
			key += "," + m.Revision
		}
		require.Equal(t, 200, b.do("GET", libraryPath+"/module-set=coe-bridge/"+list+"="+key, "").status, m.Name)
		require.Equal(t, 200, b.do("GET", "/restconf/modules/module/"+m.Name+"/"+m.Revision, "").status, m.Name)
	}
}

func TestContentID(t *testing.T) {
	one, err := yang.Load()
	require.NoError(t, err)
	other, err := yang.Load()
	require.NoError(t, err)
	require.Equal(t, discovery.ContentID(one.Modules), discovery.ContentID(other.Modules))
	other.Modules[0].Text += "\n"
	require.NotEqual(t, discovery.ContentID(one.Modules), discovery.ContentID(other.Modules))
}

// libyang reads the library, in both forms and encodings, and builds from it and from
// the sources that are served the schema by which it reads what is served.
func TestLibraryPassesYanglint(t *testing.T) {
	if testing.Short() {
		t.Skip("needs yanglint")
	}
	lint, err := exec.LookPath("yanglint")
	require.NoError(t, err, "install the Debian package libyang-tools")
	b := newBed(t)
	dir := t.TempDir()
	save := func(name, body string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(body), 0o600))
		return name
	}
	for _, found := range regexp.MustCompile(`/rests/modules/[^"]*`).FindAllString(b.do("GET", libraryPath, "").body, -1) {
		save(filepath.Base(found), b.do("GET", found, "").body)
	}
	run := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), lint, args...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		require.Empty(t, string(out), args)
	}
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	inXML := func(path string) string {
		body := b.do("GET", path, "", header("Accept", "application/yang-data+xml")).body
		return strings.TrimSuffix(strings.TrimPrefix(body, `<data xmlns="`+wire.Space+`">`), "</data>")
	}
	const both = "/rests/data?fields=ietf-yang-library:yang-library;ietf-yang-library:modules-state"
	inJSON := strings.TrimSuffix(strings.TrimPrefix(b.do("GET", both, "").body, `{"ietf-restconf:data":`), "}")
	library := save("library.json", inJSON)
	for _, file := range []string{library, save("library.xml", inXML(both))} {
		run("-p", dir, "-t", "data", filepath.Join(dir, "ietf-yang-library@2019-01-04.yang"), filepath.Join(dir, "ietf-datastores@2018-02-14.yang"), file)
		run("-p", dir, "-Y", file, "-t", "data", save("everything.xml", inXML("/rests/data")))
	}
}

// A client may say what it likes where the server is.
func TestLibraryForAnyHost(t *testing.T) {
	b := newBed(t)
	for _, host := range []string{`a"b`, `a\b`, "a<b>&c", "[::1]:8181"} {
		for _, top := range []string{discovery.LibraryTop, discovery.ModulesStateTop} {
			got := b.do("GET", "/rests/data/"+top, "", func(r *http.Request) { r.Host = host })
			require.Equal(t, 200, got.status, got.body)
			var all any
			require.NoError(t, json.Unmarshal([]byte(got.body), &all))
			require.Contains(t, fmt.Sprint(all), "http://"+host+discovery.ModulesPath+"pod@")
		}
	}
}
