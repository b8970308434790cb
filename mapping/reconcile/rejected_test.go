package reconcile_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// podOf is the model of a namespace with one pod of a given address.
func podOf(namespace, address string) netvirt.Model {
	elan, name := "192.168.0.1:"+namespace, namespace+":pod"
	addr := netip.MustParseAddr(address)
	prefix := netip.MustParsePrefix("169.254.1.1/32")
	m := netvirt.Model{}
	m.Add(
		netvirt.ELANInstance{Name: elan},
		netvirt.VPNInstance{Name: namespace, Namespace: namespace, Transit: "100:1"},
		netvirt.Subnet{ELAN: elan, VPN: namespace, Prefix: prefix, Gateway: prefix.Addr()},
		netvirt.Interface{Name: name, Namespace: namespace, Pod: "pod", PodUID: "uid", ParentInterface: netvirt.PortName(name, "uid")},
		netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan},
		netvirt.MACEntry{Interface: name, Namespace: namespace, Address: addr},
		netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: namespace},
		netvirt.Adjacency{Interface: name, Namespace: namespace, Address: addr, ELAN: elan, Network: prefix, Gateway: prefix.Addr()},
	)
	return m
}

func transit() netvirt.Model {
	m := netvirt.Model{}
	m.Add(netvirt.Transit{RouteTarget: "100:1"})
	return m
}

func requireNoProblem(t *testing.T, l *reconcile.Loop) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, s := range l.Status().Scopes {
			if len(s.Problems) > 0 {
				return false
			}
		}
		return true
	}, patience.Patience, 10*time.Millisecond, "problems stay: %v", l.Status().Scopes)
}

// awaitProblems waits until the loop is in sync and a scope has problems, and returns them.
func awaitProblems(t *testing.T, l *reconcile.Loop) (all []coe.Problem) {
	t.Helper()
	require.Eventually(t, func() bool {
		st := l.Status()
		all = nil
		for _, s := range st.Scopes {
			all = append(all, s.Problems...)
		}
		return st.InSync && len(all) > 0
	}, patience.Patience, time.Millisecond)
	return all
}

// TestRejectedForNow: what stands in the way of an object may be of another
// scope, and go with it.
func TestRejectedForNow(t *testing.T) {
	t.Run("an address that another namespace has still", func(t *testing.T) {
		w := newWorld()
		w.models[netvirt.Cluster], w.models["z"] = transit(), podOf("z", "10.0.0.5")
		l, _ := w.start(t)
		w.requireInSync(t, l)
		w.set(func() { w.models["a"] = podOf("a", "10.0.0.5") })
		l.Mark("a")
		require.Eventually(t, func() bool { return len(l.Status().Scopes) == 3 && l.Status().InSync }, patience.Patience, time.Millisecond)
		w.set(func() { w.models["z"] = nil })
		l.Mark("z")
		requireNoProblem(t, l)
		w.requireInSync(t, l)
	})
	t.Run("what it refers to was not there", func(t *testing.T) {
		w := newWorld()
		w.models["a"] = podOf("a", "10.0.0.5")
		l, _ := w.start(t)
		l.Mark("a")
		require.Eventually(t, func() bool { return l.Status().InSync }, patience.Patience, time.Millisecond)
		w.set(func() { w.models[netvirt.Cluster] = transit() })
		l.Mark(netvirt.Cluster)
		requireNoProblem(t, l)
		w.requireInSync(t, l)
	})
	t.Run("a dependent whose cause is mended", func(t *testing.T) {
		w := newWorld()
		w.models[netvirt.Cluster] = transit()
		m := podOf("a", "10.0.0.5")
		bad := netvirt.VPNInstance{Name: "a", Namespace: "a", Transit: "100:9"}
		m.Add(bad)
		w.models["a"] = m
		l, _ := w.start(t)
		l.Mark("a")
		require.Eventually(t, func() bool { return l.Status().InSync }, patience.Patience, time.Millisecond)
		w.set(func() { w.models["a"] = podOf("a", "10.0.0.5") })
		l.Mark("a")
		requireNoProblem(t, l)
		w.requireInSync(t, l)
	})
}

// TestRejectedUpdate: the version that the backend has stays, and so does what
// that needs.
func TestRejectedUpdate(t *testing.T) {
	w := newWorld()
	before := podOf("a", "10.0.0.5")
	w.models[netvirt.Cluster], w.models["a"] = transit(), before
	l, _ := w.start(t)
	w.requireInSync(t, l)

	moved := podOf("a", "10.0.0.5")
	for k, o := range moved {
		switch o := o.(type) {
		case netvirt.ELANInstance:
			delete(moved, k)
			moved.Add(netvirt.ELANInstance{Name: "192.168.0.2:a"})
		case netvirt.Subnet:
			delete(moved, k)
			o.ELAN = "192.168.0.2:a"
			moved.Add(o)
		case netvirt.ELANInterface:
			o.ELAN = "192.168.0.2:a"
			moved.Add(o)
		case netvirt.Adjacency:
			o.ELAN = "192.168.0.2:a"
			moved.Add(o)
		}
	}
	w.set(func() {
		w.reject = func(c netvirt.Change) bool {
			_, is := c.New.(netvirt.ELANInterface)
			return is
		}
		w.models["a"] = moved
	})
	l.Mark("a")
	problems := awaitProblems(t, l)
	require.Len(t, problems, 1)
	require.Equal(t, "elan-interface", problems[0].Kind)
	w.set(func() { w.reject = nil })
	requireNoProblem(t, l)
	w.requireInSync(t, l)
}

// TestRejectedDeletion: an object that an external writer deleted is not a problem any more.
func TestRejectedDeletion(t *testing.T) {
	w := newWorld()
	w.want("a", 2)
	l, _ := w.start(t)
	w.requireInSync(t, l)
	<-w.watching
	w.set(func() { w.reject = func(c netvirt.Change) bool { return c.New == nil } })
	w.want("a", 1)
	l.Mark("a")
	require.Eventually(t, func() bool {
		st := l.Status()
		return st.InSync && len(st.Scopes) == 2 && len(st.Scopes[1].Problems) == 1
	}, patience.Patience, time.Millisecond)
	have, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	w.set(func() {
		have = netvirt.Model{}
		have.Add(w.models["a"][netvirt.Key{Kind: netvirt.KindVPNInstance, Name: "a-0"}])
	})
	all, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(all, have)))
	w.changed()
	requireNoProblem(t, l)
}

// TestRejectedACL: a new pod whose ACL is rejected gets no port, also if the backend has one for
// another pod of its name. An existing pod keeps its port and its former ACLs.
func TestRejectedACL(t *testing.T) {
	acl := netvirt.ACL{Name: "a:isolated:ingress", Namespace: "a", Isolates: netvirt.Ingress}
	former := netvirt.ACL{Name: "a:isolated:egress", Namespace: "a", Isolates: netvirt.Egress}
	port := netvirt.Interface{Name: "a:pod"}.Key()
	joining := func(m netvirt.Model, acls ...netvirt.ACL) netvirt.Model {
		m = maps.Clone(m)
		var names []string
		for _, one := range acls {
			m.Add(one)
			names = append(names, one.Name)
		}
		m.Add(netvirt.InterfaceACL{Interface: port.Name, Namespace: "a", SecurityGroups: netvirt.NewNameList(names...)})
		return m
	}
	ofPod := func(uid string) netvirt.Model {
		m := podOf("a", "10.0.0.5")
		i := m[port].(netvirt.Interface)
		i.PodUID = uid
		m.Add(i)
		return m
	}
	pod := ofPod("one")
	for name, c := range map[string]struct {
		before, want, left netvirt.Model
		is                 bool // confirmed
	}{
		"new pod":                  {netvirt.Model{}, joining(pod, acl), netvirt.Model{}, false},
		"existing pod":             {pod, joining(pod, acl), pod, true},
		"existing pod with an ACL": {joining(pod, former), joining(pod, former, acl), joining(pod, former), true},
		"other pod of its name":    {ofPod("other"), joining(pod, acl), ofPod("other"), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.models[netvirt.Cluster], w.models["a"] = transit(), c.want
			w.reject = func(change netvirt.Change) bool { return change.New == netvirt.Object(acl) }
			before := maps.Clone(c.before)
			maps.Copy(before, transit())
			require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(nil, before)))
			l, _ := w.start(t)
			problems := awaitProblems(t, l)
			have, err := w.Backend.Read(t.Context())
			require.NoError(t, err)
			for _, k := range []netvirt.Key{port, netvirt.InterfaceACL{Interface: port.Name}.Key(), netvirt.VPNInterface{Name: port.Name}.Key()} {
				require.Equal(t, c.left[k], have[k], "%s", k)
			}
			lease := &coe.Lease{Namespace: "a", Name: port.Name, PodUID: "one", Node: netip.MustParseAddr("192.168.0.1")}
			require.Equal(t, c.is, l.Confirms(lease))
			require.True(t, slices.ContainsFunc(problems, func(p coe.Problem) bool {
				return strings.Contains(p.Message, acl.Key().String()) && p.Name == port.Name
			}), "%v", problems)

			w.set(func() { w.reject = nil })
			requireNoProblem(t, l)
			w.requireInSync(t, l)
			require.True(t, l.Confirms(lease))
		})
	}
}
