package mapping_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	uid1 = "8f2a6d5e-0000-4000-8000-000000000001"
	uid2 = "8f2a6d5e-0000-4000-8000-000000000002"
	svc1 = "8f2a6d5e-0000-4000-8000-0000000000a1"
	svc2 = "8f2a6d5e-0000-4000-8000-0000000000a2"
)

var (
	node1    = netip.MustParseAddr("192.168.33.12")
	settings = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
)

// view is a namespace "default" on one node, without pods.
func view() coe.View {
	elan := netvirt.ELANName(node1, "default")
	return coe.View{
		Namespace: "default",
		Blocks: []*coe.Block{{
			ELAN: elan, Prefix: netip.MustParsePrefix("10.11.2.24/29"), Gateway: netip.MustParseAddr("10.11.2.25"),
			Network: "default", DNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		}},
		ELANs: map[string]*coe.ELANFact{elan: {Name: elan, VNI: 70000}},
		VPN:   &coe.VPNFact{Name: "default", Namespace: "default", RD: 2},
		Nodes: map[netip.Addr]*coe.Node{node1: {UID: "n1", HostName: "node1", InternalIP: node1}},
	}
}

func addPod(v *coe.View, uid, name, addr string) *coe.Pod {
	p := &coe.Pod{UID: uid, Name: name, Namespace: "default", HostIP: node1, Interfaces: []coe.PodInterface{{UID: uid}}}
	v.Pods = append(v.Pods, p)
	synth.PutLease(v, &coe.Lease{
		PodUID: uid, InterfaceUID: uid, Seq: uint64(len(v.Leases)), Namespace: "default", Pod: name,
		Name: "default:" + name, Primary: true, Node: node1, MAC: "0a:58:0a:0b:02:1c",
		Addresses: []coe.LeasedAddress{{
			Address: netip.MustParseAddr(addr), Network: v.Blocks[0].Prefix, Gateway: v.Blocks[0].Gateway,
		}},
	})
	return p
}

func model(objects ...netvirt.Object) netvirt.Model {
	m := netvirt.Model{}
	m.Add(objects...)
	return m
}

// instances are what the first pod of a namespace on a node brings with it.
func instances() []netvirt.Object {
	return []netvirt.Object{
		netvirt.ELANInstance{Name: "192.168.33.12:default", SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.VPNInstance{Name: "default", Namespace: "default", RouteDistinguisher: "100:2", Transit: "100:1"},
		netvirt.Subnet{
			ELAN: "192.168.33.12:default", VPN: "default", Prefix: netip.MustParsePrefix("10.11.2.24/29"),
			Gateway: netip.MustParseAddr("10.11.2.25"), DNS: "10.96.0.10", LeaseTime: 3600,
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
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28")
	got, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Equal(t, model(append(instances(), attachment(uid1, "busybox1", "10.11.2.28")...)...), got)
}

// TC 2 and TC 3: attach a pod to a service, remove it from the service.
func TestService(t *testing.T) {
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28")
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

// TC 4: delete a pod from a namespace; with the last one all goes.
func TestLastPod(t *testing.T) {
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28")
	addPod(&v, uid2, "busybox2", "10.11.2.29")
	v.Pods = v.Pods[:1]
	one, _ := mapping.Map(synth.WithVIPs(v), settings)
	require.Equal(t, model(append(instances(), attachment(uid1, "busybox1", "10.11.2.28")...)...), one)
	v.Pods = nil // the lease may stay for a while
	none, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Empty(t, none)
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
			v := view()
			c.change(&v, addPod(&v, uid1, "busybox1", "10.11.2.28"))
			got, problems := mapping.Map(synth.WithVIPs(v), settings)
			require.Empty(t, got)
			require.Len(t, problems, 1)
			require.Equal(t, c.want, problems[0].Reason)
			require.Equal(t, uid1, problems[0].UID)
		})
	}
}

// What is plugged in stays so while its node is not known.
func TestNodeNotKnown(t *testing.T) {
	v := view()
	p := addPod(&v, uid1, "busybox1", "10.11.2.28")
	before, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	p.HostIP = netip.Addr{}
	after, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Equal(t, before, after)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NoNode, problems[0].Reason)
}

func TestNoNetwork(t *testing.T) {
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28").NoNetwork = true
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
			v := view()
			p := addPod(&v, uid1, "busybox1", "10.11.2.28")
			p.Interfaces[0].NetworkType, p.Interfaces[0].SegmentationID = c.networkType, 7
			got, _ := mapping.Map(synth.WithVIPs(v), settings)
			elan := got[netvirt.ELANInstance{Name: "192.168.33.12:default"}.Key()].(netvirt.ELANInstance)
			require.Equal(t, c.want, elan.SegmentType)
			require.Equal(t, c.id, elan.SegmentationID)
		})
	}
}

// What an interface asks for in vain is a problem, and the pod is mapped all the same.
func TestNotEnforced(t *testing.T) {
	v := view()
	first, second := addPod(&v, uid1, "busybox1", "10.11.2.28"), addPod(&v, uid2, "busybox2", "10.11.2.29")
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

	v.Policies = []*coe.Policy{{UID: "p", Namespace: "default", Name: "deny", Kind: coe.NetworkPolicy}}
	v.Ignored = &coe.Namespace{UID: "n", Name: "default", Ignored: coe.UnknownAnnotation}
	first.Ignored = coe.HostPort
	require.Equal(t, []string{"n", "p", uid1}, reasons(settings))
}

func TestIsolation(t *testing.T) {
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28")
	got, _ := mapping.Map(synth.WithVIPs(v), mapping.Settings{Isolation: mapping.IsolationNamespace})
	vpn := got[netvirt.VPNInstance{Name: "default"}.Key()].(netvirt.VPNInstance)
	require.Empty(t, vpn.Transit)
	require.Empty(t, cluster(t, coe.ClusterView{}, mapping.Settings{Isolation: mapping.IsolationNamespace}))
	require.Equal(t, model(netvirt.Transit{RouteTarget: "100:1"}), cluster(t, coe.ClusterView{}, settings))
}

func TestServices(t *testing.T) {
	pods := netip.MustParseAddr("10.11.2.28")
	outside := netip.MustParseAddr("172.30.1.9")
	cluster := netip.MustParseAddr("10.96.0.20")
	type vips map[string]netvirt.EndpointList
	for _, c := range []struct {
		name      string
		services  []*coe.Service
		endpoints []*coe.Endpoints
		want      vips
		floating  map[string]string // internal to service
		problems  []coe.Reason
	}{
		{
			name:     "the published sample: no port, an endpoint that is not there",
			services: []*coe.Service{{UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid2}}},
			want:     vips{"tcp 10.96.0.20:0": ""},
			problems: []coe.Reason{coe.NoEndpoint},
		},
		{
			name:     "every port",
			services: []*coe.Service{{UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid1}}},
			want:     vips{"tcp 10.96.0.20:0": "10.11.2.28:0"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "endpoints by name, one of them no pod",
			services: []*coe.Service{{
				UID: svc1, Name: "web", ClusterIPs: []netip.Addr{cluster},
				Ports: []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, TargetPort: "9"}},
			}},
			endpoints: []*coe.Endpoints{{Name: "web", Addresses: []netip.Addr{outside, pods}, Ports: []coe.EndpointPort{
				{Name: "http", Protocol: "tcp", Port: 8080}, {Name: "metrics", Protocol: "tcp", Port: 9090},
			}}},
			want:     vips{"tcp 10.96.0.20:80": "10.11.2.28:8080,172.30.1.9:8080"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "ports by name: who does not list a port does not serve it",
			services: []*coe.Service{{
				UID: svc1, Name: "web", ClusterIPs: []netip.Addr{cluster}, Ports: []coe.ServicePort{
					{Name: "http", Protocol: "tcp", Port: 80, TargetPort: "8080"},
					{Name: "admin", Protocol: "tcp", Port: 81, TargetPort: "metrics"},
					{Name: "http", Protocol: "udp", Port: 80, TargetPort: "8080"},
				},
			}},
			endpoints: []*coe.Endpoints{
				{Name: "web", PortsByName: true, Addresses: []netip.Addr{outside}, Ports: []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: 8081}}},
				{Name: "web", PortsByName: true, Addresses: []netip.Addr{pods}, Ports: []coe.EndpointPort{{Name: "metrics", Protocol: "tcp", Port: 9090}}},
			},
			want:     vips{"tcp 10.96.0.20:80": "172.30.1.9:8081", "tcp 10.96.0.20:81": "", "udp 10.96.0.20:80": ""},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "ports by name: the only port of another name is another",
			services: []*coe.Service{{
				UID: svc1, Name: "web", ClusterIPs: []netip.Addr{cluster},
				Ports: []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, TargetPort: "8080"}},
			}},
			endpoints: []*coe.Endpoints{{Name: "web", PortsByName: true, Addresses: []netip.Addr{outside}, Ports: []coe.EndpointPort{
				{Name: "old", Protocol: "tcp", Port: 8080},
			}}},
			want: vips{"tcp 10.96.0.20:80": ""},
		},
		{
			name: "draining endpoints serve a port that has no other",
			services: []*coe.Service{{
				UID: svc1, Name: "web", ClusterIPs: []netip.Addr{cluster}, Ports: []coe.ServicePort{
					{Name: "a", Protocol: "tcp", Port: 80}, {Name: "b", Protocol: "tcp", Port: 81},
				},
			}},
			endpoints: []*coe.Endpoints{
				{Name: "web", PortsByName: true, Terminating: []netip.Addr{outside}, Ports: []coe.EndpointPort{
					{Name: "a", Protocol: "tcp", Port: 1}, {Name: "b", Protocol: "tcp", Port: 2},
				}},
				{Name: "web", PortsByName: true, Addresses: []netip.Addr{pods}, Ports: []coe.EndpointPort{{Name: "a", Protocol: "tcp", Port: 3}}},
			},
			want:     vips{"tcp 10.96.0.20:80": "10.11.2.28:3", "tcp 10.96.0.20:81": "172.30.1.9:2"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "no address: no object",
			services: []*coe.Service{{
				UID: svc1, Name: "web", Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}, PodEndpoints: []string{uid1},
			}},
			want: vips{},
		},
		{
			name: "a target port by a name that nobody has",
			services: []*coe.Service{{
				UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid1},
				Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80, TargetPort: "http"}},
			}},
			want:     vips{"tcp 10.96.0.20:80": ""},
			floating: map[string]string{"10.11.2.28": svc1},
			problems: []coe.Reason{coe.NoPort},
		},
		{
			name: "what is wrong on each of its addresses is one problem",
			services: []*coe.Service{{
				UID: svc1, ClusterIPs: []netip.Addr{cluster}, ExternalIPs: []netip.Addr{outside}, PodEndpoints: []string{uid1},
				Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80, TargetPort: "http"}},
			}},
			want:     vips{"tcp 10.96.0.20:80": "", "tcp 172.30.1.9:80": ""},
			floating: map[string]string{"10.11.2.28": svc1},
			problems: []coe.Reason{coe.NoPort},
		},
		{
			name: "two services of one pod: the lower uid is shown",
			services: []*coe.Service{
				{UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid1}},
				{UID: svc2, ClusterIPs: []netip.Addr{cluster.Next()}, PodEndpoints: []string{uid1}},
			},
			want:     vips{"tcp 10.96.0.20:0": "10.11.2.28:0", "tcp 10.96.0.21:0": "10.11.2.28:0"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "two services of one address: the first keeps it",
			services: []*coe.Service{
				{UID: svc1, ClusterIPs: []netip.Addr{cluster}}, {UID: svc2, ClusterIPs: []netip.Addr{cluster}},
			},
			want:     vips{"tcp 10.96.0.20:0": ""},
			problems: []coe.Reason{coe.AddressTaken},
		},
		{
			name: "external addresses",
			services: []*coe.Service{{
				UID: svc1, ClusterIPs: []netip.Addr{cluster}, ExternalIPs: []netip.Addr{outside, cluster}, PodEndpoints: []string{uid1},
			}},
			want:     vips{"tcp 10.96.0.20:0": "10.11.2.28:0", "tcp 172.30.1.9:0": "10.11.2.28:0"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view()
			addPod(&v, uid1, "busybox1", "10.11.2.28")
			v.Services, v.Endpoints = c.services, c.endpoints
			got, problems := mapping.Map(synth.WithVIPs(v), settings)
			gotVIPs, floating := vips{}, map[string]string{}
			for _, o := range got {
				switch o := o.(type) {
				case netvirt.ServiceVIP:
					gotVIPs[string(o.Protocol)+" "+o.VIP.String()] = o.Endpoints
				case netvirt.FloatingIP:
					floating[o.Internal.String()] = o.ExternalID
				}
			}
			require.Equal(t, c.want, gotVIPs)
			if c.floating == nil {
				c.floating = map[string]string{}
			}
			require.Equal(t, c.floating, floating)
			var reasons []coe.Reason
			for _, p := range problems {
				reasons = append(reasons, p.Reason)
			}
			require.Equal(t, c.problems, reasons)
		})
	}
}

// A service above a limit is a problem by itself; what is at the limit is mapped, and
// the addresses of a family share the list of a port's endpoints.
func TestLimitsOfServices(t *testing.T) {
	service := func(ports, external, endpoints int) (*coe.Service, *coe.Endpoints) {
		s := &coe.Service{UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}}
		e := &coe.Endpoints{UID: "e", Name: "web", Namespace: "default", PortsByName: true}
		for p := range ports {
			s.Ports = append(s.Ports, coe.ServicePort{Name: fmt.Sprint(p), Protocol: "tcp", Port: uint16(p + 1)})
			e.Ports = append(e.Ports, coe.EndpointPort{Name: fmt.Sprint(p), Protocol: "tcp", Port: uint16(p + 1)})
		}
		for a := range external {
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, byte(a)}))
		}
		for a := range endpoints {
			e.Addresses = append(e.Addresses, netip.AddrFrom4([4]byte{10, 0, byte(a >> 8), byte(a)}))
		}
		return s, e
	}
	for name, c := range map[string]struct {
		ports, external, endpoints int
		vips                       int // 0: a problem
	}{
		"ports":                {coe.MaxServicePorts, 1, 1, coe.MaxVIPs},
		"too many ports":       {coe.MaxServicePorts + 1, 0, 1, 0},
		"addresses":            {2, coe.MaxVIPs/2 - 1, 1, coe.MaxVIPs},
		"too many addresses":   {2, coe.MaxVIPs / 2, 1, 0},
		"endpoints":            {2, 1, coe.MaxBackends / 4, 4},
		"too many endpoints":   {2, 1, coe.MaxBackends/4 + 1, 0},
		"many, none of a kind": {1, 0, coe.MaxBackends, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := view()
			s, e := service(c.ports, c.external, c.endpoints)
			other := &coe.Service{UID: svc2, Name: "other", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.21")}}
			v.Services, v.Endpoints = []*coe.Service{s, other}, []*coe.Endpoints{e}
			got, problems := mapping.Map(synth.WithVIPs(v), settings)
			vips := got.Select(netvirt.NewKindSet(netvirt.KindServiceVIP))
			require.Len(t, vips, c.vips+1, "the other service is mapped in any case")
			if c.vips > 0 {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, coe.TooLarge, problems[0].Reason)
		})
	}

	t.Run("of a namespace", func(t *testing.T) {
		v := view()
		const services = coe.MaxNamespaceBackends/coe.MaxBackends + 1
		for i := range services {
			s, e := service(1, 0, coe.MaxBackends)
			s.UID, s.Name = fmt.Sprintf("%s-%02d", svc1, i), fmt.Sprint("s", i)
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})}
			e.UID, e.Name = s.Name, s.Name
			v.Services, v.Endpoints = append(v.Services, s), append(v.Endpoints, e)
		}
		got, problems := mapping.Map(synth.WithVIPs(v), settings)
		require.Len(t, got.Select(netvirt.NewKindSet(netvirt.KindServiceVIP)), services-1)
		require.Len(t, problems, 1)
		require.Equal(t, coe.TooLarge, problems[0].Reason)
	})
}

// A service answers on those of its addresses that its namespace has claimed. Of
// the others nothing is in the model, and one that is not refused waits.
func TestUnclaimedAddresses(t *testing.T) {
	a := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	v := view()
	addPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ExternalIPs: []netip.Addr{a(1), a(2), a(3)}, PodEndpoints: []string{uid1},
		Ports: []coe.ServicePort{{Name: "a", Protocol: "tcp", Port: 80}, {Name: "b", Protocol: "tcp", Port: 81}},
	}}
	v.VIPs = map[coe.VIP]bool{{Address: a(2)}: true, {Address: a(3), Protocol: "tcp", Port: 81}: true}
	got, problems := mapping.Map(v, settings)
	require.Len(t, problems, 1)
	require.Equal(t, coe.Waiting, problems[0].Reason)
	key := func(vip string) netvirt.Key {
		return netvirt.Key{Kind: netvirt.KindServiceVIP, Name: "default " + svc1 + " tcp " + vip}
	}
	require.Equal(t, []netvirt.Key{key("192.0.2.2:80"), key("192.0.2.2:81"), key("192.0.2.3:81")},
		got.Select(netvirt.NewKindSet(netvirt.KindServiceVIP)).Keys())
	for _, o := range got.Select(netvirt.NewKindSet(netvirt.KindFloatingIP)) {
		require.Equal(t, a(2), o.(netvirt.FloatingIP).External, "the address that it answers on")
	}

	v.VIPs = nil
	v.ServiceRefusals = map[string]coe.Refusal{svc1: {Reason: coe.NotAllowed, Message: "not allowed"}}
	got, problems = mapping.Map(v, settings)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotAllowed, problems[0].Reason)
	require.Empty(t, got.Select(netvirt.NewKindSet(netvirt.KindService, netvirt.KindServiceVIP, netvirt.KindFloatingIP)))
}

func TestChosenServiceAddress(t *testing.T) {
	v := view()
	v.Services = []*coe.Service{{UID: svc1, Name: "web", Namespace: "default"}}
	v.ServiceFacts = map[string]*coe.ServiceFact{svc1: {UID: svc1, Namespace: "default", Address: netip.MustParseAddr("10.96.0.7")}}
	got, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Contains(t, got, netvirt.Key{Kind: netvirt.KindServiceVIP, Name: "default " + svc1 + " tcp 10.96.0.7:0"})
}
