package service_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

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
			name:     "the published sample: no port, an endpoint that does not exist",
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
			name: "endpoints by name, one of them is not a pod",
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
			name: "ports by name: an endpoint serves only the ports that it lists",
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
			name: "ports by name: the only port does not match by another name",
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
			name: "draining endpoints serve a port that has no other endpoint",
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
			name: "a target port with an unknown name",
			services: []*coe.Service{{
				UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid1},
				Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80, TargetPort: "http"}},
			}},
			want:     vips{"tcp 10.96.0.20:80": ""},
			floating: map[string]string{"10.11.2.28": svc1},
			problems: []coe.Reason{coe.NoPort},
		},
		{
			name: "the same problem on each address is one problem",
			services: []*coe.Service{{
				UID: svc1, ClusterIPs: []netip.Addr{cluster}, ExternalIPs: []netip.Addr{outside}, PodEndpoints: []string{uid1},
				Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80, TargetPort: "http"}},
			}},
			want:     vips{"tcp 10.96.0.20:80": "", "tcp 172.30.1.9:80": ""},
			floating: map[string]string{"10.11.2.28": svc1},
			problems: []coe.Reason{coe.NoPort},
		},
		{
			name: "two services of one pod: the floating IP names the lower UID",
			services: []*coe.Service{
				{UID: svc1, ClusterIPs: []netip.Addr{cluster}, PodEndpoints: []string{uid1}},
				{UID: svc2, ClusterIPs: []netip.Addr{cluster.Next()}, PodEndpoints: []string{uid1}},
			},
			want:     vips{"tcp 10.96.0.20:0": "10.11.2.28:0", "tcp 10.96.0.21:0": "10.11.2.28:0"},
			floating: map[string]string{"10.11.2.28": svc1},
		},
		{
			name: "two services with one address: the first keeps it",
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
			problems: []coe.Reason{coe.NotEnforced}, // a node cannot lead all ports of an address
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := synth.OneNode()
			synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
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

// A service above a limit is a problem, and does not affect other services. A service at
// the limit is mapped.
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
		"ports":              {coe.MaxServicePorts, 1, 1, coe.MaxVIPs},
		"too many ports":     {coe.MaxServicePorts + 1, 0, 1, 0},
		"addresses":          {2, coe.MaxVIPs/2 - 1, 1, coe.MaxVIPs},
		"too many addresses": {2, coe.MaxVIPs / 2, 1, 0},
		"endpoints":          {2, 1, coe.MaxBackends / 4, 4},
		"too many endpoints": {2, 1, coe.MaxBackends/4 + 1, 0},
		"most on one port":   {1, 0, coe.MaxBackends, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
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

	t.Run("endpoints of a namespace", func(t *testing.T) {
		v := synth.OneNode()
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

// A service answers only on the addresses that its namespace has claimed. Other addresses
// are not in the model; they are problems, unless the service is refused.
func TestUnclaimedAddresses(t *testing.T) {
	a := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ExternalIPs: []netip.Addr{a(1), a(2), a(3)}, PodEndpoints: []string{uid1},
		Ports: []coe.ServicePort{{Name: "a", Protocol: "tcp", Port: 80}, {Name: "b", Protocol: "tcp", Port: 81}},
	}}
	v.VIPs = map[coe.VIP]bool{{Address: a(2)}: true, {Address: a(3), Protocol: "tcp", Port: 81}: true}
	got, problems := mapping.Map(v, settings)
	require.Len(t, problems, 2)
	require.Equal(t, coe.NotEnforced, problems[0].Reason, "without a cluster address nodes do not lead there")
	require.Equal(t, coe.Waiting, problems[1].Reason)
	key := func(vip string) netvirt.Key {
		return netvirt.Key{Kind: netvirt.KindServiceVIP, Name: "default " + svc1 + " tcp " + vip}
	}
	require.Equal(t, []netvirt.Key{key("192.0.2.2:80"), key("192.0.2.2:81"), key("192.0.2.3:81")},
		got.Select(netvirt.NewKindSet(netvirt.KindServiceVIP)).Keys())
	for _, o := range got.Select(netvirt.NewKindSet(netvirt.KindFloatingIP)) {
		require.Equal(t, a(2), o.(netvirt.FloatingIP).External, "the address that the service answers on")
	}

	v.VIPs = nil
	v.ServiceRefusals = map[string]coe.Refusal{svc1: {Reason: coe.NotAllowed, Message: "not allowed"}}
	got, problems = mapping.Map(v, settings)
	require.Len(t, problems, 2)
	require.Equal(t, coe.NotAllowed, problems[0].Reason)
	require.Empty(t, got.Select(netvirt.NewKindSet(netvirt.KindService, netvirt.KindServiceVIP, netvirt.KindFloatingIP)))
}

func TestChosenServiceAddress(t *testing.T) {
	v := synth.OneNode()
	v.Services = []*coe.Service{{UID: svc1, Name: "web", Namespace: "default"}}
	v.ServiceFacts = map[string]*coe.ServiceFact{svc1: {UID: svc1, Namespace: "default", Address: netip.MustParseAddr("10.96.0.7")}}
	got, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Contains(t, got, netvirt.Key{Kind: netvirt.KindServiceVIP, Name: "default " + svc1 + " tcp 10.96.0.7:0"})
}
