package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/service"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// exposing are settings with which nodes answer on node ports.
func exposing() mapping.Settings {
	s := settings
	s.NodePorts = coe.PortRange{First: 30000, Last: 32767}
	return s
}

// dual is exposing with nodes that have IPv6 addresses too.
func dual() mapping.Settings {
	s := exposing()
	s.NodesIPv6 = true
	return s
}

// unmanaged are settings in which nodes have no management ports.
func unmanaged() mapping.Settings {
	s := settings
	s.ManagementPorts = false
	return s
}

// separating are settings in which ACLs keep namespaces apart. Nodes have management ports.
func separating() mapping.Settings {
	s := settings
	s.Isolation = mapping.IsolationACLs
	return s
}

// exposedView has a service with two node ports, and its endpoints: a pod of the namespace that is ready,
// one that drains, and an address of something else.
func exposedView(change func(*coe.Service)) coe.View {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	synth.AddPod(&v, uid2, "busybox2", "10.11.2.29")
	s := &coe.Service{
		UID: svc1, Name: "web", Namespace: v.Namespace, ClusterIPs: []netip.Addr{netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("10.96.0.20")},
		Ports: []coe.ServicePort{
			{Name: "http", Protocol: "tcp", Port: 80, NodePort: 30080}, {Name: "dns", Protocol: "udp", Port: 53, NodePort: 30053}, {Name: "none", Protocol: "tcp", Port: 9},
		},
	}
	change(s)
	v.Services = []*coe.Service{s}
	v.Endpoints = []*coe.Endpoints{{
		UID: "e", Name: "web", Namespace: v.Namespace, PortsByName: true,
		Addresses:   []netip.Addr{netip.MustParseAddr("10.11.2.28"), netip.MustParseAddr("172.30.1.9")},
		Terminating: []netip.Addr{netip.MustParseAddr("10.11.2.29")},
		Ports:       []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: 8080}, {Name: "dns", Protocol: "udp", Port: 5353}},
	}}
	v = synth.WithVIPs(v)
	v.VIPs[coe.PortOnNodes("tcp", 30080)], v.VIPs[coe.PortOnNodes("udp", 30053)] = true, true
	return v
}

func TestExposedPorts(t *testing.T) {
	v := exposedView(func(*coe.Service) {})
	web := coe.ExposedPort{Protocol: "tcp", Port: 30080, Namespace: v.Namespace, To: netip.MustParseAddrPort("10.96.0.20:80")}
	dns := coe.ExposedPort{Protocol: "udp", Port: 30053, Namespace: v.Namespace, To: netip.MustParseAddrPort("10.96.0.20:53")}
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()))
	require.Empty(t, exposedPorts(v, settings), "nodes answer on none")
	_, problems := mapping.Map(v, exposing())
	require.Empty(t, problems)

	v = exposedView(func(s *coe.Service) { s.Local, s.Affinity = true, 10800 })
	node := v.Leases[0].Node
	web.Local, web.Affinity, dns.Local, dns.Affinity = true, 10800, true, 10800
	web.Shared, dns.Shared = true, true
	at := func(text string) map[netip.Addr][]netip.AddrPort {
		return map[netip.Addr][]netip.AddrPort{node: {netip.MustParseAddrPort(text)}}
	}
	web.Endpoints, dns.Endpoints = at("10.11.2.28:8080"), at("10.11.2.28:5353")
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()), "only pods that are ready")

	v.Endpoints[0].Addresses = v.Endpoints[0].Addresses[1:]
	web.Endpoints, dns.Endpoints = at("10.11.2.29:8080"), at("10.11.2.29:5353")
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()), "the node has no other")
	require.False(t, web.Every, "one is not a pod")

	v.Endpoints[0].Addresses, v.Endpoints[0].Terminating = []netip.Addr{netip.MustParseAddr("172.30.1.9")}, nil
	web.Endpoints, dns.Endpoints = map[netip.Addr][]netip.AddrPort{}, map[netip.Addr][]netip.AddrPort{}
	web.Shared, dns.Shared = false, false
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()), "clients wait: there is an endpoint elsewhere")

	v.Endpoints[0].Ports = v.Endpoints[0].Ports[:1]
	dns.Refuses = true
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()), "a port without any endpoint")

	v.Endpoints = nil
	web.Refuses = true
	require.Equal(t, []coe.ExposedPort{web, dns}, exposedPorts(v, exposing()))
}

// Reaches says where a service is reached, with the gateways that lead to its node ports.
func TestReaches(t *testing.T) {
	v := exposedView(func(s *coe.Service) { s.Local = true })
	v.Gateways = []*coe.Gateway{{Node: synth.Node1, Chassis: "c", Address: netip.MustParsePrefix("192.0.2.1/24"), NextHop: netip.MustParseAddr("192.0.2.254"), Services: true}}
	all := service.Reaches(v, exposing().ServiceSettings())
	require.Len(t, all, 1)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("10.96.0.20")}, all[0].Cluster)
	require.Equal(t, []uint16{30080, 30053}, []uint16{all[0].Exposed[0].Port, all[0].Exposed[1].Port})
	require.Equal(t, v.Gateways, all[0].Gateways)
	require.Equal(t, []int{2, 1}, []int{all[0].Ready, all[0].Draining})

	all = service.Reaches(v, settings.ServiceSettings())
	require.Empty(t, all[0].Exposed, "nodes answer on none")
	require.Empty(t, all[0].Gateways)
}

// A service has its node ports in both families, each with the endpoints of its family. A pod with both counts once as
// ready.
func TestExposedPortsOfIPv6(t *testing.T) {
	v := exposedView(func(s *coe.Service) {
		s.Local, s.HealthPort, s.Ports = true, 30099, s.Ports[:1]
	})
	v.VIPs[coe.PortOnNodes("tcp", 30099)] = true
	second := netip.MustParseAddr("fd42::28")
	v.Leases[0].Addresses = append(v.Leases[0].Addresses, coe.LeasedAddress{Address: second})
	v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, second)
	node := v.Leases[0].Node
	at := func(text string) map[netip.Addr][]netip.AddrPort {
		return map[netip.Addr][]netip.AddrPort{node: {netip.MustParseAddrPort(text)}}
	}
	four := coe.ExposedPort{
		Protocol: "tcp", Port: 30080, Namespace: v.Namespace, To: netip.MustParseAddrPort("10.96.0.20:80"), Local: true, Endpoints: at("10.11.2.28:8080"), Shared: true,
	}
	six := four
	six.Address, six.To, six.Endpoints = netip.IPv6Unspecified(), netip.MustParseAddrPort("[fd00:96::1]:80"), at("[fd42::28]:8080")
	six.Shared = false // nodes have IPv4 addresses
	health := coe.ExposedPort{
		Protocol: "tcp", Port: 30099, Namespace: v.Namespace, Health: &coe.ReadyCount{Service: "web", Ready: map[netip.Addr]int{node: 1}},
	}
	require.Equal(t, "tcp/30080/::", six.Name())
	require.ElementsMatch(t, []coe.ExposedPort{four, six, health}, exposedPorts(v, dual()))
	require.Equal(t, []coe.ExposedPort{four, health}, exposedPorts(v, exposing()))
}

// An endpoint in --node-ports at a further address of a node is left out of a port with a node port: packets could go
// round between services.
func TestCirclesOfNodePorts(t *testing.T) {
	second, external := netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("203.0.113.7")
	pod := netip.MustParseAddr("fd42::28")
	v := exposedView(func(s *coe.Service) { s.Ports = s.Ports[:1] })
	v.Leases[0].Addresses = append(v.Leases[0].Addresses, coe.LeasedAddress{Address: pod})
	v.Nodes = map[netip.Addr]*coe.Node{synth.Node1: {UID: "n", HostName: "node1", InternalIP: synth.Node1, SecondIP: second, ExternalIP: external}}
	e := v.Endpoints[0]
	e.Addresses, e.Terminating = []netip.Addr{second, pod, external, synth.Node1}, nil
	lead := func(port uint16) (all []string, problems []coe.Problem) {
		e.Ports = []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: port}}
		m, problems := mapping.Map(v, dual())
		for _, o := range m.Select(netvirt.NewKindSet(netvirt.KindServiceVIP)) {
			for _, at := range o.(netvirt.ServiceVIP).Endpoints.All() {
				all = append(all, at.String())
			}
		}
		return all, slices.DeleteFunc(problems, func(p coe.Problem) bool { return p.Kind != "service" })
	}
	leads, problems := lead(30080)
	require.ElementsMatch(t, []string{"[fd42::28]:30080", synth.Node1.String() + ":30080"}, leads)
	require.Len(t, problems, 2, "one for each family")
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "can lead packets in a circle")
	for _, p := range exposedPorts(v, dual()) {
		if p.To.Addr().Is6() {
			require.Equal(t, []netip.AddrPort{netip.AddrPortFrom(pod, 30080)}, p.Direct)
		}
	}

	leads, problems = lead(8080)
	require.Len(t, leads, 4, "no node port")
	require.Empty(t, problems)
	delete(v.VIPs, coe.PortOnNodes("tcp", 30080))
	leads, _ = lead(30080)
	require.Len(t, leads, 4, "nodes do not lead to the service")
	v = exposedView(func(s *coe.Service) { s.Ports = s.Ports[:1] })
	v.Nodes = map[netip.Addr]*coe.Node{synth.Node1: {UID: "n", HostName: "node1", InternalIP: synth.Node1, SecondIP: netip.MustParseAddr("10.11.2.28")}}
	e = v.Endpoints[0]
	leads, _ = lead(30080)
	require.Contains(t, leads, "10.11.2.28:30080", "a node reports the address of a pod")
}

// External addresses are exposed by the ports that the namespace has claimed, in the order of the services.
func TestExposedAddresses(t *testing.T) {
	external := netip.MustParseAddr("192.0.2.10")
	view := func(change func(*coe.Service)) coe.View {
		v := exposedView(func(s *coe.Service) {
			s.ExternalIPs = []netip.Addr{external, netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("192.0.2.11")}
			s.Ports = []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80}}
			change(s)
		})
		for _, a := range v.Services[0].ExternalIPs {
			delete(v.VIPs, coe.VIP{Address: a})
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: 80}] = true
		}
		return v
	}
	v := view(func(*coe.Service) {})
	web := coe.ExposedPort{Address: external, Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: netip.MustParseAddrPort("10.96.0.20:80")}
	second := web
	second.Address = netip.MustParseAddr("192.0.2.11")
	require.Equal(t, "tcp/80/192.0.2.10", web.Name())
	require.Equal(t, []coe.ExposedPort{web, second}, exposedPorts(v, exposing()))
	_, problems := mapping.Map(v, exposing())
	require.Len(t, problems, 1, "nodes do not lead to 2001:db8::10")
	require.Contains(t, problems[0].Message, "external addresses answer only pods")
	sixth := coe.ExposedPort{Address: netip.MustParseAddr("2001:db8::10"), Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: netip.MustParseAddrPort("[fd00:96::1]:80")}
	require.Equal(t, []coe.ExposedPort{web, sixth, second}, exposedPorts(v, dual()))
	_, problems = mapping.Map(v, dual())
	require.Empty(t, problems)

	without := exposing()
	without.NodePorts = coe.PortRange{}
	require.Len(t, exposedPorts(v, without), 2, "node ports are not needed")

	delete(v.VIPs, coe.VIP{Address: second.Address, Protocol: "tcp", Port: 80})
	require.Equal(t, []coe.ExposedPort{web}, exposedPorts(v, exposing()), "another namespace has the address")

	other := *v.Services[0]
	other.UID, other.Name, other.ClusterIPs = svc2, "other", []netip.Addr{netip.MustParseAddr("10.96.0.21")}
	v.Services, v.VIPs[coe.VIP{Address: other.ClusterIPs[0]}] = append(v.Services, &other), true
	require.Equal(t, []coe.ExposedPort{web}, exposedPorts(v, exposing()), "the first service has it")
	_, problems = mapping.Map(v, exposing())
	require.Contains(t, fmt.Sprint(problems), "tcp 192.0.2.10:80 is already an address of service web")

	v = view(func(s *coe.Service) { s.Local = true })
	web.Local = true
	web.Endpoints = map[netip.Addr][]netip.AddrPort{v.Leases[0].Node: {netip.MustParseAddrPort("10.11.2.28:8080")}}
	require.Equal(t, web, exposedPorts(v, exposing())[0])
	_, problems = mapping.Map(v, dual())
	require.Empty(t, problems)

	v = view(func(s *coe.Service) { s.ExternalIPs = []netip.Addr{s.ClusterIPs[1]} })
	v.VIPs = map[coe.VIP]bool{{Address: v.Services[0].ClusterIPs[1]}: true}
	require.Empty(t, exposedPorts(v, exposing()), "a cluster address of the namespace is routed")

	for name, c := range map[string]struct {
		change   func(*coe.Service)
		settings mapping.Settings
	}{
		"no management ports":     {func(s *coe.Service) { s.Local = true }, unmanaged()},
		"no IPv4 cluster address": {func(s *coe.Service) { s.ClusterIPs, s.Local = s.ClusterIPs[:1], true }, exposing()},
		"no ports":                {func(s *coe.Service) { s.Ports, s.Local = nil, true }, exposing()},
	} {
		v := view(c.change)
		require.Empty(t, exposedPorts(v, c.settings), name)
		_, problems := mapping.Map(v, c.settings)
		require.Contains(t, fmt.Sprint(problems), "external addresses answer only pods", name)
		require.Contains(t, fmt.Sprint(problems), "externalTrafficPolicy Local has no effect", name)
	}
}

// The load balancer addresses of a service with ranges of clients are on nodes alone, with the ranges. Its
// other external addresses are open.
func TestRestrictedAddresses(t *testing.T) {
	outside, balancer := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	view := func(ranges int) coe.View {
		v := exposedView(func(s *coe.Service) {
			s.ExternalIPs, s.LoadBalancerIPs, s.Restricted = []netip.Addr{outside, balancer}, []netip.Addr{balancer}, true
			s.Ports = []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80}}
			for i := range ranges {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 32))
			}
		})
		for _, a := range []netip.Addr{outside, balancer} {
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: 80}] = true
		}
		return v
	}
	v := view(2)
	to := netip.MustParseAddrPort("10.96.0.20:80")
	require.Equal(t, []coe.ExposedPort{
		{Address: outside, Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: to},
		{Address: balancer, Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: to, Restricted: true, Sources: v.Services[0].SourceRanges},
	}, exposedPorts(v, exposing()))
	model, problems := mapping.Map(v, exposing())
	require.Empty(t, problems)
	require.Contains(t, fmt.Sprint(model), "192.0.2.10:80")
	require.NotContains(t, fmt.Sprint(model), "192.0.2.11:80", "OVN would let everybody in")

	other := *v.Services[0]
	other.UID, other.Name, other.ClusterIPs = svc2, "other", []netip.Addr{netip.MustParseAddr("10.96.0.21")}
	other.ExternalIPs = other.LoadBalancerIPs
	v.Services, v.VIPs[coe.VIP{Address: other.ClusterIPs[0]}] = append(v.Services, &other), true
	require.Len(t, exposedPorts(v, exposing()), 2)
	_, problems = mapping.Map(v, exposing())
	require.Contains(t, fmt.Sprint(problems), "tcp 192.0.2.11:80 is already an address of service web")

	// OVN does not give the address to another service of the namespace either.
	other.Restricted, other.ExternalIPs, other.LoadBalancerIPs = false, []netip.Addr{balancer}, nil
	model, _ = mapping.Map(v, exposing())
	require.NotContains(t, fmt.Sprint(model), "192.0.2.11:80")

	for name, change := range map[string]func(*coe.Service){
		"IPv6": func(s *coe.Service) {
			s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("2001:db8::1")}
			s.ExternalIPs = s.LoadBalancerIPs
		},
		"no IPv4 cluster address": func(s *coe.Service) { s.ClusterIPs = s.ClusterIPs[:1] },
	} {
		v = view(1)
		change(v.Services[0])
		_, problems = mapping.Map(v, exposing())
		require.Contains(t, fmt.Sprint(problems), "nobody reaches its load balancer address", name)
	}

	v = view(coe.MaxSourceRanges + 1)
	require.Len(t, exposedPorts(v, exposing()), 1)
	_, problems = mapping.Map(v, exposing())
	require.Contains(t, fmt.Sprint(problems), "nobody reaches its load balancer addresses: it has more than 100 loadBalancerSourceRanges")

	for name, s := range map[string]mapping.Settings{"no management ports": unmanaged(), "ACLs keep namespaces apart": separating()} {
		v = view(1)
		model, problems = mapping.Map(v, s)
		require.Contains(t, fmt.Sprint(model), "192.0.2.11:80", name)
		require.Contains(t, fmt.Sprint(problems), "loadBalancerSourceRanges are not enforced", name)
		require.Contains(t, fmt.Sprint(problems), coe.ExternalAddress.String(), name)
		require.Empty(t, exposedPorts(v, s), name)
		require.Empty(t, service.Reaches(v, s.ServiceSettings())[0].Exposed, name)
	}
}

// Nodes lead to no service that exceeds a limit: the external addresses count with the endpoints, also those with
// ranges of clients.
func TestExposedAddressesOfLargeServices(t *testing.T) {
	for _, local := range []bool{true, false} {
		v := exposedView(func(s *coe.Service) {
			s.Local, s.Restricted, s.Ports = local, true, []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, NodePort: 30080}}
			for n := range 20 {
				s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}))
			}
			s.LoadBalancerIPs = s.ExternalIPs
		})
		for _, a := range v.Services[0].ExternalIPs {
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: 80}] = true
		}
		require.Len(t, exposedPorts(v, exposing()), 21)
		for n := range coe.MaxBackends / 20 {
			v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, netip.AddrFrom4([4]byte{172, 30, 2, byte(n)}))
		}
		require.Empty(t, exposedPorts(v, exposing()))
		_, problems := mapping.Map(v, exposing())
		require.Contains(t, fmt.Sprint(problems), string(coe.TooLarge))
	}
}

// Health checks have a record of their own, which counts the ready pods of each node once.
func TestHealthChecks(t *testing.T) {
	v := exposedView(func(s *coe.Service) { s.Local, s.HealthPort = true, 30081 })
	require.Len(t, exposedPorts(v, exposing()), 2, "not claimed")
	v.VIPs[coe.PortOnNodes("tcp", 30081)] = true
	node := v.Leases[0].Node
	check := coe.ExposedPort{Protocol: "tcp", Port: 30081, Namespace: v.Namespace, Health: &coe.ReadyCount{Service: "web", Ready: map[netip.Addr]int{node: 1}}}
	require.Equal(t, "health/30081", check.Name())
	require.Equal(t, check, exposedPorts(v, exposing())[2], "one pod is ready, one drains")
	v.Endpoints[0].Addresses = v.Endpoints[0].Addresses[1:]
	check.Health.Ready = map[netip.Addr]int{}
	require.Equal(t, check, exposedPorts(v, exposing())[2])
	_, problems := mapping.Map(v, exposing())
	require.Empty(t, problems)

	_, problems = mapping.Map(v, settings)
	require.Contains(t, fmt.Sprint(problems), "healthCheckNodePort is not served")

	v.Services[0].Local = false
	require.Len(t, exposedPorts(v, exposing()), 2)

	v.Services[0].Local = true
	other := *v.Services[0]
	other.UID, other.Name, other.ClusterIPs, other.Ports = svc2, "other", []netip.Addr{netip.MustParseAddr("10.96.0.21")}, nil
	v.Services, v.VIPs[coe.VIP{Address: other.ClusterIPs[0]}] = append(v.Services, &other), true
	require.Len(t, exposedPorts(v, exposing()), 3)
	_, problems = mapping.Map(v, exposing())
	require.Contains(t, fmt.Sprint(problems), "node port tcp 30081 belongs to service web")
}

// Nodes lead a limited number of ports of external addresses for a namespace.
func TestManyExposedAddresses(t *testing.T) {
	v := exposedView(func(*coe.Service) {})
	first := *v.Services[0]
	v.Services = nil
	for n := range 3 {
		s := first
		s.UID, s.Name, s.ExternalIPs, s.Ports = fmt.Sprint("s", n), fmt.Sprint("s", n), nil, []coe.ServicePort{{Protocol: "tcp", Port: 80}}
		for i := range coe.MaxExternalPorts / 2 {
			a := netip.AddrFrom4([4]byte{192, 0, byte(n), byte(i)})
			s.ExternalIPs = append(s.ExternalIPs, a)
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: 80}] = true
		}
		v.Services = append(v.Services, &s)
	}
	require.Len(t, exposedPorts(v, exposing()), coe.MaxExternalPorts)
	_, problems := mapping.Map(v, exposing())
	require.Len(t, slices.DeleteFunc(problems, func(p coe.Problem) bool { return p.Reason != coe.TooLarge }), 1)
}

// If nodes balance, they lead a limited number of ports of cluster addresses for a namespace.
func TestManyClusterPorts(t *testing.T) {
	balanced := exposing()
	balanced.Limits.NodesBalance = true
	v := exposedView(func(*coe.Service) {})
	first := *v.Services[0]
	v.Services = nil
	for n := range coe.MaxClusterPorts/100 + 1 {
		s := first
		s.UID, s.Name, s.Ports = fmt.Sprintf("s%03d", n), fmt.Sprint("s", n), nil
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(n), 1})}
		for i := range 100 {
			s.Ports = append(s.Ports, coe.ServicePort{Name: fmt.Sprint("p", i), Protocol: "tcp", Port: uint16(1 + i)})
		}
		v.VIPs[coe.VIP{Address: s.ClusterIPs[0]}] = true
		v.Services = append(v.Services, &s)
	}
	require.Len(t, exposedPorts(v, balanced), coe.MaxClusterPorts)
	_, problems := mapping.Map(v, balanced)
	excess := slices.DeleteFunc(problems, func(p coe.Problem) bool { return p.Reason != coe.TooLarge })
	require.Len(t, excess, 1)
	require.Equal(t, v.Services[len(v.Services)-1].UID, excess[0].UID)
	require.Empty(t, exposedPorts(v, exposing()), "otherwise the backend has them")
}

// The limits of endpoints count a service once, however many node ports it has. A node gets as many
// endpoints as it can use.
func TestManyExposedEndpoints(t *testing.T) {
	for _, of := range []struct{ ports, pods, want int }{{41, 60, 60}, {2, coe.MaxExposedEndpoints + 1, coe.MaxExposedEndpoints}} {
		v := exposedView(func(s *coe.Service) {
			s.Local, s.Ports = true, nil
			for n := range of.ports {
				s.Ports = append(s.Ports, coe.ServicePort{Name: fmt.Sprint("p", n), Protocol: "tcp", Port: uint16(1 + n), NodePort: uint16(30000 + n)})
			}
		})
		e, lease := v.Endpoints[0], *v.Leases[0]
		e.Addresses, e.Terminating, e.Ports, lease.Addresses = nil, nil, nil, nil
		for n := range of.ports {
			e.Ports = append(e.Ports, coe.EndpointPort{Name: fmt.Sprint("p", n), Protocol: "tcp", Port: 8080})
			v.VIPs[coe.PortOnNodes("tcp", uint16(30000+n))] = true
		}
		for n := range of.pods {
			a := netip.AddrFrom4([4]byte{10, 11, 3, byte(n)})
			lease.Addresses = append(lease.Addresses, coe.LeasedAddress{Address: a})
			e.Addresses = append(e.Addresses, a)
		}
		v.Leases = append(v.Leases, &lease)
		exposed := exposedPorts(v, exposing())
		require.Len(t, exposed, of.ports)
		for _, p := range exposed {
			require.Len(t, p.Endpoints[lease.Node], of.want, p.Name())
		}
	}
}

// Nodes lead to the endpoints of a port themselves if these are pods of the namespace, and not too many. Hints of
// endpoints do not count: nodes are at no place.
func TestDirectEndpoints(t *testing.T) {
	pods := func(n int) (all []netip.Addr) {
		for i := range n {
			all = append(all, netip.AddrFrom4([4]byte{10, 11, 3, byte(i)}))
		}
		return all
	}
	first := netip.MustParseAddrPort("10.11.3.0:8080")
	for name, c := range map[string]struct {
		change func(*coe.View)
		want   int
		sticky bool
	}{
		"all are pods":     {func(*coe.View) {}, 2, false},
		"session affinity": {func(v *coe.View) { v.Services[0].Affinity = 10800 }, 2, true},
		"an address twice": {func(v *coe.View) { v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, first.Addr()) }, 2, false},
		"hints": {func(v *coe.View) {
			v.Services[0].Distributes = true
			v.Endpoints[0].Places = []coe.Place{{Hints: &coe.Hints{Zones: []string{"a"}}}, {Hints: &coe.Hints{Zones: []string{"b"}}}}
		}, 2, false},
		"one drains": {func(v *coe.View) {
			e := v.Endpoints[0]
			e.Addresses, e.Terminating = e.Addresses[:1], e.Addresses[1:]
		}, 1, false},
		"all drain": {func(v *coe.View) {
			e := v.Endpoints[0]
			e.Addresses, e.Terminating = nil, e.Addresses
		}, 2, false},
		"as many as possible": {func(v *coe.View) { v.Endpoints[0].Addresses = pods(coe.MaxExposedEndpoints) }, coe.MaxExposedEndpoints, false},
		"too many":            {func(v *coe.View) { v.Endpoints[0].Addresses = pods(coe.MaxExposedEndpoints + 1) }, 0, false},
		"one is not a pod": {func(v *coe.View) {
			v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, netip.MustParseAddr("172.30.1.9"))
			v.Services[0].Affinity = 10800
		}, 0, false},
		"the pod of a released lease":    {func(v *coe.View) { v.Leases[len(v.Leases)-1].Released = 1 }, 0, false},
		"none":                           {func(v *coe.View) { v.Endpoints = nil }, 0, false},
		"internalTrafficPolicy is Local": {func(v *coe.View) { v.Services[0].InternalLocal = true }, 0, false},
		"pods that the service names":    {func(v *coe.View) { v.Endpoints, v.Services[0].PodEndpoints = nil, []string{uid1, uid2} }, 2, false},
	} {
		v := exposedView(func(s *coe.Service) { s.Ports = s.Ports[:1] })
		lease := *v.Leases[0]
		lease.Addresses = nil
		for _, a := range pods(coe.MaxExposedEndpoints + 1) {
			lease.Addresses = append(lease.Addresses, coe.LeasedAddress{Address: a})
		}
		v.Leases = append(v.Leases, &lease)
		v.Endpoints[0].Addresses, v.Endpoints[0].Terminating = pods(2), nil
		c.change(&v)
		ports := exposedPorts(v, exposing())
		port := ports[len(ports)-1]
		require.Len(t, port.Direct, c.want, name)
		require.True(t, slices.IsSortedFunc(port.Direct, netip.AddrPort.Compare), name)
		require.Equal(t, c.sticky, port.Affinity != 0, name)
		require.Empty(t, port.Endpoints, name)
		require.Equal(t, netip.MustParseAddrPort("10.96.0.20:80"), port.To, name)
	}
}

// The endpoints of all ports of a namespace have a limit. Ports beyond it lead to the cluster address.
func TestManyDirectEndpoints(t *testing.T) {
	v := exposedView(func(*coe.Service) {})
	lease, endpoints := *v.Leases[0], v.Endpoints[0]
	lease.Addresses, endpoints.Addresses, endpoints.Terminating = nil, nil, nil
	for i := range 50 {
		a := netip.AddrFrom4([4]byte{10, 11, 3, byte(i)})
		lease.Addresses, endpoints.Addresses = append(lease.Addresses, coe.LeasedAddress{Address: a}), append(endpoints.Addresses, a)
	}
	v.Leases = append(v.Leases, &lease)
	first := *v.Services[0]
	v.Services, v.Endpoints = nil, nil
	for n := range coe.MaxDirectEndpoints/50 + 5 {
		s, e := first, *endpoints
		s.UID, s.Name, e.Name = fmt.Sprintf("s%03d", n), fmt.Sprintf("s%03d", n), fmt.Sprintf("s%03d", n)
		s.Ports = []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, NodePort: uint16(30000 + n)}}
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(n >> 8), byte(n)})}
		v.VIPs[coe.VIP{Address: s.ClusterIPs[0]}], v.VIPs[coe.PortOnNodes("tcp", s.Ports[0].NodePort)] = true, true
		v.Services, v.Endpoints = append(v.Services, &s), append(v.Endpoints, &e)
	}
	total := 0
	ports := exposedPorts(v, exposing())
	require.Len(t, ports, len(v.Services))
	for i, p := range ports {
		require.Equal(t, i < coe.MaxDirectEndpoints/50, len(p.Direct) > 0, p.Name())
		total += len(p.Direct)
	}
	require.Equal(t, coe.MaxDirectEndpoints, total)
}

// Node ports that nodes do not answer on are problems.
func TestPortsThatAreNotExposed(t *testing.T) {
	problem := func(v coe.View, s mapping.Settings) (reasons []coe.Reason, message string) {
		_, problems := mapping.Map(v, s)
		for _, p := range problems {
			reasons = append(reasons, p.Reason)
			message += p.Message
		}
		return reasons, message
	}
	v := exposedView(func(s *coe.Service) { s.Local = true })
	reasons, message := problem(v, exposing())
	require.Empty(t, reasons, message)

	reasons, message = problem(v, settings)
	require.Equal(t, []coe.Reason{coe.NotEnforced}, reasons)
	require.Contains(t, message, "node ports are not served")
	require.Contains(t, message, "externalTrafficPolicy Local has no effect")

	for name, isolated := range map[string]mapping.Settings{"nodes lead pods": isolating(), "the network does": {Isolation: mapping.IsolationNamespace}} {
		v := exposedView(func(s *coe.Service) {
			s.ClusterIPs, s.ExternalIPs, s.Local, s.HealthPort = s.ClusterIPs[1:], []netip.Addr{netip.MustParseAddr("192.0.2.10")}, true, 30081
		})
		reasons, message = problem(v, isolated)
		require.Equal(t, []coe.Reason{coe.NotEnforced}, reasons, name)
		for _, text := range []string{
			"node ports are not served: they need --node-ports, a cluster IP of a family of --node-network, and --isolation none",
			"external addresses answer only pods, and none on OpenDaylight", "externalTrafficPolicy Local has no effect", "healthCheckNodePort is not served",
		} {
			require.Contains(t, message, text, name)
		}
	}

	six := exposedView(func(s *coe.Service) { s.ClusterIPs = s.ClusterIPs[:1] })
	reasons, message = problem(six, exposing())
	require.Equal(t, []coe.Reason{coe.NotEnforced}, reasons)
	require.Contains(t, message, "a cluster IP of a family of --node-network")
	require.Empty(t, exposedPorts(six, exposing()))
	reasons, message = problem(six, dual())
	require.Empty(t, reasons, message)
	require.Len(t, exposedPorts(six, dual()), 2)

	unclaimed := exposedView(func(*coe.Service) {})
	delete(unclaimed.VIPs, coe.PortOnNodes("udp", 30053))
	require.Len(t, exposedPorts(unclaimed, exposing()), 1)

	both := exposedView(func(*coe.Service) {})
	second := *both.Services[0]
	second.UID, second.Name, second.ClusterIPs = svc2, "other", []netip.Addr{netip.MustParseAddr("10.96.0.21")}
	both.Services = append(both.Services, &second)
	both.VIPs[coe.VIP{Address: second.ClusterIPs[0]}] = true
	reasons, message = problem(both, exposing())
	require.Equal(t, []coe.Reason{coe.AddressTaken, coe.AddressTaken}, reasons)
	require.Contains(t, message, "node port tcp 30080 belongs to service web")
	require.Len(t, exposedPorts(both, exposing()), 2)
}

// TestClusterAddresses: if nodes balance, they lead to cluster addresses too, with all endpoints that serve.
func TestClusterAddresses(t *testing.T) {
	balanced := exposing()
	balanced.Limits.NodesBalance, balanced.Limits.NoPlaces = true, true
	v := exposedView(func(*coe.Service) {})
	all := exposedPorts(v, balanced)
	require.Len(t, all, 5)
	to := netip.MustParseAddrPort
	require.Equal(t, coe.ExposedPort{
		Address: netip.MustParseAddr("10.96.0.20"), Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: to("10.96.0.20:80"),
		Direct: []netip.AddrPort{to("10.11.2.28:8080"), to("172.30.1.9:8080")},
	}, all[0], "an endpoint that is not a pod too")
	require.Equal(t, "tcp/9/10.96.0.20", all[2].Name())
	require.Empty(t, all[2].Direct, "a port without endpoints is refused")
	require.Equal(t, uint16(30080), all[3].Port)

	v = exposedView(func(*coe.Service) {})
	v.Endpoints[0].Addresses, v.Endpoints[0].Terminating = nil, nil
	for n := range coe.MaxExposedEndpoints + 1 {
		pod := netip.AddrFrom4([4]byte{10, 11, 3, byte(n)})
		synth.AddPod(&v, fmt.Sprintf("pod-%03d", n), fmt.Sprintf("many%d", n), pod.String())
		v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, pod)
	}
	all = exposedPorts(v, balanced)
	require.Len(t, all[0].Direct, coe.MaxExposedEndpoints)
	require.Len(t, all[3].Direct, coe.MaxExposedEndpoints, "a node port does not lead nowhere")

	v = exposedView(func(s *coe.Service) { s.InternalLocal = true })
	all = exposedPorts(v, balanced)
	require.True(t, all[0].Local)
	require.Equal(t, map[netip.Addr][]netip.AddrPort{v.Leases[0].Node: {to("10.11.2.28:8080")}}, all[0].Endpoints)
	require.False(t, all[3].Local, "internalTrafficPolicy is about the cluster address")
	m, problems := mapping.Map(v, balanced)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Message, "nobody reaches its cluster address fd00:96::1")
	port, is := m[netvirt.NodePort{ELAN: netvirt.ELANName(v.Leases[0].Node, v.Namespace)}.Key()].(netvirt.NodePort)
	require.True(t, is, "the node is a neighbour of its pods")
	require.Empty(t, port.Addresses(), "and no route leads there")
	m, _ = mapping.Map(v, exposing())
	require.NotContains(t, m, port.Key())
}

// internal returns ports of the cluster address of a service with internalTrafficPolicy Local.
func internal(v coe.View, s mapping.Settings) (all []coe.ExposedPort) {
	for _, p := range exposedPorts(v, s) {
		if p.Own {
			all = append(all, p)
		}
	}
	return all
}

// TestInternalLocal: nodes lead their own programs to the endpoints on the node: pods of the namespace, and addresses of the
// node. Without any endpoint they refuse their programs. Clients elsewhere are not led.
func TestInternalLocal(t *testing.T) {
	to := netip.MustParseAddrPort
	v := exposedView(func(s *coe.Service) { s.InternalLocal, s.Affinity = true, 10800 })
	second, other := netip.MustParseAddr("fd12::1"), netip.MustParseAddr("192.168.33.13")
	v.Nodes[synth.Node1].SecondIP = second
	v.Nodes[other] = &coe.Node{UID: "n2", HostName: "node2", InternalIP: other, SecondIP: second}
	v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, other, second)
	web := coe.ExposedPort{
		Address: netip.MustParseAddr("10.96.0.20"), Own: true, Protocol: "tcp", Port: 80, Namespace: v.Namespace, To: to("10.96.0.20:80"), Local: true, Affinity: 10800,
		Endpoints: map[netip.Addr][]netip.AddrPort{synth.Node1: {to("10.11.2.28:8080")}, other: {to("192.168.33.13:8080")}},
	}
	dns := web
	dns.Protocol, dns.Port, dns.To = "udp", 53, to("10.96.0.20:53")
	dns.Endpoints = map[netip.Addr][]netip.AddrPort{synth.Node1: {to("10.11.2.28:5353")}, other: {to("192.168.33.13:5353")}}
	none := coe.ExposedPort{
		Address: web.Address, Own: true, Protocol: "tcp", Port: 9, Namespace: v.Namespace, To: to("10.96.0.20:9"), Local: true, Affinity: 10800, Refuses: true,
		Endpoints: map[netip.Addr][]netip.AddrPort{},
	}
	require.Equal(t, []coe.ExposedPort{web, dns, none}, internal(v, exposing()))
	require.Equal(t, "own/tcp/80/10.96.0.20", web.Name())
	require.Equal(t, []coe.ExposedPort{web, dns, none}, exposedPorts(v, settings), "node ports are not needed")
	require.Empty(t, internal(v, unmanaged()))
	six := internal(v, dual())
	require.Len(t, six, 6)
	require.Equal(t, map[netip.Addr][]netip.AddrPort{synth.Node1: {netip.AddrPortFrom(second, 8080)}, other: {netip.AddrPortFrom(second, 8080)}}, six[0].Endpoints,
		"nodes that report one address do not take it from each other")
	for _, e := range service.Exposures(v, exposing().ServiceSettings()) {
		require.False(t, e.Own, "clients outside are not led there")
	}
	_, problems := mapping.Map(v, exposing())
	require.Empty(t, problems)

	v.Endpoints[0].Addresses = v.Endpoints[0].Addresses[1:2]
	v.Endpoints[0].Terminating = nil
	web.Endpoints, dns.Endpoints = map[netip.Addr][]netip.AddrPort{}, map[netip.Addr][]netip.AddrPort{}
	require.Equal(t, []coe.ExposedPort{web, dns, none}, internal(v, exposing()), "an endpoint elsewhere is on no node")

	v.Endpoints[0].Addresses = nil
	web.Refuses, dns.Refuses = true, true
	require.Equal(t, []coe.ExposedPort{web, dns, none}, internal(v, exposing()), "no endpoint at all")
}

// Nodes have a limited number of ports for their own programs of a namespace.
func TestManyInternalPorts(t *testing.T) {
	v := exposedView(func(*coe.Service) {})
	first, endpoints := *v.Services[0], *v.Endpoints[0]
	v.Services, v.Endpoints = nil, nil
	for n := range coe.MaxInternalPorts + 2 {
		s, e := first, endpoints
		s.UID, s.Name, e.Name = fmt.Sprintf("s%03d", n), fmt.Sprintf("s%03d", n), fmt.Sprintf("s%03d", n)
		s.Ports, s.InternalLocal = []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80}}, true
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(n >> 8), byte(n)})}
		v.VIPs[coe.VIP{Address: s.ClusterIPs[0]}] = true
		v.Services, v.Endpoints = append(v.Services, &s), append(v.Endpoints, &e)
	}
	require.Len(t, internal(v, exposing()), coe.MaxInternalPorts)
	_, problems := mapping.Map(v, exposing())
	require.Len(t, problems, 2)
	require.Contains(t, problems[0].Message, "programs on nodes reach all endpoints of some of its ports")
}

// TestManyPortsWithAffinity: nodes keep the endpoints of clients at so many ports of a namespace that their rules are not too many.
func TestManyPortsWithAffinity(t *testing.T) {
	for _, endpoints := range []int{1, 20, coe.MaxExposedEndpoints, 2 * coe.MaxExposedEndpoints} {
		most := coe.MaxAffinityRules / (2*min(endpoints, coe.MaxExposedEndpoints) + 1)
		v := exposedView(func(*coe.Service) {})
		first, addresses := *v.Services[0], *v.Endpoints[0]
		addresses.Addresses = nil
		for n := range endpoints {
			addresses.Addresses = append(addresses.Addresses, netip.AddrFrom4([4]byte{10, 42, 9, byte(n)}))
		}
		v.Services, v.Endpoints = nil, nil
		for n := range most + 2 {
			s, e := first, addresses
			s.UID, s.Name, e.Name = fmt.Sprintf("s%04d", n), fmt.Sprintf("s%04d", n), fmt.Sprintf("s%04d", n)
			s.Ports, s.Local, s.Affinity = []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, NodePort: uint16(30080 + n)}}, true, 10800
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(n >> 8), byte(n)})}
			v.VIPs[coe.VIP{Address: s.ClusterIPs[0]}] = true
			v.VIPs[coe.VIP{Address: netip.IPv4Unspecified(), Protocol: "tcp", Port: uint16(30080 + n)}] = true
			v.Services, v.Endpoints = append(v.Services, &s), append(v.Endpoints, &e)
		}
		keeping := 0
		for _, p := range exposedPorts(v, exposing()) {
			keeping += int(min(p.Affinity, 1))
		}
		require.Equal(t, most, keeping, "with %d endpoints", endpoints)
		_, problems := mapping.Map(v, exposing())
		require.Len(t, problems, 2)
		require.Contains(t, problems[0].Message, "clients of nodes keep no endpoint at some of its ports")
	}
}

// TestSharedEndpoints: nodes have the endpoints of a local node port on other nodes too, if there are not too many.
func TestSharedEndpoints(t *testing.T) {
	for _, c := range []struct {
		nodes, pods int
		want        bool
	}{{1, 1, true}, {2, coe.MaxExposedEndpoints / 2, true}, {2, coe.MaxExposedEndpoints/2 + 1, false}, {1, 0, false}} {
		v := exposedView(func(s *coe.Service) { s.Local, s.Ports = true, s.Ports[:1] })
		v.Endpoints[0].Addresses, v.Endpoints[0].Terminating = nil, nil
		for n := range c.nodes {
			lease := *v.Leases[0]
			lease.Addresses, lease.Node = nil, netip.AddrFrom4([4]byte{192, 168, 33, byte(20 + n)})
			for i := range c.pods {
				a := netip.AddrFrom4([4]byte{10, 11, byte(3 + n), byte(i)})
				lease.Addresses, v.Endpoints[0].Addresses = append(lease.Addresses, coe.LeasedAddress{Address: a}), append(v.Endpoints[0].Addresses, a)
			}
			v.Leases = append(v.Leases, &lease)
		}
		p := exposedPorts(v, exposing())[0]
		require.Equal(t, c.want, p.Shared, c)
		require.Equal(t, c.want, p.Every, c)
		require.Equal(t, p, service.Exposures(v, exposing().ServiceSettings())[0].ExposedPort)
		if c.nodes > 1 && c.want { // a node whose pods all drain
			e := v.Endpoints[0]
			e.Addresses, e.Terminating = e.Addresses[:c.pods], e.Addresses[c.pods:]
			p = exposedPorts(v, exposing())[0]
			require.True(t, p.Shared)
			require.False(t, p.Every, "programs that ask their own node reach only those that are ready")
		}
	}
	v := exposedView(func(s *coe.Service) { s.Local, s.ExternalIPs = true, []netip.Addr{netip.MustParseAddr("192.0.2.10")} })
	v.VIPs[coe.VIP{Address: netip.MustParseAddr("192.0.2.10"), Protocol: "tcp", Port: 80}] = true
	balanced := exposing()
	balanced.Limits.NodesBalance, balanced.Limits.NoPlaces = true, true
	for _, p := range append(exposedPorts(v, exposing())[2:], exposedPorts(v, balanced)...) {
		require.False(t, p.Shared, p.Name())
	}
}

// TestInsideEndpoints: if nodes balance, they have the endpoints of a port with the policy Local on all nodes, for clients inside the cluster: the
// pods that serve, up to a number for a port and for the namespace.
func TestInsideEndpoints(t *testing.T) {
	balanced := exposing()
	balanced.Limits.NodesBalance, balanced.Limits.NoPlaces = true, true
	external := netip.MustParseAddr("192.0.2.10")
	view := func(change func(*coe.Service)) coe.View {
		v := exposedView(func(s *coe.Service) {
			s.Local, s.ExternalIPs, s.Ports = true, []netip.Addr{external}, s.Ports[:1]
			change(s)
		})
		v.VIPs[coe.VIP{Address: external, Protocol: "tcp", Port: 80}] = true
		return v
	}
	v := view(func(*coe.Service) {})
	node := v.Leases[0].Node
	to := netip.MustParseAddrPort
	ready := []coe.InsideEndpoint{{At: to("10.11.2.28:8080"), Node: node}}
	all := exposedPorts(v, balanced)
	require.Len(t, all, 3)
	require.Empty(t, all[0].Inside, "a cluster address has other endpoints")
	for _, p := range all[1:] {
		require.True(t, p.Local)
		require.Equal(t, ready, p.Inside, "%s: neither one that drains, nor one that is not a pod", p.Name())
	}
	for _, p := range slices.Concat(exposedPorts(v, exposing()), exposedPorts(view(func(s *coe.Service) { s.Local = false }), balanced)) {
		require.Empty(t, p.Inside, p.Name())
	}
	v.Endpoints[0].Addresses = nil
	require.Equal(t, []coe.InsideEndpoint{{At: to("10.11.2.29:8080"), Node: node}}, exposedPorts(v, balanced)[1].Inside, "no other is there")

	v.Endpoints[0].Terminating = nil
	for n := range coe.MaxExposedEndpoints + 1 {
		pod := netip.AddrFrom4([4]byte{10, 11, 3, byte(n)})
		synth.AddPod(&v, fmt.Sprintf("pod-%03d", n), fmt.Sprintf("many%d", n), pod.String())
		v.Endpoints[0].Addresses = append(v.Endpoints[0].Addresses, pod)
	}
	require.Len(t, exposedPorts(v, balanced)[1].Inside, coe.MaxExposedEndpoints)
	most := coe.MaxSharedEndpoints / coe.MaxExposedEndpoints
	v = alike(v, most+2, func(s *coe.Service) { s.ExternalIPs = nil })
	inside := 0
	for _, p := range exposedPorts(v, balanced) {
		inside += len(p.Inside)
	}
	require.Equal(t, most*coe.MaxExposedEndpoints, inside)
}

// TestAffinityInside: a node port with affinity and the policy Local has three chains if nodes balance, and a port of an external address two.
func TestAffinityInside(t *testing.T) {
	balanced := exposing()
	balanced.Limits.NodesBalance, balanced.Limits.NoPlaces = true, true
	external := netip.MustParseAddr("192.0.2.10")
	keeping := func(external ...netip.Addr) (n int) {
		v := exposedView(func(s *coe.Service) { s.Local, s.Affinity, s.ExternalIPs, s.Ports = true, 10800, external, s.Ports[:1] })
		v = alike(v, 400, func(s *coe.Service) {
			if len(external) > 0 {
				s.Ports[0].NodePort = 0
			}
		})
		for _, p := range exposedPorts(v, balanced) {
			if n += int(min(p.Affinity, 1)); p.Affinity == 0 {
				break
			}
		}
		return n
	}
	const rules = 2*2 + 1                                                    // of a chain with two endpoints
	for want, got := range map[int]int{4: keeping(), 3: keeping(external)} { // chains of a service
		services := coe.MaxAffinityRules / (want * rules)
		require.InDelta(t, 2*min(services, 400), got, 1, "%d chains", want)
	}
}

// alike returns a view with services like its first one, each with a port, a cluster address and a node port of its own.
func alike(v coe.View, count int, change func(*coe.Service)) coe.View {
	service, endpoints := v.Services[0], v.Endpoints[0]
	v.Services, v.Endpoints = nil, nil
	for n := range count {
		s, e := *service, *endpoints
		s.UID, s.Name, e.Name = fmt.Sprintf("s%04d", n), fmt.Sprintf("s%04d", n), fmt.Sprintf("s%04d", n)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(n >> 8), byte(n)})}
		s.Ports = slices.Clone(s.Ports)
		s.Ports[0].Port, s.Ports[0].NodePort = uint16(80+n), uint16(30080+n)
		change(&s)
		v.VIPs[coe.VIP{Address: s.ClusterIPs[0]}], v.VIPs[coe.PortOnNodes("tcp", s.Ports[0].NodePort)] = true, true
		for _, a := range s.ExternalIPs {
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: s.Ports[0].Port}] = true
		}
		v.Services, v.Endpoints = append(v.Services, &s), append(v.Endpoints, &e)
	}
	return v
}

// If nodes lead pods of isolated namespaces to services, they lead to cluster addresses of IPv4.
func TestClusterAddressesOfIsolatedNamespaces(t *testing.T) {
	v := exposedView(func(*coe.Service) {})
	v.Networks = &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, Isolated: true, NodesBalance: true}
	ports := exposedPorts(v, isolating())
	require.NotEmpty(t, ports)
	for _, p := range ports {
		require.True(t, p.Address.Is4() && p.Address == p.To.Addr(), p.Name())
	}
	_, problems := mapping.Map(synth.WithVIPs(v), isolating())
	require.Contains(t, fmt.Sprint(problems), "nobody reaches its cluster address fd00:96::1: on OpenDaylight nodes lead to services of IPv4 only")
}

// isolating are settings with which nodes lead pods of isolated namespaces to services.
func isolating() mapping.Settings {
	return mapping.Settings{
		Isolation: mapping.IsolationNamespace, NodeAddresses: true, Limits: netvirt.Limits{NodesBalance: true, NoPlaces: true},
	}
}
