package restconf

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// The bounds of what a body of the largest size may cost.
const (
	hostileTime   = time.Minute            // of processors
	hostileMemory = 100 * DefaultBodyLimit // allocated in all, most of it not at once
)

// repeated is a text of parts, up to the largest body, within begin and end.
func repeated(begin, part, end string) string {
	n := (DefaultBodyLimit - len(begin) - len(end)) / len(part)
	return begin + strings.Repeat(part, n) + end
}

// numbered is as repeated, of parts with a number of seven digits each.
func numbered(begin, part, end string) string {
	var b strings.Builder
	b.WriteString(begin)
	for i := 0; b.Len() < DefaultBodyLimit-len(part)-len(end)-8; i++ {
		fmt.Fprintf(&b, part, i)
	}
	return b.String() + end
}

// Bodies as large as they may be, made to cost much: a million members, as many entries or
// edits, nesting without end, entities. Each is refused, in bounded time and memory, over
// the connection that clients have, and changes nothing.
func TestHostileBodies(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Timeout = 10 * time.Minute })
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	before := b.everything()
	at := served(t, b.Server)
	const (
		inJSON, inXML   = "application/yang-data+json", "application/yang-data+xml"
		patchJSON       = "application/yang-patch+json"
		patchXML        = "application/yang-patch+xml"
		ofPods          = `<coe xmlns="urn:opendaylight:coe:northbound:pod">`
		ofPatch, ofEdit = `{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[`, `{"edit-id":"%07d","operation":"remove","target":"/x"},`
	)
	for _, c := range []struct {
		name, method, media, body string
		status                    int
	}{
		{"a million members", "PUT", inJSON, numbered(`{"pod:coe":{`, `"%07d":0,`, `"x":0}}`), 400},
		{"a million members at the top", "PUT", inJSON, numbered(`{`, `"%07d":0,`, `"x":0}`), 400},
		{"as many of one name", "PUT", inJSON, repeated(`{"pod:coe":{`, `"pods":[],`, `"pods":[]}}`), 400},
		{"entries without keys", "PUT", inJSON, repeated(`{"pod:coe":{"pods":[`, `{},`, `{}]}}`), 400},
		{"one entry again and again", "POST", inJSON, repeated(`{"pod:pods":[`, `{"uid":"`+uid2+`"},`, `{"uid":"`+uid2+`"}]}`), 400},
		{"values of a leaf-list", "PUT", inJSON, repeated(`{"pod:coe":{"pods":[{"uid":"`+uid2+`","name":[`, `0,`, `0]}]}}`), 400},
		{"nested arrays", "PUT", inJSON, repeated("", "[", ""), 400},
		{"nested arrays where a value is wanted", "PUT", inJSON, repeated(`{"pod:coe":`, "[", ""), 400},
		{"nested objects", "PUT", inJSON, repeated("", `{"pod:coe":`, "0"), 400},
		{"a number without end", "PUT", inJSON, repeated(`{"pod:coe":`, "9", "}"), 400},
		{"a string without end", "PUT", inJSON, repeated(`{"pod:coe":"`, "x", ""), 400},
		{"escapes", "PUT", inJSON, repeated(`{"pod:coe":{"`, `\u0061`, `":0}}`), 400},
		{"elements", "PUT", inXML, repeated(ofPods, "<x/>", "</coe>"), 400},
		{"entries without keys in XML", "PUT", inXML, repeated(ofPods, "<pods/>", "</coe>"), 400},
		{"nested elements", "PUT", inXML, repeated(ofPods, "<pods>", ""), 400},
		{"nested unknown elements", "PUT", inXML, repeated("", "<a>", ""), 400},
		{"attributes", "PUT", inXML, numbered(`<coe`, ` a%07d=""`, "/>"), 400},
		{"namespaces", "PUT", inXML, numbered(`<coe xmlns="urn:opendaylight:coe:northbound:pod"`, ` xmlns:a%07d="urn:a"`, "><a0000001:x/></coe>"), 400},
		{"entities", "PUT", inXML, repeated(`<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>`+ofPods, "&b;", "</coe>"), 400},
		{"edits", "PATCH", patchJSON, numbered(ofPatch, ofEdit, `{"edit-id":"x","operation":"remove","target":"/x"}]}}`), 413},
		{"edits of one name", "PATCH", patchJSON, repeated(ofPatch, `{"edit-id":"x"},`, `{}]}}`), 413},
		{"a patch of nested arrays", "PATCH", patchJSON, repeated(ofPatch, "[", ""), 400},
		{"a patch of members", "PATCH", patchJSON, numbered(`{"ietf-yang-patch:yang-patch":{`, `"%07d":0,`, `"x":0}}`), 400},
		{"a value of nested arrays", "PATCH", patchJSON, repeated(ofPatch+`{"edit-id":"x","operation":"create","target":"/","value":`, "[", ""), 400},
		{"edits in XML", "PATCH", patchXML, repeated(`<yang-patch xmlns="`+wire.PatchSpace+`"><patch-id>p</patch-id>`, "<edit/>", "</yang-patch>"), 413},
		{"a patch of nested elements", "PATCH", patchXML, repeated(`<yang-patch xmlns="`+wire.PatchSpace+`">`, "<edit>", ""), 400},
		{"a value of nested elements", "PATCH", patchXML, repeated(`<yang-patch xmlns="`+wire.PatchSpace+`"><patch-id>p</patch-id><edit><edit-id>x</edit-id><operation>create</operation><target>/</target><value>`, "<a>", ""), 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.LessOrEqual(t, len(c.body), DefaultBodyLimit+200)
			r, err := http.NewRequestWithContext(t.Context(), c.method, at+coeRFC, strings.NewReader(c.body))
			require.NoError(t, err)
			r.SetBasicAuth("admin", "admin")
			r.Header.Set("Content-Type", c.media)
			var begun, ended runtime.MemStats
			runtime.ReadMemStats(&begun)
			begin := processorTime(t)
			resp, err := http.DefaultTransport.RoundTrip(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			took := processorTime(t) - begin
			runtime.ReadMemStats(&ended)
			t.Logf("%s, %d MiB, %d bytes answered", took, (ended.TotalAlloc-begun.TotalAlloc)>>20, len(body))
			require.Equal(t, c.status, resp.StatusCode, string(body[:min(len(body), 500)]))
			require.Less(t, took, hostileTime)
			require.Less(t, ended.TotalAlloc-begun.TotalAlloc, uint64(hostileMemory))
			require.Less(t, len(body), 1<<20)
		})
	}
	require.Equal(t, before, b.everything())
	for name, path := range map[string]string{
		"parentheses": coeRFC + "?fields=" + strings.Repeat("pods(", 12000),
		"names":       coeRFC + "?fields=" + strings.Repeat("pods;", 12000),
		"parameters":  coeRFC + "?" + strings.Repeat("&a=b", 15000),
		"keys":        coeRFC + "/pods=" + strings.Repeat(",", 60000),
		"segments":    coeRFC + strings.Repeat("/pods", 12000),
	} {
		begin := processorTime(t)
		got := b.do("GET", path, "")
		require.Contains(t, []int{200, 400}, got.status, name)
		require.Less(t, processorTime(t)-begin, hostileTime, name)
	}
}

// How deep elements are nested is counted before anything is made of them.
func TestNestingIsBounded(t *testing.T) {
	b := newBed(t)
	value := func(inner string) string {
		return `<yang-patch xmlns="` + wire.PatchSpace + `"><patch-id>p</patch-id><edit><edit-id>1</edit-id><operation>create</operation>` +
			`<target>/</target><value>` + inner + `</value></edit></yang-patch>`
	}
	whole := func(inner string) string { return `<data xmlns="` + wire.Space + `">` + inner + `</data>` }
	nested := func(depth int) string { return strings.Repeat("<a>", depth) + strings.Repeat("</a>", depth) }
	for _, c := range []struct {
		method, path, media string
		around              func(string) string
	}{
		{"PATCH", coeRFC, "application/yang-patch+xml", value},
		{"PUT", "/rests/data", "application/yang-data+xml", whole},
	} {
		inXML := header("Content-Type", c.media)
		got := b.do(c.method, c.path, c.around(nested(wire.MaxElementDepth+1)), inXML)
		require.Equal(t, 400, got.status, got.body)
		require.Contains(t, got.body, "nested deeper than 10000")
		got = b.do(c.method, c.path, c.around(nested(wire.MaxElementDepth)), inXML)
		require.Equal(t, 400, got.status, got.body)
		require.NotContains(t, got.body, "nested deeper", "what is wrong is the name")
	}
}
