package ovn

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// TestMatchNames: names in matches are valid, and different names stay different.
func TestMatchNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a-b", "a_b", "a.b", "a:b", "a/b", "a.2db", "a..b", "a", "1a", "-1a", "A-b", "a--b", "ü"} {
		m := netvirt.Model{}
		m.Add(netvirt.ACL{Name: name, Namespace: "a"})
		for _, set := range encodeModel(testCodec, m) {
			row := set.Rows[0].Value.(*nb.PortGroup)
			require.Regexp(t, `^[A-Za-z_.][A-Za-z0-9_.]*$`, row.Name)
			require.Empty(t, seen[row.Name], name)
			seen[row.Name] = name
		}
	}
	require.Equal(t, "a-b", seen["owner..a_b"])
}

// TestACLRows: policies are encoded to these matches.
func TestACLRows(t *testing.T) {
	m := netvirt.Model{}
	m.Add(
		netvirt.ACL{Name: "web:in", Namespace: "web", Isolates: netvirt.Ingress},
		netvirt.ACL{Name: "web:out", Namespace: "web", Isolates: netvirt.Egress, Withholds: "tcp:30000-32767,udp:30000-32767"},
		netvirt.ACL{Name: "web:node", Namespace: "web", Yields: true},
		netvirt.ACE{ACL: "web:node", Namespace: "web", Name: "egress", Direction: netvirt.Egress, Family: netvirt.IPv4, Remote: "node"},
		netvirt.RemoteGroup{Name: "peers"}, netvirt.RemoteGroup{Name: "node"},
		netvirt.ACE{
			ACL: "web:in", Namespace: "web", Name: "ingress-1", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: "peers",
			Ports: "sctp,tcp:80,tcp:443,udp:50-60",
		},
		netvirt.ACE{ACL: "web:in", Namespace: "web", Name: "ingress-2", Direction: netvirt.Ingress, Family: netvirt.IPv6},
		netvirt.ACE{ACL: "web:out", Namespace: "web", Name: "egress-1", Direction: netvirt.Egress, Family: netvirt.IPv6, Remote: "peers"},
	)
	var have []string
	rows, links := flat(encodeModel(testCodec, m))
	for _, r := range rows {
		if acl, ok := r.Value.(*nb.ACL); ok {
			have = append(have, fmt.Sprintf("%s %d %s %s %s", acl.Direction, acl.Priority, acl.Action, acl.Match, acl.Options["apply-after-lb"]))
		}
	}
	require.ElementsMatch(t, []string{
		"to-lport 998 drop outport == @owner..web.3ain && ip ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && (nd || nd_rs || nd_ra) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && (ip4.src == 169.254.169.5 || ip6.src == fd69::5) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && ip4 && ip4.src == $owner..peers..ip4" +
			" && (50 <= udp.dst <= 60 || sctp || tcp.dst == {80, 443}) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && ip6 ",
		"from-lport 998 drop inport == @owner..web.3aout && ip true",
		"from-lport 999 allow-related inport == @owner..web.3anode && ip4 && ip4.dst == $owner..node..ip4 true",
		"from-lport 1000 drop inport == @owner..web.3aout && ip && (30000 <= tcp.dst <= 32767 || 30000 <= udp.dst <= 32767) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && (nd || nd_rs || nd_ra) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && ((ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67) || " +
			"(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547)) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && ip6 && ip6.dst == $owner..peers..ip6 true",
	}, have)
	require.Len(t, links, len(have))
}

// TestLogRows: an ACL that logs has these columns, and others have none of them. ACLs of a namespace with one
// direction and verdict share a meter.
func TestLogRows(t *testing.T) {
	long := strings.Repeat("n", 60)
	m := netvirt.Model{}
	m.Add(
		netvirt.ACL{Name: "web:isolated:ingress", Namespace: "web", Isolates: netvirt.Ingress, Logs: true},
		netvirt.ACL{Name: "web:isolated:egress", Namespace: "web", Isolates: netvirt.Egress},
		netvirt.ACL{Name: "web:pods", Namespace: "web", Logs: true},
		netvirt.ACL{Name: "long", Namespace: long, Logs: true},
		netvirt.ACL{Name: long + ":isolated:egress", Namespace: long, Isolates: netvirt.Egress, Logs: true},
		netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: "ingress:web:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: `a"\ é`, Direction: netvirt.Ingress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "long", Namespace: long, Name: "egress:1", Direction: netvirt.Egress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "long", Namespace: long, Name: "egress:2", Direction: netvirt.Egress, Family: netvirt.IPv4},
	)
	var (
		have   []string
		limits = map[string]string{} // by name of the meter
		bands  = map[string]*nb.MeterBand{}
	)
	rows, _ := flat(encodeModel(testCodec, m))
	for _, r := range rows {
		switch o := r.Value.(type) {
		case *nb.Meter:
			require.Len(t, o.Bands, 1)
			limits[o.Name] = o.Bands[0]
			require.Equal(t, nb.MeterUnitPktps, o.Unit)
		case *nb.MeterBand:
			bands[o.UUID] = o
		}
	}
	require.Len(t, limits, 4)
	used := map[string][]string{}
	for _, r := range rows {
		acl, ok := r.Value.(*nb.ACL)
		switch {
		case !ok:
		case acl.Log:
			have = append(have, *acl.Severity+" "+*acl.Name)
			require.LessOrEqual(t, len(*acl.Name), 63)
			require.Equal(t, 100, bands[limits[*acl.Meter]].Rate)
			used[*acl.Meter] = append(used[*acl.Meter], *acl.Severity+" "+acl.Direction)
		default:
			require.True(t, acl.Name == nil && acl.Severity == nil && acl.Meter == nil)
		}
	}
	require.ElementsMatch(t, []string{
		"warning web:isolated:ingress", "info web:ingress:web:0:ipv4", "info web:a____",
		"info " + long[:54] + "~273c4fbe", "info " + long[:54] + "~e793b83e", "warning " + long[:54] + "~8ad55cde",
	}, have)
	require.Equal(t, map[string][]string{
		"owner..web.3aisolated.3aingress.3adrop":          {"warning to-lport"},
		"owner..web.3aisolated.3aingress.3aallow":         {"info to-lport", "info to-lport"},
		"owner.." + long + ".3aisolated.3aegress.3adrop":  {"warning from-lport"},
		"owner.." + long + ".3aisolated.3aegress.3aallow": {"info from-lport", "info from-lport"},
	}, used)
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
