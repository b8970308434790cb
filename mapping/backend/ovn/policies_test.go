package ovn

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// joining returns the model of a namespace with policies, and the InterfaceACL by which its pod
// joins all of them. Each has a port group and a remote group.
func joining(policies int) (netvirt.Model, netvirt.InterfaceACL) {
	const name, elan = "web:front", "192.0.2.1:web"
	m := netvirt.Model{}
	m.Add(
		netvirt.VPNInstance{Name: "web", Namespace: "web", RouteDistinguisher: "100:2"},
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.Subnet{ELAN: elan, VPN: "web", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
		netvirt.ACL{Name: "web:ingress", Namespace: "web", Isolates: netvirt.Ingress},
		netvirt.ACL{Name: "web:egress", Namespace: "web", Isolates: netvirt.Egress},
	)
	groups, remote := []string{"web:ingress", "web:egress"}, []string{}
	for n := range policies {
		acl, group := fmt.Sprintf("web:policy-%d", n), fmt.Sprintf("peers-%d", n)
		m.Add(
			netvirt.ACL{Name: acl, Namespace: "web"}, netvirt.RemoteGroup{Name: group},
			netvirt.ACE{ACL: acl, Namespace: "web", Name: "ingress", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: group, Ports: "tcp:80"},
		)
		groups, remote = append(groups, acl), append(remote, group)
	}
	return m, netvirt.InterfaceACL{
		Interface: name, Namespace: "web", SecurityGroups: netvirt.NewNameList(groups...), RemoteGroups: netvirt.NewNameList(remote...),
	}
}

// joiningPod returns the objects of the pod of joining.
func joiningPod() netvirt.Model {
	const name, elan = "web:front", "192.0.2.1:web"
	address := netip.MustParseAddr("10.1.0.2")
	m := netvirt.Model{}
	m.Add(
		netvirt.Interface{Name: name, Namespace: "web", Pod: "front", PodUID: "uid", UID: "uid", ParentInterface: "tap"},
		netvirt.ELANInterface{Name: name, Namespace: "web", ELAN: elan, Chassis: "node1"},
		netvirt.MACEntry{Interface: name, Namespace: "web", MAC: "0a:58:0a:01:00:02", Address: address},
		netvirt.VPNInterface{Name: name, Namespace: "web", VPN: "web"},
		netvirt.Adjacency{
			Interface: name, Namespace: "web", Address: address, MAC: "0a:58:0a:01:00:02",
			ELAN: elan, Network: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1"),
		},
	)
	return m
}

// operations returns the operations of the transaction that makes changes, and makes them to
// the mirror.
func operations(t *testing.T, m *mirror, changes []netvirt.Change) []ovsdb.Operation {
	t.Helper()
	ahead := m.stage()
	for _, s := range steps(changes) {
		require.NoError(t, ahead.apply(s))
	}
	ops := ahead.transaction().Operations()
	ahead.commit()
	return ops
}

// TestJoin: a pod joins 20 policies in the transaction that creates its port, with at most 45
// operations. Later changes of its policies leave its port alone.
func TestJoin(t *testing.T) {
	m := newMirror(testCodec)
	policies, acl := joining(20)
	operations(t, m, netvirt.Diff(nil, policies))
	pod := joiningPod()
	pod.Add(acl)
	ops := operations(t, m, netvirt.Diff(nil, pod))
	require.LessOrEqual(t, len(ops), 45)
	count := map[string]int{}
	for _, o := range ops {
		count[string(o.Verb)+" "+o.Table.Name]++
	}
	require.Equal(t, map[string]int{
		"insert Logical_Switch_Port": 1, "mutate Logical_Switch": 1, "mutate Port_Group": 22, "mutate Address_Set": 20,
	}, count)

	relabelled := acl
	relabelled.RemoteGroups = "peers-1,peers-2"
	for _, o := range operations(t, m, []netvirt.Change{{Old: acl, New: relabelled}}) {
		require.Equal(t, nb.AddressSetTable, o.Table.Name)
		require.Equal(t, ovsdb.Mutate, o.Verb)
	}
	fewer := relabelled
	fewer.SecurityGroups = "web:ingress"
	for _, o := range operations(t, m, []netvirt.Change{{Old: relabelled, New: fewer}}) {
		require.Equal(t, nb.PortGroupTable, o.Table.Name)
	}
	require.Empty(t, operations(t, m, []netvirt.Change{{Old: fewer, New: fewer}}))
}

// TestRemoteGroupComesLater: an interface joins a remote group when the group is created, and
// again when it is created a second time.
func TestRemoteGroupComesLater(t *testing.T) {
	m := newMirror(testCodec)
	policies, acl := joining(0)
	operations(t, m, netvirt.Diff(nil, policies))
	acl.RemoteGroups = "late,never"
	pod := joiningPod()
	pod.Add(acl)
	operations(t, m, netvirt.Diff(nil, pod))
	group := netvirt.RemoteGroup{Name: "late"}
	for range 2 {
		ops := operations(t, m, []netvirt.Change{{New: group}})
		require.Len(t, ops, 3, "two sets, one of them with the address")
		links := m.rows(netvirt.Key{Kind: netvirt.KindInterface, Name: "web:front"}).Links
		at := slices.IndexFunc(links, func(l ovsdb.Link) bool { return l.Table.Name == nb.AddressSetTable })
		require.Equal(t, "10.1.0.2", links[at].Child)
		require.Len(t, operations(t, m, []netvirt.Change{{Old: group}}), 2, "the members are gone with the sets")
	}
}

// TestOverlappingAddresses: a pod is not a member of a remote group of another namespace that
// has its address.
func TestOverlappingAddresses(t *testing.T) {
	m := netvirt.Model{}
	one, acl := joining(1)
	m.Add(netvirt.RemoteGroup{Name: "peers-0", Namespace: "other"})
	for _, o := range one {
		if o.Key().Kind != netvirt.KindRemoteGroup {
			m.Add(o)
		}
	}
	for _, o := range joiningPod() {
		m.Add(o)
		switch o := o.(type) {
		case netvirt.Interface:
			o.Name, o.Namespace = "other:front", "other"
			m.Add(o)
		case netvirt.ELANInterface:
			o.Name, o.Namespace, o.ELAN = "other:front", "other", "192.0.2.1:other"
			m.Add(o)
		case netvirt.MACEntry:
			o.Interface, o.Namespace = "other:front", "other"
			m.Add(o)
		}
	}
	acl.Interface, acl.Namespace, acl.SecurityGroups = "other:front", "other", "web:ingress"
	m.Add(acl, netvirt.ELANInstance{Name: "192.0.2.1:other", SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70001})
	rows, links := flat(encodeModel(testCodec, m))
	require.Equal(t, m, loadRows(t, testCodec, rows, links).model())
}

// isolatedPods returns the model of pods with numbers and a UID, of which each may connect to each other. A rule
// with the name of its remote group allows that; if it is empty, no policy isolates the pods.
func isolatedPods(first, last int, uid, rule string) netvirt.Model {
	m := netvirt.Model{}
	groups := netvirt.NewNameList("web:isolated", "web:pods")
	if rule != "" {
		m.Add(
			netvirt.ACL{Name: "web:isolated", Namespace: "web", Isolates: netvirt.Ingress}, netvirt.ACL{Name: "web:pods", Namespace: "web"},
			netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: "ingress", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: rule},
			netvirt.RemoteGroup{Name: rule},
		)
	}
	for n := first; n <= last; n++ {
		name := fmt.Sprintf("web:pod-%d", n)
		m.Add(netvirt.Interface{Name: name, Namespace: "web", PodUID: uid})
		if rule != "" {
			m.Add(netvirt.InterfaceACL{Interface: name, Namespace: "web", SecurityGroups: groups, RemoteGroups: netvirt.NameList(rule)})
		}
	}
	return m
}

// requireOpen requires that interfaces of a model, as far as it has them, may connect to each other.
func requireOpen(t *testing.T, m netvirt.Model, names []string) {
	t.Helper()
	acls := map[string]netvirt.InterfaceACL{}
	for _, name := range names {
		acls[name], _ = m[netvirt.InterfaceACL{Interface: name}.Key()].(netvirt.InterfaceACL)
	}
	rule, _ := m[netvirt.ACE{ACL: "web:pods", Name: "ingress"}.Key()].(netvirt.ACE)
	for _, to := range names {
		for _, from := range names {
			isolated := slices.Contains(acls[to].SecurityGroups.All(), "web:isolated")
			require.True(t, !isolated || slices.Contains(acls[from].RemoteGroups.All(), rule.Remote), "from %s to %s", from, to)
		}
	}
}

// TestPoliciesChangeTogether: while policies begin, change and end for more pods than a transaction has,
// the pods change otherwise, and other pods come and go, no connection closes that is allowed before and
// after. No reference dangles.
func TestPoliciesChangeTogether(t *testing.T) {
	const batch = 3
	have := isolatedPods(0, 30, "", "")
	for i, rule := range []string{"peers:1", "peers:2", "peers:2", ""} {
		first := 2 * (i + 1)
		want := isolatedPods(first, first+30, fmt.Sprint(i), rule)
		var stay []string
		for k := range have {
			if _, stays := want[k]; stays && k.Kind == netvirt.KindInterface {
				stay = append(stay, k.Name)
			}
		}
		require.Greater(t, len(stay), 2*batch)
		all := transactions(steps(netvirt.Diff(have, want)), batch)
		require.Greater(t, len(all), 1)
		for _, tx := range all {
			others := 0
			for _, s := range tx {
				have.Apply(s.changes)
				if !s.isOfPolicies() {
					others++
				}
			}
			require.LessOrEqual(t, others, batch)
			requireOpen(t, have, stay)
			for _, o := range have {
				for _, ref := range o.Refs() {
					require.Contains(t, have, ref, "%s refers to it", o.Key())
				}
			}
		}
		require.Equal(t, want, have)
	}
}

// TestPoliciesAreInOneTransaction: a small write is one transaction, and a large one has the policies of
// policyBatch times as many interfaces in one.
func TestPoliciesAreInOneTransaction(t *testing.T) {
	const batch, pods = 2, 2 * policyBatch
	require.Len(t, transactions(steps(netvirt.Diff(nil, isolatedPods(0, batch-1, "", "peers:1"))), batch), 1)
	change := func(last int) int {
		return len(transactions(steps(netvirt.Diff(isolatedPods(1, last, "", ""), isolatedPods(1, last, "", "peers:1"))), batch))
	}
	require.Equal(t, 1, change(pods-3), "and the steps of two ACLs and a remote group")
	require.Equal(t, 2, change(pods-2))
}
