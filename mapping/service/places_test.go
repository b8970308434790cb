package service_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// endpoint is an endpoint of a service: 10.0.0.n, on a node, with hints.
type endpoint struct {
	n            byte
	node         string
	nodes, zones []string // hints
	draining     bool
}

// slice returns endpoints as an Endpoints, as coe/kube makes it of an EndpointSlice.
func slice(endpoints ...endpoint) *coe.Endpoints {
	out := &coe.Endpoints{UID: "e", Name: "web", Namespace: "default", PortsByName: true, Ports: []coe.EndpointPort{{Protocol: "tcp", Port: 8080}}}
	for _, draining := range []bool{false, true} {
		for _, e := range endpoints {
			if e.draining != draining {
				continue
			}
			addr := netip.AddrFrom4([4]byte{10, 0, 0, e.n})
			if draining {
				out.Terminating = append(out.Terminating, addr)
			} else {
				out.Addresses = append(out.Addresses, addr)
			}
			p := coe.Place{Node: e.node}
			if len(e.nodes)+len(e.zones) > 0 {
				p.Hints = &coe.Hints{Nodes: e.nodes, Zones: e.zones}
			}
			out.Places = append(out.Places, p)
		}
	}
	return out
}

// nodesOfPlaces are the nodes of a view: one and two in zone a, three in zone b, and four in no zone.
func nodesOfPlaces() map[netip.Addr]*coe.Node {
	all := map[netip.Addr]*coe.Node{}
	for i, zone := range []string{"a", "a", "b", ""} {
		name := []string{"one", "two", "three", "four"}[i]
		addr := netip.AddrFrom4([4]byte{192, 168, 33, byte(1 + i)})
		all[addr] = &coe.Node{UID: name, HostName: name, InternalIP: addr, Zone: zone}
	}
	return all
}

// near returns, for each VIP, the endpoints of clients at each node of a view, and "else" for clients
// elsewhere: "1,2". A node that is at no place has the endpoints of "else".
func near(t *testing.T, m netvirt.Model, nodes map[netip.Addr]*coe.Node) map[string]map[string]string {
	t.Helper()
	short := func(l netvirt.EndpointList) string {
		return strings.NewReplacer("10.0.0.", "", ":8080", "").Replace(string(l))
	}
	all := map[string]map[string]string{}
	for _, o := range m {
		v, ok := o.(netvirt.ServiceVIP)
		if !ok {
			continue
		}
		at := map[string]string{"else": short(v.Endpoints)}
		for _, n := range nodes {
			at[n.HostName] = short(v.Endpoints)
		}
		places := m[netvirt.Service{Namespace: v.Namespace, UID: v.Service}.Key()].(netvirt.Service).Places.All()
		lists := v.Near.All()
		require.Len(t, lists, len(places))
		seen := map[netvirt.EndpointList]bool{}
		for i, place := range places {
			for _, addr := range place {
				at[nodes[addr].HostName] = short(lists[i])
			}
			require.False(t, seen[lists[i]], "each place of a service with one VIP has other endpoints")
			seen[lists[i]] = len(m.Select(netvirt.NewKindSet(netvirt.KindServiceVIP))) == 1
		}
		all[v.VIP.Addr().String()] = at
	}
	return all
}

// TestPlaces: the endpoints of a service depend on where its clients are exactly as with kube-proxy.
// The cases are from topology.go and topology_test.go of Kubernetes.
func TestPlaces(t *testing.T) {
	a, b, ab := []string{"a"}, []string{"b"}, []string{"a", "b"}
	one, three := []string{"one"}, []string{"three"}
	everywhere := func(list string) map[string]string {
		return map[string]string{"one": list, "two": list, "three": list, "four": list, "else": list}
	}
	for name, c := range map[string]struct {
		local     bool
		endpoints []endpoint
		want      map[string]string
		places    int
	}{
		"no hints": {endpoints: []endpoint{{n: 1, node: "one"}, {n: 2, node: "three"}}, want: everywhere("1,2")},
		"hints for zones": {
			endpoints: []endpoint{{n: 1, node: "one", zones: a}, {n: 2, node: "two", zones: a}, {n: 3, node: "three", zones: b}},
			want:      map[string]string{"one": "1,2", "two": "1,2", "three": "3", "four": "1,2,3", "else": "1,2,3"}, places: 3,
		},
		"an endpoint for two zones": {
			endpoints: []endpoint{{n: 1, zones: ab}, {n: 2, zones: b}},
			want:      map[string]string{"one": "1", "two": "1", "three": "1,2", "four": "1,2", "else": "1,2"}, places: 2,
		},
		"a ready endpoint has no hint": {endpoints: []endpoint{{n: 1, zones: a}, {n: 2, zones: b}, {n: 3}}, want: everywhere("1,2,3")},
		"a draining endpoint has no hint": {
			endpoints: []endpoint{{n: 1, zones: a}, {n: 2, zones: b}, {n: 3, draining: true}},
			want:      map[string]string{"one": "1", "two": "1", "three": "2", "four": "1,2", "else": "1,2"}, places: 3,
		},
		"no endpoint for a zone": {
			endpoints: []endpoint{{n: 1, zones: a}, {n: 2, zones: a}, {n: 3, zones: []string{"c"}}},
			want:      map[string]string{"one": "1,2", "two": "1,2", "three": "1,2,3", "four": "1,2,3", "else": "1,2,3"}, places: 2,
		},
		"no endpoint is ready: hints do not count": {
			endpoints: []endpoint{{n: 1, zones: a, draining: true}, {n: 2, zones: b, draining: true}}, want: everywhere("1,2"),
		},
		"hints that divide nothing": {endpoints: []endpoint{{n: 1, zones: ab}, {n: 2, zones: ab}}, want: everywhere("1,2")},
		"hints for nodes": {
			endpoints: []endpoint{{n: 1, nodes: one}, {n: 2, nodes: three}},
			want:      map[string]string{"one": "1", "two": "1,2", "three": "2", "four": "1,2", "else": "1,2"}, places: 3,
		},
		"hints for nodes, and for zones where no node has an endpoint": {
			endpoints: []endpoint{{n: 1, nodes: one, zones: a}, {n: 2, nodes: []string{"two"}, zones: a}, {n: 3, nodes: []string{"five"}, zones: b}},
			want:      map[string]string{"one": "1", "two": "2", "three": "3", "four": "1,2,3", "else": "1,2,3"}, places: 4,
		},
		"hints for nodes are incomplete, those for zones are not": {
			endpoints: []endpoint{{n: 1, nodes: one, zones: a}, {n: 2, zones: a}, {n: 3, zones: b}},
			want:      map[string]string{"one": "1,2", "two": "1,2", "three": "3", "four": "1,2,3", "else": "1,2,3"}, places: 3,
		},
		"local": {
			local: true, endpoints: []endpoint{{n: 1, node: "one"}, {n: 2, node: "one"}, {n: 3, node: "three"}},
			want: map[string]string{"one": "1,2", "two": "", "three": "3", "four": "", "else": "1,2,3"}, places: 3,
		},
		"local: hints do not count": {
			local: true, endpoints: []endpoint{{n: 1, node: "one", zones: b}, {n: 2, node: "three", zones: a}},
			want: map[string]string{"one": "1", "two": "", "three": "2", "four": "", "else": "1,2"}, places: 3,
		},
		"local: draining endpoints serve a node without others": {
			local: true, endpoints: []endpoint{{n: 1, node: "one"}, {n: 2, node: "one", draining: true}, {n: 3, node: "three", draining: true}},
			want: map[string]string{"one": "1", "two": "", "three": "3", "four": "", "else": "1"}, places: 3,
		},
		"local: the node of an endpoint is unknown": {
			local: true, endpoints: []endpoint{{n: 1}, {n: 2, node: "two"}},
			want: map[string]string{"one": "", "two": "2", "three": "", "four": "", "else": "1,2"}, places: 2,
		},
		"local: no endpoints": {local: true, want: everywhere("")},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
			v.Nodes = nodesOfPlaces()
			v.Services = []*coe.Service{{
				UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
				Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}, InternalLocal: c.local,
			}}
			v.Endpoints = []*coe.Endpoints{slice(c.endpoints...)}
			m, problems := mapping.Map(synth.WithVIPs(v), settings)
			require.Empty(t, problems)
			require.Equal(t, c.want, near(t, m, v.Nodes)["10.96.0.20"])
			require.Len(t, m[netvirt.Service{Namespace: "default", UID: svc1}.Key()].(netvirt.Service).Places.All(), c.places)

			without := settings
			without.Limits.NoPlaces = true
			m, problems = mapping.Map(synth.WithVIPs(v), without)
			require.Equal(t, everywhere(c.want["else"]), near(t, m, v.Nodes)["10.96.0.20"])
			require.Equal(t, c.local, len(problems) == 1, "the backend's limit is reported")
			if !c.local {
				require.Equal(t, c.want, nearNodes(t, synth.WithVIPs(v)))
			}
		})
	}
}

// balancing are settings in which nodes lead pods to services.
func balancing() mapping.Settings {
	s := settings
	s.Limits.NodesBalance, s.Limits.NoPlaces = true, true
	return s
}

// nearNodes returns the endpoints to which each node leads the clients of the only port, in the form of near.
func nearNodes(t *testing.T, v coe.View) map[string]string {
	ports := exposedPorts(v, balancing())
	require.Len(t, ports, 1)
	require.False(t, ports[0].Local)
	short := func(endpoints []netip.AddrPort) string {
		return strings.NewReplacer("10.0.0.", "", ":8080", "").Replace(string(netvirt.NewEndpointList(endpoints...)))
	}
	all := map[string]string{"else": short(ports[0].Direct)}
	for addr, n := range v.Nodes {
		all[n.HostName] = short(ports[0].Direct)
		if near, found := ports[0].Endpoints[addr]; found {
			require.NotEqual(t, ports[0].Direct, near, "a record has only what differs")
			all[n.HostName] = short(near)
		}
	}
	return all
}

// TestNearNodesOfIsolatedNamespaces: hints count for the nodes of pods of the namespace.
func TestNearNodesOfIsolatedNamespaces(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Nodes = nodesOfPlaces()
	v.Leases[0].Node = netip.MustParseAddr("192.168.33.1")
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
		Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}, Distributes: true,
	}}
	v.Endpoints = []*coe.Endpoints{slice(endpoint{n: 1, nodes: []string{"one"}}, endpoint{n: 2, nodes: []string{"two"}})}
	ports := exposedPorts(synth.WithVIPs(v), isolating())
	require.Len(t, ports, 1)
	require.Equal(t, map[netip.Addr][]netip.AddrPort{v.Leases[0].Node: {netip.MustParseAddrPort("10.0.0.1:8080")}}, ports[0].Endpoints)
}

// TestTooManyNearEndpoints: if nodes balance, hints have no effect above a limit, and the service has a problem if it asks for hints.
func TestTooManyNearEndpoints(t *testing.T) {
	v := synth.OneNode()
	v.Nodes = map[netip.Addr]*coe.Node{}
	var endpoints []endpoint
	for i := range byte(64) {
		zone := string('a' + rune(i%2))
		addr := netip.AddrFrom4([4]byte{192, 168, 33, i})
		v.Nodes[addr] = &coe.Node{UID: zone, HostName: fmt.Sprint("node", i), InternalIP: addr, Zone: zone}
		endpoints = append(endpoints, endpoint{n: i, zones: []string{zone}})
	}
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
		Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}, Distributes: true,
	}}
	v.Endpoints = []*coe.Endpoints{slice(endpoints...)}
	v = synth.WithVIPs(v)
	_, problems := mapping.Map(v, balancing())
	require.Empty(t, problems)
	require.Len(t, exposedPorts(v, balancing())[0].Endpoints, 64)

	for i := range 32 {
		addr := netip.AddrFrom4([4]byte{192, 168, 34, byte(i)})
		v.Nodes[addr] = &coe.Node{UID: "more", HostName: fmt.Sprint("more", i), InternalIP: addr, Zone: "a"}
	}
	_, problems = mapping.Map(v, balancing())
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	ports := exposedPorts(v, balancing())
	require.Empty(t, ports[0].Endpoints)
	require.Len(t, ports[0].Direct, 64)
}

// TestPlacesOfExternalAddresses: internalTrafficPolicy decides on the cluster addresses alone, hints
// decide on all.
func TestPlacesOfExternalAddresses(t *testing.T) {
	v := synth.OneNode()
	v.Nodes = nodesOfPlaces()
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", InternalLocal: true,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}, ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}},
	}}
	v.Endpoints = []*coe.Endpoints{slice(endpoint{n: 1, node: "two", zones: []string{"a"}}, endpoint{n: 2, node: "three", zones: []string{"b"}})}
	m, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Empty(t, problems)
	require.Equal(t, map[string]map[string]string{
		"10.96.0.20": {"one": "", "two": "1", "three": "2", "four": "", "else": "1,2"},
		"192.0.2.1":  {"one": "1", "two": "1", "three": "2", "four": "1,2", "else": "1,2"},
	}, near(t, m, v.Nodes))
}

// TestPlacesOfIsolatedNamespaces: the clients of an isolated namespace are its own pods. Nodes without
// one of them are at no place.
func TestPlacesOfIsolatedNamespaces(t *testing.T) {
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.Nodes[netip.MustParseAddr("192.168.33.99")] = &coe.Node{UID: "n2", HostName: "node2"}
	v.Services = []*coe.Service{{
		UID: svc1, Name: "web", Namespace: "default", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
		Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}, InternalLocal: true,
	}}
	v.Endpoints = []*coe.Endpoints{slice(endpoint{n: 1, node: "node1"}, endpoint{n: 2, node: "node2"})}
	isolated := mapping.Settings{Isolation: mapping.IsolationNamespace}
	m, problems := mapping.Map(synth.WithVIPs(v), isolated)
	require.Empty(t, problems)
	s := m[netvirt.Service{Namespace: "default", UID: svc1}.Key()].(netvirt.Service)
	require.Equal(t, netvirt.NewPlaceList([]netip.Addr{synth.Node1}), s.Places)
}

// TestReportOfPlaces: what has no effect is reported where the backend cannot do it, and only there.
func TestReportOfPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		service coe.Service
		want    coe.Ignored
	}{
		"local":        {coe.Service{InternalLocal: true}, coe.InternalPolicyLocal},
		"distribution": {coe.Service{Distributes: true}, coe.Topology},
		"both":         {coe.Service{InternalLocal: true, Distributes: true}, coe.InternalPolicyLocal | coe.Topology},
		"none":         {coe.Service{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
			c.service.UID, c.service.Name, c.service.Namespace = svc1, "web", "default"
			v.Services = []*coe.Service{&c.service}
			_, problems := mapping.Map(synth.WithVIPs(v), settings)
			require.Empty(t, problems)
			without := settings
			without.Limits.NoPlaces = true
			_, problems = mapping.Map(synth.WithVIPs(v), without)
			if c.want == 0 {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, coe.NotEnforced, problems[0].Reason)
			require.Equal(t, c.want.String(), problems[0].Message)
		})
	}
}

// manyEndpoints returns a service, and endpoints whose places are at returns.
func manyEndpoints(number, endpoints int, local bool, at func(i int) coe.Place) (*coe.Service, *coe.Endpoints) {
	name := fmt.Sprintf("web%03d", number)
	s := &coe.Service{
		UID: svc1 + "-" + name, Name: name, Namespace: "default", InternalLocal: local,
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(number)})},
		Ports:      []coe.ServicePort{{Protocol: "tcp", Port: 80}},
	}
	e := slice()
	e.UID, e.Name = name, name
	for i := range endpoints {
		e.Addresses = append(e.Addresses, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		e.Places = append(e.Places, at(i))
	}
	return s, e
}

// twoNodes alternates between nodes of two zones.
func twoNodes(i int) coe.Place { return coe.Place{Node: []string{"one", "three"}[i%2]} }

// overlapping has hints for both zones. The first two endpoints have one zone each.
func overlapping(i int) coe.Place {
	zones := []string{"a", "b"}
	if i < 2 {
		zones = zones[i : i+1]
	}
	return coe.Place{Hints: &coe.Hints{Zones: zones}}
}

// TestLimitsOfPlaces: the endpoints at all places have a limit. Above it, a service with a policy is not
// mapped, and hints have no effect.
func TestLimitsOfPlaces(t *testing.T) {
	external := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for name, c := range map[string]struct {
		endpoints int
		local     bool
		external  []netip.Addr
		at        func(int) coe.Place
		want      coe.Reason
		vips      int
		places    int
	}{
		"local, on one node":           {coe.MaxBackends, true, nil, func(int) coe.Place { return coe.Place{Node: "one"} }, "", 1, 2},
		"local, on two nodes":          {coe.MaxBackends, true, nil, twoNodes, "", 1, 3},
		"local, all at each place too": {coe.MaxBackends / 2, true, external, twoNodes, coe.TooLarge, 0, 0},
		"hints":                        {coe.MaxPlaceBackends/2 + 1, false, nil, overlapping, "", 1, 3},
		"too many with hints":          {coe.MaxPlaceBackends/2 + 2, false, nil, overlapping, coe.NotEnforced, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := synth.OneNode()
			v.Nodes = nodesOfPlaces()
			s, e := manyEndpoints(1, c.endpoints, c.local, c.at)
			s.ExternalIPs = c.external
			v.Services, v.Endpoints = []*coe.Service{s}, []*coe.Endpoints{e}
			m, problems := mapping.Map(synth.WithVIPs(v), settings)
			want := c.vips + len(c.external)*c.vips
			require.Len(t, m.Select(netvirt.NewKindSet(netvirt.KindServiceVIP)), want)
			if c.want == "" {
				require.Empty(t, problems)
			} else {
				require.Len(t, problems, 1)
				require.Equal(t, c.want, problems[0].Reason)
			}
			if c.vips > 0 {
				require.Len(t, m[netvirt.Service{Namespace: "default", UID: s.UID}.Key()].(netvirt.Service).Places.All(), c.places)
			}
		})
	}
}

// TestRefusedPlacesCostNothing: a service that is refused takes nothing of its namespace's limit.
func TestRefusedPlacesCostNothing(t *testing.T) {
	v := synth.OneNode()
	v.Nodes = nodesOfPlaces()
	const refused = coe.MaxNamespaceBackends / coe.MaxBackends
	for i := range refused + 1 {
		s, e := manyEndpoints(i, coe.MaxBackends/2, i < refused, twoNodes)
		s.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		v.Services, v.Endpoints = append(v.Services, s), append(v.Endpoints, e)
	}
	m, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Len(t, problems, refused)
	require.Len(t, m.Select(netvirt.NewKindSet(netvirt.KindService)), 1)
}

// TestManyMemberships: the nodes at the places of all services of a namespace are limited. Services
// without places do not share this limit.
func TestManyMemberships(t *testing.T) {
	v := synth.OneNode()
	v.Nodes = map[netip.Addr]*coe.Node{}
	for i := range 1000 {
		addr := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
		v.Nodes[addr] = &coe.Node{UID: fmt.Sprint(i), HostName: fmt.Sprint(i), InternalIP: addr}
	}
	const local = coe.MaxNamespaceBackends / 1000
	for i := range local + 1 {
		s, e := manyEndpoints(i, 1, i < local, func(int) coe.Place { return coe.Place{Node: "7"} })
		v.Services, v.Endpoints = append(v.Services, s), append(v.Endpoints, e)
	}
	m, problems := mapping.Map(synth.WithVIPs(v), settings)
	require.Len(t, m.Select(netvirt.NewKindSet(netvirt.KindService)), local, "1,000 memberships and one VIP without endpoints each: the last one is too many")
	require.Len(t, problems, 1)
	require.Equal(t, coe.TooLarge, problems[0].Reason)
	require.Equal(t, v.Services[local-1].UID, problems[0].UID)
}
