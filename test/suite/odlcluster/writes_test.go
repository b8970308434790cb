package odlcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
)

// entry identifies an entry of the datastore.
type entry struct{ list, key string }

// write is an attempt of the bridge to write an entry.
type write struct {
	entry
	content  string // empty if it deletes the entry
	member   string
	status   int // 0 without an answer
	begun    time.Time
	answered time.Time
}

func (x write) accepted() bool { return x.status/100 == 2 }

// uncertain reports whether the bridge cannot know from the answer whether the write takes effect.
func (x write) uncertain() bool { return x.status == 0 || x.status == http.StatusInternalServerError }

func (x write) String() string {
	what := "writes"
	if x.content == "" {
		what = "deletes"
	}
	return fmt.Sprintf("%s to %s %s %s %s: %d after %.1f s", x.begun.Format("15:04:05.0"), x.member, what, x.list, x.key, x.status, x.answered.Sub(x.begun).Seconds())
}

// keyOf has the leaf with the key of an entry, by list.
var keyOf = map[string]string{
	"elan-instance": "elan-instance-name", "vpn-instance": "vpn-instance-name", "acl": "acl-name",
	"interface": "name", "elan-interface": "name", "vpn-interface": "name", "topology": "topology-id",
}

// probed is the list that permits everything, which the bridge writes as it is to find out whether the datastore accepts writes.
var probed = entry{"acl", codec.Probe().Key()}

// entriesOf returns the entries of a request, with their contents. Their keys in JSON are sorted.
func entriesOf(q *wire.Request) (map[entry]string, error) {
	all := map[entry]string{}
	if q.Method == http.MethodDelete {
		path := strings.Split(strings.TrimPrefix(q.Path, "/restconf/config/"), "/")
		key, err := url.PathUnescape(path[len(path)-1])
		all[entry{path[1], key}] = ""
		return all, err
	}
	var body map[string][]map[string]any
	if err := json.Unmarshal([]byte(q.Body), &body); err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.Method, q.Path, err)
	}
	for name, list := range body {
		_, name, _ := strings.Cut(name, ":")
		for _, e := range list {
			content, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			key, _ := e[keyOf[name]].(string)
			all[entry{name, key}] = string(content)
		}
	}
	return all, nil
}

// mends reports whether a request asks for routes again, lets another member lead a shard, or corrects a group (decisions 105, 106 and 113). It writes no
// entry of the model.
func mends(q *wire.Request) bool {
	return strings.Contains(q.Path, "/operations/") || strings.Contains(q.Path, "/config/opendaylight-inventory:")
}

// writes returns the writes of the bridge since the last call, in the order of their answers.
func (w *world) writes() (all []write) {
	w.t.Helper()
	since := w.counted
	w.counted = time.Now()
	for c, between := range w.wires {
		for _, q := range between.Seen() {
			if !q.Writes() || mends(&q) || q.Answered.Before(since) || !q.Answered.Before(w.counted) {
				continue
			}
			entries, err := entriesOf(&q)
			require.NoError(w.t, err)
			for e, content := range entries {
				require.NotEmpty(w.t, e.key, q.Path)
				all = append(all, write{e, content, c.Name(), q.Status, q.Begun, q.Answered})
			}
		}
	}
	slices.SortFunc(all, func(a, b write) int { return a.answered.Compare(b.answered) })
	return all
}

// tally is the result of a count of writes.
type tally struct {
	accepted int
	again    int // of accepted, with the content that an earlier accepted write has written
	failed   int
}

// count counts writes, in the order of their answers. A member accepts each content of an entry once. It is an error if it accepts it once
// more, unless an earlier write of this entry was uncertain. Each uncertain write is the reason for one more.
func count(all []write) (t tally, err error) {
	last, uncertain := map[entry]string{}, map[entry]int{}
	for _, x := range all {
		if !x.accepted() {
			t.failed++
			if x.uncertain() {
				uncertain[x.entry]++
			}
			continue
		}
		t.accepted++
		before, found := last[x.entry]
		last[x.entry] = x.content
		if !found || before != x.content || x.entry == probed {
			continue
		}
		t.again++
		if uncertain[x.entry]--; uncertain[x.entry] < 0 {
			err = errors.Join(err, fmt.Errorf("%s, again and without a reason", x))
		}
	}
	return t, err
}

// checkOnly fails if an entry is written that is neither an entry of these pods nor the list that is probed.
func checkOnly(all []write, pods []string) (err error) {
	for _, x := range all {
		ofPod := strings.HasSuffix(x.list, "interface") && slices.Contains(pods, x.key)
		if !ofPod && x.entry != probed {
			err = errors.Join(err, fmt.Errorf("%s, which is not of a new pod", x))
		}
	}
	return err
}

// requireOnce counts the writes of the bridge while do runs, and since the last count. No content is written twice without a reason.
func (w *world) requireOnce(do func()) []write {
	w.t.Helper()
	do()
	all := w.writes()
	for _, x := range all {
		if !x.accepted() {
			w.t.Log(x)
		}
	}
	t, err := count(all)
	require.NoError(w.t, err)
	w.t.Logf("the bridge: %d writes of entries were accepted, %d of them again; %d were not accepted", t.accepted, t.again, t.failed)
	return all
}

// requireOnceForNew is requireOnce. Nothing is written about other pods than those that are new in do.
func (w *world) requireOnceForNew(do func()) {
	w.t.Helper()
	before := len(w.names)
	all := w.requireOnce(do)
	require.NoError(w.t, checkOnly(all, w.names[before:]))
}

// TestCount: a write that is repeated without a reason is found.
func TestCount(t *testing.T) {
	one := func(key, content string, status int) write {
		return write{entry: entry{"interface", key}, content: content, status: status}
	}
	for name, c := range map[string]struct {
		all   []write
		again int
		bad   bool
	}{
		"each once":                   {[]write{one("a", "x", 204), one("b", "x", 204), one("a", "", 200), one("a", "x", 204)}, 0, false},
		"twice":                       {[]write{one("a", "x", 204), one("a", "x", 200)}, 1, true},
		"deleted twice":               {[]write{one("a", "", 200), one("a", "", 200)}, 1, true},
		"after a lost answer":         {[]write{one("a", "x", 0), one("a", "x", 204), one("a", "x", 200)}, 1, false},
		"after a failure":             {[]write{one("a", "x", 500), one("a", "x", 204), one("a", "x", 200)}, 1, false},
		"twice after one lost answer": {[]write{one("a", "x", 0), one("a", "x", 204), one("a", "x", 200), one("a", "x", 200)}, 2, true},
		"after another's lost answer": {[]write{one("b", "x", 0), one("a", "x", 204), one("a", "x", 200)}, 1, true},
		"after a conflict":            {[]write{one("a", "x", 204), one("a", "x", 409), one("a", "x", 200)}, 1, true},
		"before a lost answer":        {[]write{one("a", "x", 204), one("a", "x", 200), one("a", "x", 0)}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := count(c.all)
			require.Equal(t, c.again, got.again)
			require.Equal(t, c.bad, err != nil, "%v", err)
		})
	}
	require.NoError(t, checkOnly([]write{one("web:pod2", "x", 204), {entry: probed}}, []string{"web:pod2"}))
	require.Error(t, checkOnly([]write{one("web:pod1", "x", 500)}, []string{"web:pod2"}))
	require.Error(t, checkOnly([]write{{entry: entry{"elan-instance", "web:pod2"}}}, []string{"web:pod2"}))
}

// TestEntries: requests of all methods are divided into entries.
func TestEntries(t *testing.T) {
	for _, c := range []struct {
		q    wire.Request
		want map[entry]string
	}{
		{
			wire.Request{Method: http.MethodPost, Path: "/restconf/config/elan:elan-interfaces", Body: `{"elan:elan-interface":[{"name":"a:b","x":1},{"name":"c","x":2}]}`},
			map[entry]string{{"elan-interface", "a:b"}: `{"name":"a:b","x":1}`, {"elan-interface", "c"}: `{"name":"c","x":2}`},
		},
		{
			wire.Request{Method: http.MethodPut, Path: "/restconf/config/ietf-access-control-list:access-lists/acl/t/all", Body: `{"ietf-access-control-list:acl":[{"acl-name":"all"}]}`},
			map[entry]string{{"acl", "all"}: `{"acl-name":"all"}`},
		},
		{wire.Request{Method: http.MethodDelete, Path: "/restconf/config/elan:elan-interfaces/elan-interface/a%3Ab"}, map[entry]string{{"elan-interface", "a:b"}: ""}},
	} {
		got, err := entriesOf(&c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
