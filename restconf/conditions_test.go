package restconf

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

func TestEntityTags(t *testing.T) {
	for header, want := range map[string][]string{
		``:                     {},
		`*`:                    {"*"},
		`"a"`:                  {`"a"`},
		` "a,b" ,W/"c",, ""`:   {`"a,b"`, `W/"c"`, `""`},
		`"a" "b"`:              {`"a"`, `"b"`},
		`a, "b"`:               {},
		`"a", "b`:              {`"a"`},
		`w/"a"`:                {},
		`"a", nonsense, "b"`:   {`"a"`},
		strings.Repeat(",", 9): {},
	} {
		require.Equal(t, want, entityTags([]string{header}), header)
	}
	require.Nil(t, entityTags(nil))
	require.Equal(t, []string{`"a"`, `"b"`}, entityTags([]string{`"a"`, `"b"`}))
}

// The order and meaning of the preconditions, by RFC 9110 section 13.2.2.
func TestVerdict(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	on, before, after := at.Format(http.TimeFormat), at.Add(-time.Second).Format(http.TimeFormat), at.Add(time.Second).Format(http.TimeFormat)
	v := tagged{Version: tree.Version{Tag: "a", Modified: at}}
	type h = map[string]string
	for _, c := range []struct {
		given         h
		absent        bool
		reads, writes int
	}{
		{given: h{}},
		{given: h{"If-Match": `"b", "a"`}},
		{given: h{"If-Match": `*`}},
		{given: h{"If-Match": `"b"`}, reads: 412, writes: 412},
		{given: h{"If-Match": `W/"a"`}, reads: 412, writes: 412},
		{given: h{"If-Match": `nonsense`}, reads: 412, writes: 412},
		{given: h{"If-Match": `"a+xml"`}, reads: 412},
		{given: h{"If-Match": `*`}, absent: true, reads: 412, writes: 412},
		{given: h{"If-Match": `"a"`}, absent: true, reads: 412, writes: 412},
		{given: h{"If-None-Match": `"a"`}, reads: 304, writes: 412},
		{given: h{"If-None-Match": `"b", W/"a"`}, reads: 304, writes: 412},
		{given: h{"If-None-Match": `W/"a+xml"`}, writes: 412},
		{given: h{"If-None-Match": `*`}, reads: 304, writes: 412},
		{given: h{"If-None-Match": `*`}, absent: true},
		{given: h{"If-None-Match": `"b"`}},
		{given: h{"If-Modified-Since": on}, reads: 304},
		{given: h{"If-Modified-Since": after}, reads: 304},
		{given: h{"If-Modified-Since": before}},
		{given: h{"If-Modified-Since": "yesterday"}},
		{given: h{"If-Modified-Since": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}},
		{given: h{"If-Unmodified-Since": on}},
		{given: h{"If-Unmodified-Since": after}},
		{given: h{"If-Unmodified-Since": before}, reads: 412, writes: 412},
		{given: h{"If-Unmodified-Since": before}, absent: true},
		{given: h{"If-Unmodified-Since": "yesterday"}},
		{given: h{"If-Match": `"a"`, "If-Unmodified-Since": before}},
		{given: h{"If-None-Match": `"b"`, "If-Modified-Since": on}},
		{given: h{"If-Match": `"a"`, "If-None-Match": `"a"`}, reads: 304, writes: 412},
		{given: h{"If-Match": `"b"`, "If-None-Match": `"b"`}, reads: 412, writes: 412},
		{given: h{"If-Unmodified-Since": on, "If-Modified-Since": on}, reads: 304},
	} {
		headers := http.Header{}
		for name, value := range c.given {
			headers.Set(name, value)
		}
		got := conditionsOf(headers)
		require.Equal(t, c.reads, got.verdict(v, !c.absent, true), "reads %v", c.given)
		require.Equal(t, c.writes, got.verdict(v, !c.absent, false), "writes %v", c.given)
	}
	without := conditionsOf(http.Header{"If-None-Match": {`"a"`}, "If-Unmodified-Since": {before}})
	require.Zero(t, without.verdict(tagged{}, true, true), "a resource without validators meets every condition on them")
}

// tagOf is the ETag of what a GET answers.
func (b *bed) tagOf(path string, options ...option) string {
	b.t.Helper()
	got := b.do("GET", path, "", options...)
	require.Equal(b.t, 200, got.status, "%s: %s", path, got.body)
	return got.header.Get("ETag")
}

// encoding is how a client sends and wants a pod.
type encoding struct {
	name  string
	pod   func(uid string) string
	media []option
}

var encodings = []encoding{
	{"JSON", podRFC, []option{header("Content-Type", "application/yang-data+json"), header("Accept", "application/yang-data+json")}},
	{"XML", podXML, speaksXML("application/yang-data+xml")},
}

// Each kind of conditional write, in both dialects and encodings: the condition
// that holds, and the one that doesn't.
func TestConditionalWrites(t *testing.T) {
	for _, d := range []struct {
		name, coe, pods         string
		draft                   bool
		replaced, posted, wiped int
	}{
		{"draft-02", coe, pods, true, 200, 204, 200},
		{"RFC 8040", coeRFC, podsRFC, false, 204, 201, 204},
	} {
		for _, e := range encodings {
			t.Run(d.name+" "+e.name, func(t *testing.T) {
				media := e.media
				if d.draft {
					media = speaksXML("application/xml")
					if e.name == "JSON" {
						media = speaksXML("application/json")
					}
				}
				b := newBed(t)
				do := func(method, path, body string, conditions ...option) answer {
					return b.do(method, path, body, append(conditions, media...)...)
				}
				one := e.pod(uid1)

				failed := do("PUT", d.pods+uid1, one, header("If-Match", "*"))
				require.Equal(t, 412, failed.status)
				require.Equal(t, 412, do("PUT", d.pods+uid1, one, header("If-Match", `"x"`)).status)
				made := do("PUT", d.pods+uid1, one, header("If-None-Match", "*"))
				require.Equal(t, 201, made.status, made.body)
				require.Equal(t, 412, do("PUT", d.pods+uid1, one, header("If-None-Match", "*")).status)

				first := b.tagOf(d.pods+uid1, media...)
				require.Equal(t, made.header.Get("ETag"), first)
				require.NotEmpty(t, made.header.Get("Last-Modified"))
				require.Equal(t, d.replaced, do("PUT", d.pods+uid1, one, header("If-Match", first)).status)
				lost := do("PUT", d.pods+uid1, one, header("If-Match", first))
				require.Equal(t, 412, lost.status)
				require.Contains(t, lost.body, "operation-failed")
				require.Contains(t, strings.ReplaceAll(lost.body, "pod:", ""), "/coe/pods[uid=", "in XML each name has its prefix")

				container := b.tagOf(d.coe, media...)
				posted := do("POST", d.coe, e.pod(uid2), header("If-Match", container))
				require.Equal(t, d.posted, posted.status)
				require.Equal(t, b.tagOf(strings.TrimPrefix(posted.header.Get("Location"), "http://127.0.0.1:8181"), media...), posted.header.Get("ETag"))
				require.Equal(t, 412, do("POST", d.coe, e.pod(uid3), header("If-Match", container)).status)
				require.Equal(t, 412, do("DELETE", d.coe, "", header("If-Match", container)).status)

				old := header("If-Unmodified-Since", "Thu, 01 Jan 2026 00:00:00 GMT")
				require.Equal(t, 412, do("DELETE", d.pods+uid1, "", header("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")).status)
				require.Equal(t, 404, do("DELETE", d.pods+uid3, "", header("If-Match", "*")).status)
				require.Equal(t, 404, do("DELETE", d.pods+uid3, "", old).status)
				require.Equal(t, 412, do("DELETE", d.pods+uid1, "", header("If-Match", first)).status)
				gone := do("DELETE", d.pods+uid1, "", header("If-Match", b.tagOf(d.pods+uid1)))
				require.Equal(t, d.wiped, gone.status)
				require.Empty(t, gone.header.Get("ETag"))

				require.Equal(t, 412, do("PUT", d.coe, wrapped(d.draft, e.name, e.pod(uid3)), header("If-Match", container)).status)
				put := do("PUT", d.coe, wrapped(d.draft, e.name, e.pod(uid3)), header("If-Match", b.tagOf(d.coe)))
				require.Equal(t, d.replaced, put.status, put.body)
				require.Equal(t, b.tagOf(d.coe, media...), put.header.Get("ETag"))
				if d.draft {
					return
				}
				tag := b.tagOf(d.pods+uid3, media...)
				require.Equal(t, 412, do("PATCH", d.pods+uid3, e.pod(uid3), header("If-Match", first)).status)
				patched := do("PATCH", d.pods+uid3, e.pod(uid3), header("If-Match", tag))
				require.Equal(t, 204, patched.status)
				require.Equal(t, b.tagOf(d.pods+uid3, media...), patched.header.Get("ETag"))
			})
		}
	}
}

// wrapped is the container with what is in it.
func wrapped(draft bool, encoding, entry string) string {
	switch {
	case encoding == "XML":
		return `<coe` + podSpace + `>` + entry + `</coe>`
	case draft:
		return `{"coe":` + entry + `}`
	}
	return `{"pod:coe":` + entry + `}`
}

func TestConditionalWritesToTheDatastore(t *testing.T) {
	b := newBed(t)
	root := b.tagOf("/rests/data")
	require.NotEmpty(t, b.do("HEAD", "/rests/data", "").header.Get("Last-Modified"))
	posted := b.do("POST", "/rests/data", `{"pod:coe":{}}`, header("If-Match", root))
	require.Equal(t, 201, posted.status, posted.body)
	require.Equal(t, b.tagOf(coeRFC), posted.header.Get("ETag"))
	require.Equal(t, 412, b.do("POST", "/rests/data", `{"service:endpoints-info":{}}`, header("If-Match", root)).status)
	both := b.do("POST", "/rests/data", `{"service:endpoints-info":{},"k8s-node:k8s-nodes-info":{}}`, header("If-Match", b.tagOf("/rests/data")))
	require.Equal(t, 201, both.status)
	require.Equal(t, b.tagOf("/rests/data"), both.header.Get("ETag"))
}

// The changes that change validators.
func TestValidatorsChangeWithTheirResource(t *testing.T) {
	b := newBed(t)
	const network = "/rests/data/k8s:k8s/network-policies"
	require.Equal(t, 201, b.do("POST", coeRFC, podRFC(uid1)).status)
	require.Equal(t, 201, b.do("POST", coeRFC, podRFC(uid2)).status)
	require.Equal(t, 201, b.do("PUT", network, `{"k8s:network-policies":{"network-policy":[{"uuid":"`+uid1+`","name":"a"}]}}`).status)
	paths := map[string]string{
		"root": "/rests/data", "config": "/rests/data?content=config", "draft root": "/restconf/config", "container": coeRFC, "list": coeRFC + "/pods",
		"entry": podsRFC + uid1, "draft entry": pods + uid1, "leaf": podsRFC + uid1 + "/name", "sibling": podsRFC + uid2,
		"other top": "/rests/data/k8s:k8s", "other container": network, "other entry": network + "/network-policy=" + uid1,
	}
	tags := func() map[string]string {
		all := map[string]string{}
		for name, path := range paths {
			all[name] = b.tagOf(path)
			require.NotEmpty(t, all[name], name)
		}
		return all
	}
	shared := []string{"root", "config", "draft root", "container", "list"}
	for _, c := range []struct {
		name, method, path, body string
		changes                  []string
	}{
		{"leaf of the entry", "PUT", podsRFC + uid1 + "/name", `{"pod:name":"y"}`, append(shared, "entry", "draft entry", "leaf")},
		{"another entry", "PUT", podsRFC + uid3, podRFC(uid3), shared},
		{"the end of another", "DELETE", podsRFC + uid3, "", shared},
		{"another top container", "PUT", network + "/network-policy=" + uid1, `{"k8s:network-policy":[{"uuid":"` + uid1 + `"}]}`,
			[]string{"root", "config", "draft root", "other top", "other container", "other entry"}},
	} {
		before := tags()
		require.Less(t, b.do(c.method, c.path, c.body).status, 300, c.name)
		changed := []string{}
		for name, tag := range tags() {
			if tag != before[name] {
				changed = append(changed, name)
			}
		}
		require.ElementsMatch(t, c.changes, changed, c.name)
	}
}

func TestConditionalGet(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	for _, path := range []string{podsRFC + uid1, coeRFC, coe, podsRFC + uid1 + "?depth=1"} {
		for _, method := range []string{"GET", "HEAD"} {
			first := b.do(method, path, "")
			require.Equal(t, 200, first.status)
			require.Equal(t, []string{"Accept"}, first.header["Vary"])
			require.Equal(t, "no-store", first.header.Get("Cache-Control"))
			again := b.do(method, path, "", header("If-None-Match", first.header.Get("ETag")))
			require.Equal(t, 304, again.status, path)
			require.Empty(t, again.body)
			for _, name := range []string{"ETag", "Last-Modified", "Vary", "Cache-Control"} {
				require.Equal(t, first.header.Get(name), again.header.Get(name), name)
			}
			require.Empty(t, again.header.Get("Content-Type"))
			require.Equal(t, 304, b.do(method, path, "", header("If-Modified-Since", first.header.Get("Last-Modified"))).status)
			inXML := b.do(method, path, "", header("If-None-Match", first.header.Get("ETag")), header("Accept", "application/xml"))
			require.Equal(t, 200, inXML.status, "an answer in XML is another")
			require.NotEqual(t, first.header.Get("ETag"), inXML.header.Get("ETag"))
			require.Equal(t, 412, b.do(method, path, "", header("If-Match", `"x"`)).status)
		}
	}
	require.Equal(t, 404, b.do("GET", podsRFC+uid2, "", header("If-Match", "*")).status)
	for _, path := range []string{
		coeRFC + "?content=nonconfig", "/rests/data/ietf-restconf-monitoring:restconf-state", "/restconf/operational/pod:coe",
		"/restconf/operational/ietf-restconf-monitoring:restconf-state",
	} {
		got := b.do("GET", path, "")
		if got.status == 200 {
			require.Empty(t, got.header.Get("ETag"), path)
			require.Empty(t, got.header.Get("Last-Modified"), path)
		}
	}
}

// allocated is a Source of a pool's state, another one whenever it is asked.
type allocated struct {
	schema *yang.Schema
	asked  int
}

func (a *allocated) Get(ctx context.Context, _ tree.Asked) (*yang.Data, error) {
	a.asked++
	return fixed{schema: a.schema, config: fmt.Sprintf(`{"dhcp_allocation_pool:dhcp_allocation_pool":{"network":[{"network-id":"n",
		"allocations":[{"subnet":"10.0.0.0/24","allocation-instance":[{"mac":"00:00:00:00:00:01","allocated-ip":"10.0.0.%d"}]}]}]}}`, a.asked)}.Get(ctx, tree.Asked{})
}

// An answer that has more than configuration is always given, whatever the client has
// already; its validators are good for writes.
func TestStateIsNeverNotModified(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.State = map[string]tree.Source{"dhcp_allocation_pool:dhcp_allocation_pool": &allocated{schema: c.Schema}}
	})
	const pool, body = "/rests/data/dhcp_allocation_pool:dhcp_allocation_pool", `{"dhcp_allocation_pool:network":[{"network-id":"n"}]}`
	require.Equal(t, 201, b.do("PUT", pool+"/network=n", body).status)
	for _, c := range []struct {
		path   string
		status int
	}{
		{pool, 200},
		{pool + "?content=all", 200},
		{pool + "/network=n", 200},
		{"/rests/data", 200},
		{"/rests/data?content=config", 200},
		{"/restconf/config", 200},
		{pool + "?content=config", 304},
		{pool + "/network=n?content=config", 304},
		{"/rests/ds/ietf-datastores:running/dhcp_allocation_pool:dhcp_allocation_pool", 304},
		{"/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool", 304},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			first := b.do(method, c.path, "")
			require.Equal(t, 200, first.status, c.path)
			again := b.do(method, c.path, "", header("If-None-Match", first.header.Get("ETag")))
			require.Equal(t, c.status, again.status, c.path)
			require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"), c.path)
			require.Equal(t, c.status, b.do(method, c.path, "", header("If-Modified-Since", first.header.Get("Last-Modified"))).status, c.path)
			require.Equal(t, 412, b.do(method, c.path, "", header("If-Match", `"x"`)).status, c.path)
		}
	}
	require.NotEqual(t, b.do("GET", pool, "").body, b.do("GET", pool, "").body)
	tag := b.tagOf(pool + "/network=n")
	require.Equal(t, 204, b.do("PUT", pool+"/network=n", body, header("If-Match", tag)).status)
	require.Equal(t, 412, b.do("PUT", pool+"/network=n", body, header("If-Match", tag)).status)
}

// Validators are the same after a restart.
func TestValidatorsSurviveARestart(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(do func(b *bed)) {
		store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: dir})
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}})
		require.NoError(t, err)
		do(&bed{s, t, store})
	}
	var before []http.Header
	paths := []string{"/rests/data", coeRFC, podsRFC + uid2}
	heads := func(b *bed) (all []http.Header) {
		for _, path := range paths {
			got := b.do("GET", path, "")
			require.Equal(t, 200, got.status)
			all = append(all, got.header)
		}
		return all
	}
	run(func(b *bed) {
		require.Equal(t, 201, b.do("POST", coeRFC, podRFC(uid1)).status)
		require.Equal(t, 201, b.do("POST", coeRFC, podRFC(uid2)).status)
		require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status)
		before = heads(b)
	})
	run(func(b *bed) { require.Equal(t, before, heads(b)) })
}

func TestValidatorsOfExternalEntries(t *testing.T) {
	w := newWorld(t)
	w.speak(uid1)
	require.Equal(t, 201, w.do("POST", coeRFC, podRFC(uid2)).status)
	entry, container, root := w.tagOf(podsRFC+uid1), w.tagOf(coeRFC), w.tagOf("/rests/data")
	require.Equal(t, container, w.tagOf(coeRFC), "as long as nothing changes")
	require.Equal(t, 304, w.do("GET", podsRFC+uid1, "", header("If-None-Match", entry)).status)
	modified := w.do("GET", coeRFC, "").header.Get("Last-Modified")
	require.Equal(t, 200, w.do("GET", coeRFC, "", header("If-Modified-Since", modified)).status)

	w.speak(uid3)
	require.Equal(t, entry, w.tagOf(podsRFC+uid1))
	require.NotEqual(t, container, w.tagOf(coeRFC))
	require.NotEqual(t, root, w.tagOf("/rests/data"))
	require.Equal(t, 412, w.do("DELETE", coeRFC, "", header("If-Match", container)).status)
	w.forget(uid3)
	require.Equal(t, container, w.tagOf(coeRFC))
	require.Equal(t, 409, w.do("DELETE", podsRFC+uid1, "", header("If-Match", `"x"`)).status)

	put := w.do("PUT", coeRFC, w.do("GET", coeRFC, "").body, header("If-Match", container))
	require.Equal(t, 204, put.status, put.body)
	require.Equal(t, w.tagOf(coeRFC), put.header.Get("ETag"))
	require.Equal(t, 204, w.do("DELETE", coeRFC, "", header("If-Match", w.tagOf(coeRFC))).status)
}

// counted is the number in the name of a pod.
func counted(t *testing.T, body string) int {
	var got struct {
		Pods []struct{ Name string } `json:"pod:pods"`
	}
	if !assert.NoError(t, json.Unmarshal([]byte(body), &got)) || !assert.Len(t, got.Pods, 1) {
		return 0
	}
	n, err := strconv.Atoi(got.Pods[0].Name)
	assert.NoError(t, err)
	return n
}

// Of 64 clients that read, add one and write back on a condition none loses an
// addition of another: neither those who write their entry of a list, nor those who
// write all of it.
func TestNoUpdateIsLost(t *testing.T) {
	const clients, rounds = 64, 3
	entry := func(n int) string { return fmt.Sprintf(`[{"uid":"%s","name":"%d"}]`, uid1, n) }
	t.Run("an entry and what is in it", func(t *testing.T) {
		b := newBed(t)
		require.Equal(t, 201, b.do("PUT", podsRFC+uid1, `{"pod:pods":`+entry(0)+`}`).status)
		increments(t, clients, rounds, func(i int) bool {
			got := b.do("GET", podsRFC+uid1, "")
			n := counted(t, got.body) + 1
			method, path, body := "PUT", podsRFC+uid1, `{"pod:pods":`+entry(n)+`}`
			switch i % 3 {
			case 1:
				method = "PATCH"
			case 2:
				path, body = podsRFC+uid1+"/name", fmt.Sprintf(`{"pod:name":"%d"}`, n)
			}
			put := b.do(method, path, body, header("If-Match", got.header.Get("ETag")))
			assert.Contains(t, []int{204, 412}, put.status, put.body)
			return put.status == 204
		})
		require.Equal(t, clients*rounds, counted(t, b.do("GET", podsRFC+uid1, "").body))
	})
	t.Run("one list", func(t *testing.T) {
		b := newBed(t)
		require.Equal(t, 201, b.do("PUT", coeRFC, `{"pod:coe":{}}`).status)
		increments(t, clients, 1, func(i int) bool {
			got := b.do("GET", coeRFC, "")
			added := fmt.Sprintf(`{"uid":"00000000-0000-4000-8000-%012d"}`, strings.Count(got.body, `"uid"`))
			body := strings.Replace(got.body, "]", ","+added+"]", 1)
			if !strings.Contains(got.body, "]") {
				body = `{"pod:coe":{"pods":[` + added + `]}}`
			}
			method, mediaType := "PUT", "application/yang-data+json"
			switch i % 4 {
			case 1:
				method, body = "POST", `{"pod:pods":[`+added+`]}`
			case 2:
				method, body = "PATCH", `{"pod:coe":{"pods":[`+added+`]}}`
			case 3:
				method, mediaType = "PATCH", "application/yang-patch+json"
				body = `{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[{"edit-id":"1","operation":"create","target":"/pods=` +
					strings.Split(added, `"`)[3] + `","value":{"pod:pods":[` + added + `]}}]}}`
			}
			put := b.do(method, coeRFC, body, header("If-Match", got.header.Get("ETag")), header("Content-Type", mediaType))
			assert.Contains(t, []int{200, 201, 204, 412}, put.status, put.body)
			return put.status < 300
		})
		require.Len(t, b.store.Tree(b.cfg.Schema.Module("pod").Child("coe")), 1+clients)
	})
}

// increments lets each of so many clients try once until it succeeds, so often.
func increments(t *testing.T, clients, rounds int, try func(client int) bool) {
	t.Helper()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range rounds {
				for !try(i) {
					if t.Failed() {
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// TestTagsAfterARestore: a restored datastore that kept its identity uses revisions again, and
// tags from before do not hold for what has them now.
func TestTagsAfterARestore(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "data")
	begin := func() *bed {
		store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: dir})
		require.NoError(t, err)
		s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}})
		require.NoError(t, err)
		return &bed{s, t, store}
	}
	b := begin()
	require.Equal(t, 201, b.do("PUT", podsRFC+uid2, podRFC(uid2)).status)
	kept := b.tagOf(podsRFC + uid2)
	require.NoError(t, b.store.Close())
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(dir)))

	b = begin()
	require.Equal(t, kept, b.tagOf(podsRFC+uid2), "a restart changes no tag")
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	paths := []string{podsRFC + uid1, podsRFC + uid1 + "/name", coeRFC + "/pods", coeRFC, "/rests/data"}
	before, revision := map[string]string{}, b.store.Revision()
	for _, path := range paths {
		before[path] = b.tagOf(path)
	}
	require.NoError(t, b.store.Close())

	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
	written := time.Now().Unix()
	require.Eventually(t, func() bool { return time.Now().Unix() > written }, patience.Patience, 10*time.Millisecond)
	b = begin()
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	other := strings.Replace(podRFC(uid1), `"name":"`, `"name":"other-`, 1)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, other).status)
	require.Equal(t, revision, b.store.Revision(), "the revision is used again")
	for _, path := range paths {
		require.Equal(t, 200, b.do("GET", path, "", header("If-None-Match", before[path])).status, path)
	}
	for _, path := range []string{podsRFC + uid1, coeRFC} {
		require.Equal(t, 412, b.do("DELETE", path, "", header("If-Match", before[path])).status, path)
	}
	require.Equal(t, kept, b.tagOf(podsRFC+uid2), "its content is the same")
}
