package ovn_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// northd is an OVN without hosts, its backend and what the backend has.
type northd struct {
	t    testing.TB
	lab  *ovnhost.Lab
	b    *ovn.Backend
	have netvirt.Model
}

// with returns the model with further objects.
func (n *northd) with(objects ...netvirt.Object) netvirt.Model {
	m := netvirt.Model{}
	m.Apply(netvirt.Diff(nil, n.have))
	m.Add(objects...)
	return m
}

// write writes a model, and waits until the southbound database has it. It returns how often
// the nodes northd and lflow of northd's engine have computed everything again. Nothing waits
// with nb_cfg, which also makes them compute.
func (n *northd) write(m netvirt.Model) int {
	n.t.Helper()
	before := n.recomputes()
	require.NoError(n.t, n.b.Write(n.t.Context(), netvirt.Diff(n.have, m)))
	n.have = m
	// northd computes again when it gets its own writes back. It has finished that when it
	// has translated two later changes.
	for _, prefixes := range []netvirt.PrefixList{"10.99.0.0/16", ""} {
		later := n.with(netvirt.RemoteGroup{Name: "later", Prefixes: prefixes})
		require.NoError(n.t, n.b.Write(n.t.Context(), netvirt.Diff(n.have, later)))
		n.have = later
		require.Eventually(n.t, func() bool {
			out, err := n.lab.SBCtl(n.t.Context(), "--bare", "--columns=addresses", "find", "Address_Set", "name=coe_bridge..later..ip4")
			return err == nil && strings.TrimSpace(out) == string(prefixes)
		}, 5*time.Minute, 20*time.Millisecond)
	}
	return n.recomputes() - before
}

func (n *northd) recomputes() int {
	n.t.Helper()
	sum, err := n.lab.Recomputes(n.t.Context())
	require.NoError(n.t, err)
	return sum
}

// podOf returns a further pod of bulk's first namespace and node.
func podOf(last byte, objects ...netvirt.Object) []netvirt.Object {
	const ns, elan = "namespace-0", "192.168.0.10:namespace-0"
	name, address := fmt.Sprintf("%s:further-%d", ns, last), netip.AddrFrom4([4]byte{10, 0, 0, last})
	mac := fmt.Sprintf("0a:58:0a:00:00:%02x", last)
	return append(objects,
		netvirt.Interface{Name: name, Namespace: ns, Pod: "further", PodUID: name, UID: name, ParentInterface: netvirt.PortName(name, name)},
		netvirt.ELANInterface{Name: name, Namespace: ns, ELAN: elan, Chassis: "node-0"},
		netvirt.MACEntry{Interface: name, Namespace: ns, MAC: mac, Address: address},
		netvirt.VPNInterface{Name: name, Namespace: ns, VPN: ns},
		netvirt.Adjacency{
			Interface: name, Namespace: ns, Address: address, MAC: mac, ELAN: elan,
			Network: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"),
		},
	)
}

// TestNorthdComputesLittle: ovn-northd does not compute everything again when a peer of
// policies changes its labels. When a pod with 20 policies starts, it does so only if the
// release of OVN does so for every pod (before 23.09).
func TestNorthdComputesLittle(t *testing.T) {
	lab := ovnhost.ForTest(t)
	n := &northd{t: t, lab: lab, b: withLayout(t, lab, ovn.LayoutNode)}

	const ns = "namespace-0"
	groups, remote := []string{"in"}, []string{}
	objects := append(bulk(30, 2, 3), netvirt.ACL{Name: "in", Namespace: ns, Isolates: netvirt.Ingress})
	for i := range 20 {
		g, acl := fmt.Sprintf("peers-%d", i), fmt.Sprintf("policy-%d", i)
		groups, remote = append(groups, acl), append(remote, g)
		objects = append(objects, netvirt.RemoteGroup{Name: g}, netvirt.ACL{Name: acl, Namespace: ns}, netvirt.ACE{
			ACL: acl, Namespace: ns, Name: "ingress", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: g, Ports: "tcp:80",
		})
	}
	joined := func(name string, remote []string) netvirt.InterfaceACL {
		return netvirt.InterfaceACL{
			Interface: name, Namespace: ns, SecurityGroups: netvirt.NewNameList(groups...), RemoteGroups: netvirt.NewNameList(remote...),
		}
	}
	objects = append(objects, joined("namespace-0:pod-0", remote), joined("namespace-0:pod-1", remote))
	require.Positive(t, n.write(withGateways(n.with(objects...))))
	// On a busy machine northd can still compute again what it had before. So one of some changes counts.
	const tries = 10
	again := 0
	for i := range tries {
		if again = n.write(n.with(joined("namespace-0:pod-1", remote[:10+i%2]))); again == 0 {
			break
		}
	}
	require.Zero(t, again, "labels change")

	plain := n.write(n.with(podOf(100)...))
	policies := n.write(n.with(podOf(101, joined("namespace-0:further-101", remote))...))
	t.Logf("computed again: %d without policies, %d with 20", plain, policies)
	if plain == 0 {
		require.Zero(t, policies, "a pod with policies starts")
	}
}

// flows waits until the southbound database has the model, and returns the number of its logical flows.
func (n *northd) flows(m netvirt.Model) int {
	n.t.Helper()
	n.write(m)
	return logicalFlows(n.t, n.lab)
}

// logicalFlows returns the number of logical flows in the southbound database.
func logicalFlows(t testing.TB, lab *ovnhost.Lab) int {
	t.Helper()
	out, err := lab.SBCtl(t.Context(), "--bare", "--columns=_uuid", "list", "Logical_Flow")
	require.NoError(t, err)
	return len(strings.Fields(out))
}

// TestPlacesCostNothing: groups for the places of clients make no logical flows. Only a service with
// places does.
func TestPlacesCostNothing(t *testing.T) {
	lab := ovnhost.ForTest(t)
	n := &northd{t: t, lab: lab, b: withLayout(t, lab, ovn.LayoutNode)}

	m := withGateways(liveModel(false))
	without := n.flows(m)
	m.Add(nodesOfLive...)
	require.Equal(t, without, n.flows(withGateways(m)), "nodes")
	w := &placesWorld{t: t}
	with := n.flows(withGateways(w.model(false, 0, offered{onHost1, onHost2, everywhere}, offered{six1, nowhere, six1})))
	t.Logf("%d logical flows, %d with a service of 2 VIPs and 2 places", without, with)
	require.Greater(t, with, without)
}
