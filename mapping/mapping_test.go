package mapping_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	uid1 = "8f2a6d5e-0000-4000-8000-000000000001"
	uid2 = "8f2a6d5e-0000-4000-8000-000000000002"
	svc1 = "8f2a6d5e-0000-4000-8000-0000000000a1"
	svc2 = "8f2a6d5e-0000-4000-8000-0000000000a2"
)

var (
	settings = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600, ManagementPorts: true}
	// withoutACLs are the settings for a backend that cannot enforce policies.
	withoutACLs = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600, Limits: netvirt.Limits{NoACLs: true}}
)

func model(objects ...netvirt.Object) netvirt.Model {
	m := netvirt.Model{}
	m.Add(objects...)
	return m
}

// instances returns the objects that the first pod of a namespace on a node adds, beside
// its own.
func instances() []netvirt.Object {
	return []netvirt.Object{
		netvirt.ELANInstance{Name: "192.168.33.12:default", SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.VPNInstance{Name: "default", Namespace: "default", RouteDistinguisher: "100:2", Transit: "100:1"},
		netvirt.Subnet{
			ELAN: "192.168.33.12:default", VPN: "default", Prefix: netip.MustParsePrefix("10.11.2.24/29"),
			Gateway: netip.MustParseAddr("10.11.2.25"), DNS: "10.96.0.10",
		},
	}
}

func attachment(uid, name, addr string) []netvirt.Object {
	full := "default:" + name
	return []netvirt.Object{
		netvirt.Interface{Name: full, Namespace: "default", Pod: name, PodUID: uid, UID: uid, ParentInterface: netvirt.PortName(full, uid)},
		netvirt.ELANInterface{Name: full, Namespace: "default", ELAN: "192.168.33.12:default", Chassis: "node1"},
		netvirt.MACEntry{Interface: full, Namespace: "default", MAC: "0a:58:0a:0b:02:1c", Address: netip.MustParseAddr(addr)},
		netvirt.VPNInterface{Name: full, Namespace: "default", VPN: "default"},
		netvirt.Adjacency{
			Interface: full, Namespace: "default", Address: netip.MustParseAddr(addr), MAC: "0a:58:0a:0b:02:1c",
			ELAN: "192.168.33.12:default", Network: netip.MustParsePrefix("10.11.2.24/29"), Gateway: netip.MustParseAddr("10.11.2.25"),
		},
	}
}

// TC 1 of the specification: create a pod within a node under a namespace.
func TestPod(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	got, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Equal(t, model(append(instances(), attachment(uid1, "busybox1", "10.11.2.28")...)...), got)
}

// A pod has DHCP if it or its pool asks for it, and if the backend decides on DHCP. Then its subnet has a lease time.
func TestDHCP(t *testing.T) {
	unable := settings
	unable.Limits.NoDHCP = true
	for name, c := range map[string]struct {
		pod, pool bool
		settings  mapping.Settings
		want      bool
	}{
		"nobody asks":    {settings: settings},
		"the pod":        {pod: true, settings: settings, want: true},
		"the pool":       {pool: true, settings: settings, want: true},
		"of the backend": {pod: true, pool: true, settings: unable},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
			synth.AddPod(&v, uid1, "busybox1", "10.11.2.28").DHCP = c.pod
			v.Blocks[0].DHCP = c.pool
			got, problems := mapping.Map(synth.WithVIPs(v), c.settings)
			require.Empty(t, problems)
			require.Equal(t, c.want, got[netvirt.Key{Kind: netvirt.KindInterface, Name: "default:busybox1"}].(netvirt.Interface).DHCP)
			subnet := got[instances()[2].Key()].(netvirt.Subnet)
			require.Equal(t, c.want, subnet.LeaseTime == 3600)
			require.Equal(t, !c.want, subnet.LeaseTime == 0)
		})
	}
}

// If nodes lead pods of isolated namespaces to services, a node's port has an address of the network of nodes, while the node has a number.
func TestNodePortOfIsolatedServices(t *testing.T) {
	s := mapping.Settings{
		Isolation: mapping.IsolationNamespace, NodeAddresses: true, DHCPLeaseTime: 3600,
		Limits: netvirt.Limits{NodesBalance: true, NoPlaces: true},
	}
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Networks = &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, Isolated: true, NodesBalance: true}
	port := func() netvirt.NodePort {
		m, problems := mapping.Map(synth.WithVIPs(v), s)
		require.Empty(t, problems)
		return m[netvirt.NodePort{ELAN: "192.168.33.12:default"}.Key()].(netvirt.NodePort)
	}
	require.False(t, port().Edge.IsValid(), "the node has no number yet")
	v.Numbers = map[netip.Addr]*coe.NodeFact{synth.Node1: {Node: synth.Node1, Number: 2}}
	require.Equal(t, v.Networks.Nodes.Address(2), port().Edge)
	require.Equal(t, v.Networks.Nodes.Gateway(), port().EdgeGateway)
	v.Networks.NodesBalance = false
	require.False(t, port().Edge.IsValid(), "the network leads there")

	six := netip.MustParseAddr("fd00:33::12")
	require.False(t, v.Networks.IsolatedEdge(&coe.NodeFact{Node: six, Number: 3}).IsValid(), "its pods have no route to services by it")
	require.False(t, v.Networks.IsolatedEdge(nil).IsValid())
}

// In an isolated namespace the node has a port, behind the first block of each family.
func TestNodePort(t *testing.T) {
	isolated := mapping.Settings{Isolation: mapping.IsolationNamespace, DHCPLeaseTime: 3600}
	port := netvirt.NodePort{
		ELAN: "192.168.33.12:default", Network: netip.MustParsePrefix("10.11.2.24/29"), VPN: "default", Address: synth.Node1,
		MAC: "0a:58:c0:a8:21:0c", Chassis: "node1",
	}
	ports := func(v coe.View) (all []netvirt.Object) {
		m, problems := mapping.Map(synth.WithVIPs(v), isolated)
		require.Empty(t, problems)
		for k, o := range m {
			if k.Kind == netvirt.KindNodePort {
				all = append(all, o)
			}
		}
		_, _, dangling := m.Dangling()
		require.False(t, dangling)
		return all
	}
	v := synth.OneNode()
	require.Empty(t, ports(v), "no pod is on the node")
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	require.Equal(t, []netvirt.Object{port}, ports(v))

	for _, prefix := range []string{"10.11.2.32/29", "10.11.2.16/29", "fd00::/120"} {
		is := netip.MustParsePrefix(prefix)
		v.Blocks = append([]*coe.Block{{ELAN: port.ELAN, Prefix: is, Gateway: is.Addr().Next(), Network: "default"}}, v.Blocks...)
		synth.AddPod(&v, prefix, "pod-"+is.Addr().String()[:3], is.Addr().Next().Next().String())
		if prefix == "10.11.2.16/29" {
			port.Network = is
		}
		if is.Addr().Is6() {
			port.IPv6, port.NetworkIPv6 = netip.MustParseAddr("fd63:6f65:6272::192.168.33.12"), is
		}
		require.Equal(t, []netvirt.Object{port}, ports(v), prefix)
	}

	six := synth.OneNode()
	six.Blocks[0].Prefix, six.Blocks[0].Gateway = netip.MustParsePrefix("fd00::/120"), netip.MustParseAddr("fd00::1")
	synth.AddPod(&six, uid1, "busybox1", "fd00::2")
	port.Network = netip.Prefix{}
	require.Equal(t, []netvirt.Object{port}, ports(six))
}

// TC 2 and TC 3: attach a pod to a service, remove it from the service.
func TestService(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
		Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80, TargetPort: "8080"}}, PodEndpoints: []string{uid1},
	}}
	attached, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	floating := netvirt.FloatingIP{
		Router: "default", Port: "default:busybox1", Namespace: "default", ExternalID: svc1,
		Internal: netip.MustParseAddr("10.11.2.28"), External: netip.MustParseAddr("10.96.0.20"),
	}
	vip := netvirt.ServiceVIP{
		Service: svc1, Namespace: "default", Protocol: netvirt.TCP,
		VIP: netip.MustParseAddrPort("10.96.0.20:80"), Endpoints: "10.11.2.28:8080",
	}
	require.Equal(t, floating, attached[floating.Key()])
	require.Equal(t, vip, attached[vip.Key()])

	without := *v.Services[0]
	without.PodEndpoints = nil
	v.Services[0] = &without
	removed, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.NotContains(t, removed, floating.Key())
	require.Equal(t, netvirt.EndpointList(""), removed[vip.Key()].(netvirt.ServiceVIP).Endpoints)
}

// TC 4: delete a pod from a namespace; the last pod takes the instances with it.
func TestLastPod(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	synth.AddPod(&v, uid2, "busybox2", "10.11.2.29")
	v.Pods = v.Pods[:1]
	one, _ := mapping.Map(synth.WithVIPs(v), settings)
	require.Equal(t, model(append(instances(), attachment(uid1, "busybox1", "10.11.2.28")...)...), one)
	v.Pods = nil // its lease still exists
	none, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Empty(t, none)
}

// If the backend needs it, what the last pod leaves is exactly the elan-instance with its subnets and the port of the node,
// and the vpn-instance, until their records are gone too. Nothing that stays changes, and a pod that is not reported yet
// changes nothing either.
func TestKeptELAN(t *testing.T) {
	for name, s := range map[string]mapping.Settings{
		"none":      {ManagementPorts: true, Limits: netvirt.Limits{KeepsELANs: true, NodesBalance: true}},
		"namespace": {Isolation: mapping.IsolationNamespace, Limits: netvirt.Limits{KeepsELANs: true}},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
			other := netip.MustParsePrefix("10.11.2.16/29")
			v.Blocks = append(v.Blocks, &coe.Block{ELAN: v.Blocks[0].ELAN, Prefix: other, Gateway: other.Addr().Next(), Network: "default"})
			synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
			running, problems := mapping.Map(v, s)
			require.Empty(t, problems)
			elan := instances()[0].(netvirt.ELANInstance)
			port, is := running[netvirt.NodePort{ELAN: elan.Name}.Key()].(netvirt.NodePort)
			require.True(t, is)
			if s.Isolated() {
				require.Equal(t, other, port.Network, "the first block, although no pod has an address of it")
			}
			for k := range running.Parts().Part("default:busybox1").Model {
				delete(running, k)
			}
			v.Pods = nil // its lease still exists
			kept, problems := mapping.Map(v, s)
			require.Empty(t, problems)
			require.Equal(t, running, kept)
			require.Equal(t, elan, kept[elan.Key()])
			_, _, dangling := kept.Dangling()
			require.Equal(t, !s.Isolated(), dangling, "only to the Transit, which is in the cluster's scope")

			for _, network := range []string{"FLAT", coe.MixedNetworks, ""} {
				fact := *v.ELANs[elan.Name]
				fact.NetworkType = network
				v.ELANs = map[string]*coe.ELANFact{elan.Name: &fact}
				none, _ := mapping.Map(v, s)
				require.Empty(t, none, "no record says which segment it has without interfaces")
			}
			v.ELANs = nil
			none, _ := mapping.Map(v, s)
			require.Empty(t, none)
		})
	}
}

func TestPodProblems(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*coe.View, *coe.Pod)
		want   coe.Reason
	}{
		{"no node", func(v *coe.View, p *coe.Pod) {
			p.HostIP = netip.Addr{}
			v.Leases = nil
		}, coe.NoNode},
		{"no name", func(_ *coe.View, p *coe.Pod) { p.Name = "" }, coe.NoName},
		{"no lease yet", func(v *coe.View, _ *coe.Pod) { v.Leases = nil }, coe.Waiting},
		{"no identifier yet", func(v *coe.View, _ *coe.Pod) { v.VPN = nil }, coe.Waiting},
		{"no block yet", func(v *coe.View, _ *coe.Pod) { v.Blocks = nil }, coe.Waiting},
		{"refused", func(v *coe.View, _ *coe.Pod) {
			v.Leases = nil
			v.Refusals = map[coe.LeaseKey]coe.Refusal{
				{PodUID: uid1, InterfaceUID: uid1}: {Reason: coe.PoolExhausted, Message: "all taken"},
			}
		}, coe.PoolExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := synth.OneNode()
			c.change(&v, synth.AddPod(&v, uid1, "busybox1", "10.11.2.28"))
			got, problems := mapping.Map(synth.WithVIPs(v), settings)
			require.Empty(t, got)
			require.Len(t, problems, 1)
			require.Equal(t, c.want, problems[0].Reason)
			require.Equal(t, uid1, problems[0].UID)
		})
	}
}

// A pod keeps its network while its node is unknown.
func TestNodeNotKnown(t *testing.T) {
	v := synth.OneNode()
	p := synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	before, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	p.HostIP = netip.Addr{}
	after, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Equal(t, before, after)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NoNode, problems[0].Reason)
}

func TestNoNetwork(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28").NoNetwork = true
	got, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, got)
	require.Empty(t, problems)
}

func TestSegment(t *testing.T) {
	for _, c := range []struct {
		networkType string
		want        netvirt.SegmentType
		id          uint32
	}{
		{"", netvirt.SegmentVXLAN, 70000},
		{"VXLAN", netvirt.SegmentVXLAN, 70000},
		{"GRE", netvirt.SegmentGRE, 70000},
		{"VLAN", netvirt.SegmentVLAN, 7},
		{"FLAT", netvirt.SegmentFlat, 0},
	} {
		t.Run(c.networkType, func(t *testing.T) {
			v := synth.OneNode()
			p := synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
			p.Interfaces[0].NetworkType, p.Interfaces[0].SegmentationID = c.networkType, 7
			got, _ := mapping.Map(synth.WithVIPs(v), settings)
			elan := got[netvirt.ELANInstance{Name: "192.168.33.12:default"}.Key()].(netvirt.ELANInstance)
			require.Equal(t, c.want, elan.SegmentType)
			require.Equal(t, c.id, elan.SegmentationID)
		})
	}
}

// A request of an interface that has no effect is a problem, and the pod is mapped all the
// same.
func TestNotEnforced(t *testing.T) {
	v := synth.OneNode()
	first, second := synth.AddPod(&v, uid1, "busybox1", "10.11.2.28"), synth.AddPod(&v, uid2, "busybox2", "10.11.2.29")
	want, _ := mapping.Map(v, settings)
	ask := func(p *coe.Pod, network string, id uint32) {
		p.Interfaces[0].NetworkType, p.Interfaces[0].SegmentationID = network, id
	}
	reasons := func(s mapping.Settings) (uids []string) {
		got, problems := mapping.Map(v, s)
		require.Len(t, got, len(want))
		for _, p := range problems {
			require.Equal(t, coe.NotEnforced, p.Reason, p.Message)
			uids = append(uids, p.UID)
		}
		return uids
	}
	for _, l := range v.Leases {
		if l.PodUID == uid1 {
			l.DeniedMAC, l.DeniedBy = "02:00:00:00:00:01", "pod shop/web (u)"
		}
	}
	require.Equal(t, []string{uid1}, reasons(settings))
	_, problems := mapping.Map(v, settings)
	require.Equal(t, "port-mac-address 02:00:00:00:00:01 has no effect: it is that of pod shop/web (u); the pod has "+v.Leases[0].MAC+"; send another one, or none", problems[0].Message)
	for _, l := range v.Leases {
		l.DeniedMAC = ""
	}
	overlay := settings
	overlay.Limits.OverlayOnly = true

	ask(first, "VXLAN", 70000)
	ask(second, "", 70000)
	require.Empty(t, reasons(overlay))
	ask(second, "VXLAN", 9)
	require.Equal(t, []string{uid2}, reasons(overlay))
	ask(first, "VLAN", 7)
	ask(second, "VLAN", 7)
	require.Empty(t, reasons(settings))
	require.Equal(t, []string{uid1, uid2}, reasons(overlay))
	ask(second, "VLAN", 8)
	require.Equal(t, []string{uid2}, reasons(settings))
	ask(second, "", 0)
	require.Empty(t, reasons(settings))

	v.Policies = []*coe.Policy{
		{UID: "l", Namespace: "default", Name: "list", Kind: coe.AccessList},
		{UID: "p", Namespace: "default", Name: "deny", Kind: coe.NetworkPolicy},
	}
	v.Configured = &coe.Namespace{UID: "n", Name: "default", Ignored: coe.UnknownAnnotation}
	first.HostPorts = []uint16{80, 8080}
	require.Equal(t, []string{"n", uid1}, reasons(settings))
	require.Equal(t, []string{"l", "n", "p", uid1}, reasons(withoutACLs))
	hosting := settings
	hosting.HostPorts = []coe.PortRange{{First: 80, Last: 80}}
	require.Equal(t, []string{"n", uid1}, reasons(hosting), "one of the ports is not served")
	hosting.HostPorts = []coe.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8100}}
	require.Equal(t, []string{"n"}, reasons(hosting))

	v.Networks = &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/29")}} // for one node
	v.Nodes = map[netip.Addr]*coe.Node{first.HostIP: {HostName: "node1"}}
	require.Equal(t, []string{"n"}, reasons(hosting), "the number of the node is being chosen")
	v.Numbers = map[netip.Addr]*coe.NodeFact{netip.MustParseAddr("192.168.33.99"): {Number: 1}}
	require.Equal(t, []string{"n", uid1}, reasons(hosting), "no number is left for the node")
	v.Numbers = map[netip.Addr]*coe.NodeFact{first.HostIP: {Number: 1}}
	require.Equal(t, []string{"n"}, reasons(hosting))
	v.Numbers[first.HostIP] = &coe.NodeFact{Number: 2}
	require.Equal(t, []string{"n", uid1}, reasons(hosting), "a node of an earlier release has a number without an edge address")
}

func TestInvalidPolicy(t *testing.T) {
	v := coe.View{Namespace: "default", Policies: []*coe.Policy{
		{UID: "p", Namespace: "default", Name: "deny", Kind: coe.NetworkPolicy, Invalid: "spec.podSelector: Invalid value"},
	}}
	_, problems := mapping.Map(v, withoutACLs)
	require.Len(t, problems, 1)
	require.Equal(t, coe.PolicyInvalid, problems[0].Reason)
	require.Contains(t, problems[0].Message, "the policy is invalid: spec.podSelector: Invalid value; correct it; network policies are not enforced")

	v.PolicySet = &coe.PolicySet{Complete: true}
	v.Policies = append(v.Policies, &coe.Policy{UID: "valid", Namespace: "default", Name: "allow", Kind: coe.NetworkPolicy})
	_, problems = mapping.Map(v, settings)
	require.Len(t, problems, 1, "a valid policy is enforced")
	require.Equal(t, coe.PolicyInvalid, problems[0].Reason)
	require.Contains(t, problems[0].Message, "correct it; until then it isolates the pods that it selects")
}

// TestPolicyLog: the annotation of the namespace decides which ACLs are logged. It is a problem if it
// has no effect.
func TestPolicyLog(t *testing.T) {
	deny := &coe.PolicySpec{Policy: coe.Policy{UID: "p", Namespace: "default", Name: "web", Kind: coe.NetworkPolicy}}
	deny.Ingress = coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{}}}
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.PolicySet = &coe.PolicySet{Complete: true, Policies: []*coe.PolicySpec{deny}}
	v.Configured = &coe.Namespace{UID: "n", Name: "default"}
	for _, c := range []struct {
		log             coe.PolicyLog
		limits          netvirt.Limits
		drops, all, bad bool
	}{
		{"", netvirt.Limits{}, false, false, false},
		{coe.LogDropped, netvirt.Limits{}, true, false, false},
		{coe.LogAll, netvirt.Limits{}, true, true, false},
		{coe.LogAll, netvirt.Limits{NoLogs: true}, false, false, true},
		{"", netvirt.Limits{NoLogs: true}, false, false, false},
	} {
		v.Configured.PolicyLog = c.log
		got, problems := mapping.Map(v, mapping.Settings{Limits: c.limits})
		for _, o := range got {
			switch acl, ok := o.(netvirt.ACL); {
			case !ok:
			case acl.Isolates != "":
				require.Equal(t, c.drops, acl.Logs, "%v", c)
			default:
				require.Equal(t, c.all, acl.Logs, "%v", c)
			}
		}
		require.Equal(t, c.bad, len(problems) > 0, "%v", problems)
		if c.bad {
			require.Equal(t, coe.NotEnforced, problems[0].Reason)
			require.Contains(t, problems[0].Message, coe.PolicyLogAnnotation)
		}
	}
}

// TestPortsOfSCTP: a backend that cannot match ports of SCTP reports the policies that allow some.
func TestPortsOfSCTP(t *testing.T) {
	limited := settings
	limited.Limits.NoSCTPPorts = true
	for _, c := range []struct {
		port     coe.PolicyPort
		reported bool
	}{
		{coe.PolicyPort{Protocol: "sctp", First: 7, Last: 9}, true},
		{coe.PolicyPort{Protocol: "sctp", Name: "diameter"}, true},
		{coe.PolicyPort{Protocol: "sctp"}, false},
		{coe.PolicyPort{Protocol: "tcp", First: 7, Last: 9}, false},
	} {
		p := &coe.PolicySpec{Policy: coe.Policy{UID: "p", Namespace: "default", Name: "web", Kind: coe.NetworkPolicy}}
		p.Egress = coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{}, {Ports: []coe.PolicyPort{c.port}}}}
		other := *p
		other.Namespace = "other"
		v := coe.View{Namespace: "default", PolicySet: &coe.PolicySet{Policies: []*coe.PolicySpec{p, &other}, Complete: true}}
		_, problems := mapping.Map(v, settings)
		require.Empty(t, problems)
		if _, problems = mapping.Map(v, limited); !c.reported {
			require.Empty(t, problems, "%+v", c.port)
			continue
		}
		require.Len(t, problems, 1, "%+v", c.port)
		require.Equal(t, "p", problems[0].UID)
		require.Equal(t, coe.NotEnforced, problems[0].Reason)
		require.Contains(t, problems[0].Message, "connections of SCTP that it allows for some ports are dropped")
	}
}

// Until all policies are known, pods have no interface, unless the backend cannot enforce policies.
func TestPoliciesIncomplete(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.PolicySet = &coe.PolicySet{}
	wanted := len(instances()) + len(attachment(uid1, "busybox1", "10.11.2.28"))
	got, problems := mapping.Map(v, withoutACLs)
	require.Empty(t, problems)
	require.Len(t, got, wanted)
	got, problems = mapping.Map(v, settings)
	require.Empty(t, got)
	require.Len(t, problems, 1)
	require.Equal(t, coe.Waiting, problems[0].Reason)
	v.PolicySet = &coe.PolicySet{Complete: true}
	got, problems = mapping.Map(v, settings)
	require.Empty(t, problems)
	require.Len(t, got, wanted)
}

func TestIsolation(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	got, _ := mapping.Map(synth.WithVIPs(v), mapping.Settings{Isolation: mapping.IsolationNamespace})
	vpn := got[netvirt.VPNInstance{Name: "default"}.Key()].(netvirt.VPNInstance)
	require.Empty(t, vpn.Transit)
	require.Empty(t, cluster(t, coe.ClusterView{}, mapping.Settings{Isolation: mapping.IsolationNamespace}))
	require.Equal(t, model(netvirt.Transit{RouteTarget: "100:1"}), cluster(t, coe.ClusterView{}, settings))
}
