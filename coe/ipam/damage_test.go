package ipam_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// damages are the ways in which a record of a journal, and the record after it, can be damaged.
var damages = map[string]func(records map[string][]byte, key, next string){
	"removed":   func(records map[string][]byte, key, _ string) { delete(records, key) },
	"emptied":   func(records map[string][]byte, key, _ string) { records[key] = nil },
	"truncated": func(records map[string][]byte, key, _ string) { records[key] = records[key][:len(records[key])/2] },
	"copied to a new key": func(records map[string][]byte, key, _ string) {
		records[key[:strings.IndexByte(key, '/')+1]+"copy/copy"] = records[key]
	},
	"copied over the next": func(records map[string][]byte, key, next string) { records[next] = records[key] },
	"swapped with the next": func(records map[string][]byte, key, next string) {
		records[key], records[next] = records[next], records[key]
	},
	"of another kind": func(records map[string][]byte, key, _ string) { records[key] = []byte(`{"kind":"another"}`) },
}

// TestAnyOneRecordIsDamaged damages each record of a journal, one at a time. The leader and the
// standby replicas start and report the damage. Every pod keeps its lease. Soon the journal has
// no damaged record.
func TestAnyOneRecordIsDamaged(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			w, pods := damageable(t)
			whole := maps.Clone(w.journal.records)
			want, instances := w.living(), w.instances()
			keys := slices.Sorted(maps.Keys(whole))
			for n, key := range keys {
				w.journal.records = maps.Clone(whole)
				damage(w.journal.records, key, keys[(n+1)%len(keys)])

				o := newFollower(w)
				all, err := w.journal.Load(t.Context())
				require.NoError(t, err)
				_ = o.facts.Apply(true, all, nil)
				w.restart()
				traceless := name == "removed" && !slices.ContainsFunc([]string{"elan/", "vpn/", "block/", "lease/"}, func(kind string) bool { return strings.HasPrefix(key, kind) })
				if name != "removed" && key != "adopting/" {
					require.NotEmpty(t, o.store.Cluster().Damaged, key)
				}
				if !traceless {
					require.NotEmpty(t, w.damaged(), key)
					require.False(t, w.assigner.InUseKnown(), key)
				}
				w.put(pods...)
				w.putRest()
				w.complete()
				w.assigner.PoolsAreWhole()
				w.sync()

				got := w.living()
				require.Equal(t, want, got, key)
				require.Equal(t, instances, w.instances(), key)
				require.Empty(t, w.damaged(), key)
				w.restart()
				require.Empty(t, w.damaged(), "%s: the written record is valid", key)
			}
		})
	}
}

// damageable returns a world with a backend and a record of every kind.
func damageable(t *testing.T) (w *world, pods []*coe.Pod) {
	w, pods = withBackend(t)
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	w.setPools(append(w.pools, pool("services", "10.96.0.0/24", "", "", ""))...)
	w.restart()
	w.put(pods...)
	w.putRest()
	w.complete()
	w.assigner.PoolsAreWhole()
	w.sync()
	rows := w.inBackend()
	w.inUse = func() ([]inuse.Interface, error) { return slices.Clone(rows), nil }
	w.confirmed = keysOf(rows)
	for node, fact := range w.store.Cluster().Numbers {
		w.ports = append(w.ports, inuse.Node{Node: node, Address: w.nodes.Address(fact.Number)})
	}
	kinds := map[string]bool{}
	for key := range w.journal.records {
		kind, _, _ := strings.Cut(key, "/")
		kinds[kind] = true
	}
	require.Equal(t, []string{"block", "elan", "former", "lease", "networks", "node", "service", "vpn"}, sorted(kinds))
	return w, pods
}

func keysOf(rows []inuse.Interface) (keys []coe.LeaseKey) {
	for _, u := range rows {
		keys = append(keys, coe.LeaseKey{PodUID: u.PodUID, InterfaceUID: u.InterfaceUID})
	}
	return keys
}

// putRest puts the nodes and services of a damageable world.
func (w *world) putRest() {
	w.store.Update(func(tx *state.Tx) {
		for n, address := range []string{n1, n2} {
			tx.PutNode(coe.RESTCONF, &coe.Node{UID: address, HostName: []string{"a", "b"}[n], InternalIP: addr(address)})
		}
		for _, uid := range []string{"s1", "s2"} {
			tx.PutService(coe.RESTCONF, &coe.Service{UID: uid, Namespace: "ns1"})
		}
	})
}

// instances returns the elan-instances and vpn-instances by name.
func (w *world) instances() map[string]any {
	all := map[string]any{}
	for _, ns := range w.store.Namespaces() {
		v := w.store.View(ns)
		for name, e := range v.ELANs {
			all[name] = *e
		}
		if v.VPN != nil {
			all[v.VPN.Name] = *v.VPN
		}
	}
	return all
}
