package agentstream

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

const (
	node1 = "192.168.33.11"
	node2 = "192.168.33.12"
)

func newHub() *Hub { return New(Config{Identity: "x", Log: slog.New(slog.DiscardHandler)}) }

// records encodes leases and confirmations like the leader.
func records(t testing.TB, values ...any) map[string][]byte {
	t.Helper()
	puts := map[string][]byte{}
	for _, v := range values {
		switch v := v.(type) {
		case *coe.Lease:
			raw, err := json.Marshal(v)
			require.NoError(t, err)
			puts["chosen/lease/"+v.PodUID+"/"+v.InterfaceUID] = raw
		case confirmed:
			puts["confirmed/"+RecordName(v.lease.Key())] = ConfirmationOf(v.lease).Encode()
		}
	}
	return puts
}

type confirmed struct{ lease *coe.Lease }

// listed are the records once a leader has listed every source.
func listed(t testing.TB, values ...any) map[string][]byte {
	t.Helper()
	all := records(t, values...)
	all[CompleteRecord] = []byte("x")
	return all
}

// lines formats events for people.
func lines(t *testing.T, events []stream.Event) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		var c struct {
			Operation string
			Pod       string `json:"pod-uid"`
			Node      string
			Confirmed bool
			Identity  string
		}
		require.NoError(t, json.Unmarshal(e.Content, &c))
		line := strings.TrimPrefix(e.Name, "coe-agent:")
		if c.Operation != "" {
			line = c.Operation + " " + c.Pod[len(c.Pod)-1:]
		}
		if c.Identity != "" {
			line += " " + c.Identity
		}
		if c.Confirmed {
			line += " confirmed"
		}
		if e.ID != "" {
			require.Contains(t, e.ID, "~"+format)
			line += " " + strings.Replace(e.ID, "~"+format, "", 1)
		}
		out = append(out, line)
	}
	return out
}

// TestNetwork: a node gets the network identity with its first interface. After a change, all nodes
// with interfaces get it.
func TestNetwork(t *testing.T) {
	h := newHub()
	one, two := open(t, h, node1), open(t, h, node2)
	network := func(identity string) map[string][]byte {
		return map[string][]byte{"confirmed/" + NetworkRecord: Network{identity}.Encode()}
	}
	a, b := lease(pod1, node1), lease(pod2, node2)
	with := func(identity string, values ...any) map[string][]byte {
		all := listed(t, values...)
		maps.Copy(all, network(identity))
		return all
	}
	for _, step := range []struct {
		name     string
		batch    Batch
		one, two []string
	}{
		{"snapshot", Batch{Revision: 10, Snapshot: true, Put: with("x1", a)}, []string{"snapshot-begin", "put 1", "network-changed x1", "snapshot-complete 10@x"}, []string{"snapshot-begin", "snapshot-complete 10@x"}},
		{"the first interface", Batch{Revision: 11, Put: records(t, b)}, nil, []string{"put 2", "network-changed x1 11@x"}},
		{"confirmed", Batch{Revision: 12, Put: records(t, confirmed{b})}, nil, []string{"put 2 confirmed 12@x"}},
		{"another", Batch{Revision: 13, Put: with("x2", confirmed{a})}, []string{"put 1 confirmed", "network-changed x2 13@x"}, []string{"network-changed x2 13@x"}},
		{"an interface goes", Batch{Revision: 14, Delete: []string{"chosen/lease/" + pod1 + "/" + pod1, "confirmed/" + pod1 + "/" + pod1}}, []string{"deleted 1 14@x"}, nil},
		{"another without it", Batch{Revision: 15, Put: network("x3")}, []string{"network-changed x3 15@x"}, []string{"network-changed x3 15@x"}},
		{"not known any more", Batch{Revision: 16, Delete: []string{"confirmed/" + NetworkRecord}}, nil, nil},
		{"listed again", Batch{Revision: 17, Snapshot: true, Put: listed(t, b)}, []string{"snapshot-begin", "snapshot-complete 17@x"}, []string{"snapshot-begin", "put 2", "snapshot-complete 17@x"}},
		{"known for the first time", Batch{Revision: 18, Put: network("x4")}, nil, []string{"network-changed x4 18@x"}},
	} {
		h.Apply(step.batch)
		require.Equal(t, step.one, lines(t, one.Take()), step.name)
		require.Equal(t, step.two, lines(t, two.Take()), step.name)
	}
}

func open(t *testing.T, h *Hub, node string) stream.Subscription {
	t.Helper()
	s, ok := h.Open(node, "")
	require.True(t, ok)
	t.Cleanup(s.Close)
	return s
}

func TestStreams(t *testing.T) {
	h := newHub()
	one, two := open(t, h, node1), open(t, h, node2)
	require.Empty(t, one.Take())
	a, b := lease(pod1, node1), lease(pod2, node1)
	moved, other, released, renumbered := *a, *a, *b, *b
	moved.Node = lease("", node2).Node
	other.MAC = "0a:58:c0:a8:0a:99"
	released.Released = 1000
	renumbered.Seq = 99

	for _, step := range []struct {
		name     string
		batch    Batch
		one, two []string
	}{
		{"snapshot", Batch{Revision: 10, Snapshot: true, Put: listed(t, a)}, []string{"snapshot-begin", "put 1", "snapshot-complete 10@x"}, []string{"snapshot-begin", "snapshot-complete 10@x"}},
		{"a new lease", Batch{Revision: 11, Put: records(t, b)}, []string{"put 2 11@x"}, nil},
		{"confirmed", Batch{Revision: 12, Put: records(t, confirmed{a})}, []string{"put 1 confirmed 12@x"}, nil},
		{"the same again", Batch{Revision: 13, Put: records(t, a, confirmed{a}, &renumbered)}, nil, nil},
		{"records of other things", Batch{Revision: 14, Put: map[string][]byte{"chosen/block/x/y": []byte("{}"), "chosen/former/a/b": []byte("{}")}}, nil, nil},
		{"another MAC address is not confirmed", Batch{Revision: 15, Put: records(t, &other)}, []string{"put 1 15@x"}, nil},
		{"the old confirmation comes late", Batch{Revision: 16, Put: records(t, confirmed{a})}, nil, nil},
		{"the new one", Batch{Revision: 17, Put: records(t, confirmed{&other})}, []string{"put 1 confirmed 17@x"}, nil},
		{"both at once", Batch{Revision: 18, Put: records(t, a, confirmed{a})}, []string{"put 1 confirmed 18@x"}, nil},
		{"moved", Batch{Revision: 19, Put: records(t, &moved)}, []string{"deleted 1 19@x"}, []string{"put 1 19@x"}},
		{"confirmed there", Batch{Revision: 20, Put: records(t, confirmed{&moved})}, nil, []string{"put 1 confirmed 20@x"}},
		{"no more confirmed", Batch{Revision: 21, Delete: []string{"confirmed/" + pod1 + "/" + pod1}}, nil, []string{"put 1 21@x"}},
		{"released", Batch{Revision: 22, Put: records(t, &released)}, []string{"deleted 2 22@x"}, nil},
		{"deleted after that", Batch{Revision: 23, Delete: []string{"chosen/lease/" + pod2 + "/" + pod2}}, nil, nil},
		{"taken up again, confirmed before", Batch{Revision: 24, Put: records(t, confirmed{b})}, nil, nil},
		{"and then", Batch{Revision: 25, Put: records(t, b)}, []string{"put 2 confirmed 25@x"}, nil},
		{"deleted", Batch{Revision: 26, Delete: []string{"chosen/lease/" + pod1 + "/" + pod1}}, nil, []string{"deleted 1 26@x"}},
		{"unreadable", Batch{Revision: 27, Put: map[string][]byte{"chosen/lease/" + pod2 + "/" + pod2: []byte("{")}}, []string{"deleted 2 27@x"}, nil},
		{"of another key", Batch{Revision: 28, Put: map[string][]byte{"chosen/lease/" + pod2 + "/" + pod1: records(t, b)["chosen/lease/"+pod2+"/"+pod2]}}, nil, nil},
		{"listed again", Batch{Revision: 29, Snapshot: true, Put: listed(t, b)}, []string{"snapshot-begin", "put 2", "snapshot-complete 29@x"}, []string{"snapshot-begin", "snapshot-complete 29@x"}},
	} {
		h.Apply(step.batch)
		require.Equal(t, step.one, lines(t, one.Take()), step.name)
		require.Equal(t, step.two, lines(t, two.Take()), step.name)
	}
	require.Equal(t, []string{node1}, h.Keys())
	h.Apply(Batch{Revision: 30, Delete: []string{"chosen/lease/" + pod2 + "/" + pod2}})
	require.Empty(t, h.interfaces)
}

// TestUnfinishedRecords: nodes get nothing until a leader has listed every source, nor while a
// leader adopts the interfaces in the backend.
func TestUnfinishedRecords(t *testing.T) {
	a, b := lease(pod1, node1), lease(pod2, node1)
	complete := map[string][]byte{CompleteRecord: []byte("x")}
	adopting := func(all map[string][]byte) map[string][]byte {
		all["chosen/adopting/"] = []byte("true")
		return all
	}
	adopted := []string{"chosen/adopting/"}
	backup := records(t, a)
	backup[CompleteRecord] = []byte("former")
	node := map[string][]byte{"chosen/node/" + node2: []byte(`{"node":"` + node2 + `","number":1}`), "chosen/networks/": []byte(networks)}
	both := []string{"snapshot-begin", "put 1", "put 2", "snapshot-complete 14@x"}
	for name, c := range map[string]struct {
		batches []Batch
		want    []string
	}{
		"an empty cluster": {[]Batch{
			{Revision: 10, Snapshot: true},
			{Revision: 14, Put: complete},
		}, []string{"snapshot-begin", "snapshot-complete 14@x"}},
		"a lost datastore": {[]Batch{
			{Revision: 10, Snapshot: true, Put: map[string][]byte{HistoryRecord: []byte("h")}},
			{Revision: 11, Put: adopting(records(t, a))},
			{Revision: 12, Delete: adopted},
			{Revision: 13, Put: records(t, b)},
			{Revision: 14, Put: complete},
		}, []string{"snapshot-begin", "put 1", "put 2", "snapshot-complete 14@x.h"}},
		"datastore and backend lost": {[]Batch{
			{Revision: 10, Snapshot: true},
			{Revision: 11, Put: node},
			{Revision: 12, Put: records(t, a)},
			{Revision: 13, Put: records(t, b)},
			{Revision: 14, Put: complete},
		}, both},
		"listed by a replica that starts": {[]Batch{
			{Revision: 12, Snapshot: true, Put: records(t, a)},
			{Revision: 13, Put: records(t, b)},
			{Revision: 14, Put: complete},
		}, both},
		"a leader that was cut short": {[]Batch{
			{Revision: 10, Snapshot: true, Put: adopting(listed(t, a))},
			{Revision: 12, Put: records(t, b)},
			{Revision: 14, Delete: adopted},
		}, both},
		"lost under a running replica": {[]Batch{
			{Revision: 9, Snapshot: true, Put: complete},
			{Revision: 10, Put: adopting(records(t, a))},
			{Revision: 11, Snapshot: true},
			{Revision: 12, Put: records(t, b, a)},
			{Revision: 14, Put: complete},
		}, both},
		"a backup that is restored with a new identity": {[]Batch{
			{Revision: 12, Snapshot: true, Put: backup},
			{Revision: 13, Put: records(t, b)},
			{Revision: 14, Put: complete},
		}, both},
		"emptied under a running replica": {[]Batch{
			{Revision: 9, Snapshot: true, Put: listed(t, a)},
			{Revision: 11, Delete: []string{CompleteRecord, "chosen/lease/" + RecordName(a.Key())}},
			{Revision: 12, Put: records(t, b, a)},
			{Revision: 14, Put: complete},
		}, both},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub()
			var s stream.Subscription
			last := len(c.batches) - 1
			for n, batch := range c.batches {
				h.Apply(batch)
				if n == last-1 {
					s = open(t, h, node1)
				}
				if s != nil && n < last {
					require.Empty(t, s.Take())
				}
			}
			require.Equal(t, c.want, lines(t, s.Take()))
		})
	}
}

// TestTheLastInterfaceGoes: a node gets the deletion of its last interface.
func TestTheLastInterfaceGoes(t *testing.T) {
	h := newHub()
	one := open(t, h, node1)
	a := lease(pod1, node1)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: listed(t, a)})
	require.Len(t, one.Take(), 3)
	h.Apply(Batch{Revision: 2, Delete: []string{"chosen/lease/" + RecordName(a.Key())}})
	require.Equal(t, []string{"deleted 1 2@x"}, lines(t, one.Take()))
}

func TestOpenNeedsAnAddress(t *testing.T) {
	for _, key := range []string{"", "node-1", "192.168.33.0/24"} {
		_, ok := newHub().Open(key, "")
		require.False(t, ok, key)
	}
}

func TestUnreadableLeaseIsLogged(t *testing.T) {
	var log bytes.Buffer
	h := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{"chosen/lease/a/b": []byte(`{"pod-uid":"a","interface-uid":"b"}`)}})
	require.Contains(t, log.String(), "the node is missing")
	require.Contains(t, log.String(), "record=chosen/lease/a/b")
}

func TestTree(t *testing.T) {
	h := newHub()
	tree, err := h.Tree()
	require.NoError(t, err)
	require.Nil(t, tree)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: records(t, lease(pod2, node2), lease(pod1, node1), confirmed{lease(pod1, node1)})})
	tree, err = h.Tree()
	require.NoError(t, err)
	var got struct {
		Interface []struct {
			Pod       string `json:"pod-uid"`
			Confirmed bool
		}
	}
	require.NoError(t, json.Unmarshal(tree, &got))
	require.Len(t, got.Interface, 2)
	require.Equal(t, pod1, got.Interface[0].Pod)
	require.True(t, got.Interface[0].Confirmed)
	require.NotContains(t, string(tree), "operation")
}
