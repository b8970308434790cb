package restconf

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// exchange is one line of a recording: what a real OpenDaylight (Oxygen or Neon)
// was asked and what it answered.
type exchange struct {
	Name        string
	Method      string
	Path        string
	ContentType string
	Accept      string
	IfMatch     string
	Body        json.RawMessage
	Status      int
	Type        string
	Location    string
	Answer      json.RawMessage
}

// difference is where we mean to answer otherwise.
type difference struct {
	status int
	tag    string
	reason string
	undo   string // a path to DELETE afterwards, so that the recording goes on as it was
}

// The deliberate differences, besides the differences of every answer: error messages are
// our own, uuids are in their canonical lower case (RFC 6991), pages of HTML are
// errors in JSON.
var differences = map[string]map[string]difference{
	"oxygen-draft02.jsonl": {
		"30-put-empty-ip":                {status: 200, reason: "COE's own watcher sends empty addresses: taken as absent"},
		"31-put-null-leaf":               {status: 200, reason: "COE's own watcher sends null leaves: taken as absent"},
		"45-patch-yang-json":             {status: 415, tag: "operation-not-supported", reason: "YANG Patch is for the RFC 8040 tree, and named in the error; OpenDaylight fails on it"},
		"54-put-mandatory-missing":       {status: 405, tag: "operation-not-supported", reason: "Netvirt's trees are computed here, clients can't write them"},
		"55-put-leafref-dangling":        {status: 405, tag: "operation-not-supported", reason: "Netvirt's trees are computed here, clients can't write them"},
		"58-put-key-slash-enc":           {status: 405, tag: "operation-not-supported", reason: "Netvirt's trees are computed here, clients can't write them"},
		"60-delete-foo":                  {status: 405, tag: "operation-not-supported", reason: "Netvirt's trees are computed here, clients can't write them"},
		"61-delete-a-2Fb":                {status: 405, tag: "operation-not-supported", reason: "Netvirt's trees are computed here, clients can't write them"},
		"64-watcher-service-headless":    {status: 201, reason: "COE's own watcher sends empty addresses: taken as absent", undo: services},
		"65-watcher-endpoints-null-node": {status: 201, reason: "COE's own watcher sends null leaves: taken as absent", undo: "/restconf/config/service:endpoints-info"},
		"68-k8s-cluster-put":             {status: 201, reason: "k8s-cluster is of a later release, and known here"},
	},
	"oxygen-spec-samples.jsonl": {
		"07-pod-post-verbatim":       {status: 204, reason: "the published sample has version, which Oxygen lost: known here", undo: coe},
		"11-svc-post-verbatim":       {status: 204, reason: "the published sample, which Oxygen refuses: the shape shows what is meant, and endpoints is known here", undo: services},
		"12-svc-put-verbatim":        {status: 201, reason: "the published sample has endpoints, which Oxygen lost: known here", undo: services},
		"14-svc-post-container-body": {status: 409, tag: "data-exists", reason: "the shape shows what is meant; and the service is there"},
		"24-get-end-idpools":         {status: 400, tag: "unknown-element", reason: "id-manager is a module of OpenDaylight alone"},
	},
}

func TestReplayOfOpenDaylight(t *testing.T) {
	for file, expected := range differences {
		t.Run(file, func(t *testing.T) {
			b := newBed(t, func(c *Config) {
				c.ReadOnly["elan:elan-instances"] = tree.ReadOnly{Says: "it is computed", Source: fixed{schema: c.Schema, config: elanInstances(file)}}
				c.ReadOnly["elan:elan-interfaces"] = tree.ReadOnly{Says: "it is computed", Source: fixed{schema: c.Schema, config: `{"elan:elan-interfaces":{"elan-interface":[{"name":"a/b","elan-instance-name":"nowhere"}]}}`}}
			})
			if file == "oxygen-draft02.jsonl" {
				putFirstPods(t, b)
			}
			seen := 0
			for _, e := range recording(t, file) {
				d, differs := expected[e.Name]
				if differs {
					seen++
				}
				replay(t, b, e, d, differs)
			}
			require.Equal(t, len(expected), seen, "a difference names no exchange")
		})
	}
}

// putFirstPods has the pods there that were when Oxygen's recordings began.
func putFirstPods(t *testing.T, b *bed) {
	t.Helper()
	for i := 1; i <= 3; i++ {
		uid := fmt.Sprintf("8f2a6d5e-0000-4000-8000-00000000000%d", i)
		require.Equal(t, 201, b.do("PUT", pods+uid, pod(uid)).status)
	}
}

func elanInstances(file string) string {
	if file != "oxygen-draft02.jsonl" {
		return ""
	}
	return `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"192.168.33.12:default","segmentation-id":7,
		"segment-type":"elan:segment-type-vxlan","external":false,"mac-timeout":300,"elan-tag":5000}]}}`
}

func recording(t *testing.T, file string) []exchange {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var all []exchange
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, all)
	return all
}

func replay(t *testing.T, b *bed, e exchange, d difference, differs bool) {
	t.Helper()
	before := b.do("GET", e.Path, "")
	got := ask(b, e)
	if differs {
		require.Equal(t, d.status, got.status, "%s (%s): %s", e.Name, d.reason, got.body)
		require.Equal(t, d.tag, got.tag(), e.Name)
		switch {
		case d.undo != "":
			require.Equal(t, 200, b.do("DELETE", d.undo, "").status, e.Name)
		case e.Method == "PUT" && got.status == 200:
			require.Equal(t, 200, b.do("PUT", e.Path, before.body).status, e.Name)
		}
		return
	}
	require.Equal(t, e.Status, got.status, "%s: %s", e.Name, got.body)
	require.Equal(t, e.Location, got.header.Get("Location"), e.Name)
	if e.Type == "application/xml" {
		require.Equal(t, e.Type, got.header.Get("Content-Type"), e.Name)
		require.Equal(t, podsOf(t, b, text(e.Answer)), podsOf(t, b, text(got.body)), e.Name)
	}
	if strings.HasSuffix(e.Type, "json") && e.Method != "HEAD" {
		require.Equal(t, e.Type, got.header.Get("Content-Type"), e.Name)
		if e.Status < 300 {
			require.Equal(t, canonical(t, e.Answer), canonical(t, []byte(got.body)), e.Name)
			return
		}
		require.Equal(t, answer{body: string(e.Answer)}.tag(), got.tag(), "%s: %s", e.Name, got.body)
	}
}

func ask(b *bed, e exchange) answer {
	body := string(e.Body)
	var text string
	if json.Unmarshal(e.Body, &text) == nil { // what was not JSON was recorded as a string
		body = text
	}
	return b.do(e.Method, e.Path, body,
		header("Content-Type", e.ContentType), header("Accept", e.Accept), header("If-Match", e.IfMatch),
		credentials(e.Name))
}

// credentials are what an exchange was made with.
func credentials(name string) option {
	switch {
	case strings.Contains(name, "no-auth"):
		return header("Authorization", "")
	case strings.Contains(name, "wrong-auth"):
		return header("Authorization", "Basic YWRtaW46d3Jvbmc=")
	}
	return header("X-None", "")
}

// podsOf are the pods of an answer in XML, given as a JSON string, in one order.
func podsOf(t *testing.T, b *bed, answer string) string {
	t.Helper()
	var body string
	require.NoError(t, json.Unmarshal([]byte(answer), &body))
	coe := b.cfg.Schema.Module("pod").Child("coe")
	data, err := b.cfg.Schema.DecodeXML([]byte(body), coe, "/pod:coe", yang.Strict)
	require.NoError(t, err, body)
	var out bytes.Buffer
	yang.EncodeJSON(&out, data, yang.RFC7951)
	return out.String()
}

var uuid = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// canonical is JSON with uuids in lower case and the entries of lists in one order.
func canonical(t *testing.T, body []byte) string {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(uuid.ReplaceAllFunc(body, func(m []byte) []byte { return []byte(strings.ToLower(string(m))) }), &v), string(body))
	return text(sorted(v))
}

func sorted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = sorted(v[name])
		}
	case []any:
		for i := range v {
			v[i] = sorted(v[i])
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
