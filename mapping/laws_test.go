package mapping_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// FuzzLaws maps two random states of one namespace, and checks the laws of the mapping
// and of the difference between the two models.
func FuzzLaws(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed*7+1)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		s := settings
		if a%3 == 0 {
			s.Isolation = mapping.IsolationNamespace
		}
		s.HostPorts = []coe.PortRange{{First: 80, Last: 80}}
		s.Limits.KeepsELANs, s.Limits.NodesBalance = a%2 == 0, a%2 == 0
		before, after := randomView(a), randomView(b)
		have, want := mapped(t, before, s), mapped(t, after, s)
		checkDiff(t, s, have, want)
		checkMapper(t, s, before, shared(before, after))
	})
}

// mapped maps a view and checks the properties of every model.
func mapped(t *testing.T, v coe.View, s mapping.Settings) netvirt.Model {
	m, problems := mapping.Map(v, s)
	again, problemsAgain := mapping.Map(v, s)
	require.Equal(t, m, again, "the model depends on the view alone")
	require.Equal(t, problems, problemsAgain)
	for k, o := range m {
		require.Equal(t, k, o.Key())
		require.Equal(t, netvirt.Scope(v.Namespace), o.Scope(), "%s is in its scope", k)
		for _, ref := range o.Refs() {
			require.Less(t, ref.Kind, k.Kind, "%s refers to lower kinds", k)
		}
	}
	requireClosed(t, s, m)
	require.Empty(t, netvirt.Diff(m, again), "a model is equal to itself")
	return m
}

// checkMapper checks that a Mapper returns the same result as Map.
func checkMapper(t *testing.T, s mapping.Settings, views ...coe.View) {
	m := mapping.NewMapper(nil, s)
	var before netvirt.Parts
	for _, v := range append(views, views...) {
		want, wantProblems := mapping.Map(v, s)
		got, gotProblems := m.Map(v)
		require.Equal(t, want.Parts(), got)
		require.Equal(t, wantProblems, gotProblems)
		changes := netvirt.DiffParts(before, got)
		netvirt.Sort(changes)
		require.Equal(t, netvirt.Diff(before.Model(), want), changes)
		before = got
	}
}

// shared returns a view that shares most of its values with another, like two views of one
// store.
func shared(from, v coe.View) coe.View {
	r := rand.New(rand.NewPCG(uint64(len(from.Pods)), uint64(len(v.Pods))))
	stays := func() bool { return r.IntN(5) > 0 } // whether a value is shared
	pods := map[string]*coe.Pod{}
	for _, p := range from.Pods {
		pods[p.UID] = p
	}
	for i, p := range v.Pods {
		if old := pods[p.UID]; old != nil && stays() {
			v.Pods[i] = old
		}
	}
	for _, l := range from.Leases {
		if n, found := v.Leases.Find(l.Key()); found && stays() && !isTaken(v.Leases, l) {
			v.Leases[n] = l
		}
	}
	keep(from.ELANs, v.ELANs, stays)
	keep(from.Nodes, v.Nodes, stays)
	if from.VPN != nil {
		v.VPN = from.VPN
	}
	for i := range v.Blocks {
		if stays() {
			v.Blocks[i] = from.Blocks[i]
		}
	}
	if r.IntN(2) == 0 {
		v.Blocks = from.Blocks
	}
	if r.IntN(2) == 0 {
		v.ELANs = from.ELANs
	}
	if r.IntN(2) == 0 {
		v.Nodes = from.Nodes
	}
	return v
}

// isTaken reports whether another interface has an address of a lease. In a Store none has.
func isTaken(leases coe.Leases, l *coe.Lease) bool {
	return slices.ContainsFunc(leases, func(other *coe.Lease) bool {
		return other.Key() != l.Key() && slices.ContainsFunc(other.Addresses, func(a coe.LeasedAddress) bool { return l.Has([]netip.Addr{a.Address}) })
	})
}

// keep copies some of the values whose keys are in both maps.
func keep[K comparable, V any](from, to map[K]V, stays func() bool) {
	byText := func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	for _, k := range slices.SortedFunc(maps.Keys(from), byText) {
		if _, found := to[k]; found && stays() {
			to[k] = from[k]
		}
	}
}

// requireClosed checks that the model, with the cluster's objects, has no dangling
// reference.
func requireClosed(t *testing.T, s mapping.Settings, m netvirt.Model) {
	whole, _ := mapping.Cluster(coe.ClusterView{}, s)
	for k, o := range m {
		whole[k] = o
	}
	from, to, dangling := whole.Dangling()
	require.False(t, dangling, "%s refers to %s", from, to)
}

func checkDiff(t *testing.T, s mapping.Settings, have, want netvirt.Model) {
	changes := netvirt.Diff(have, want)
	require.Equal(t, changes, netvirt.Diff(have, want), "the order is deterministic")
	state := netvirt.Model{}
	for k, o := range have {
		state[k] = o
	}
	for _, c := range changes {
		require.Equal(t, state[c.Key()], c.Old, "%s: the old object is the current one", c.Key())
		state.Apply([]netvirt.Change{c})
		requireClosed(t, s, state)
		requireOneHolder(t, state)
	}
	require.Equal(t, want, state, "the changes lead from have to want")
}

// requireOneHolder checks that no two interfaces hold one address.
func requireOneHolder(t *testing.T, m netvirt.Model) {
	holders := map[netip.Addr]string{}
	for _, o := range m {
		if a, ok := o.(netvirt.Adjacency); ok {
			other, taken := holders[a.Address]
			require.False(t, taken, "%s and %s hold %s", other, a.Interface, a.Address)
			holders[a.Address] = a.Interface
		}
	}
}

// randomView returns a state of the namespace "default": services, and pods on three nodes
// with leases of eight addresses. Some leases are missing or released.
func randomView(seed uint64) coe.View {
	r := rand.New(rand.NewPCG(seed, 1))
	v := coe.View{
		Namespace: "default",
		ELANs:     map[string]*coe.ELANFact{},
		Nodes:     map[netip.Addr]*coe.Node{},
		Refusals:  map[coe.LeaseKey]coe.Refusal{},
	}
	if r.IntN(10) > 0 {
		v.VPN = &coe.VPNFact{Name: "default", Namespace: "default", RD: 2}
	}
	for n := range 3 {
		addRandomNode(&v, r, n)
	}
	addresses := r.Perm(8)
	for i := range r.IntN(8) {
		addRandomPod(&v, r, i, addresses[i])
	}
	for i := range r.IntN(3) {
		addRandomService(&v, r, i)
	}
	return synth.WithVIPs(v)
}

func addRandomNode(v *coe.View, r *rand.Rand, n int) {
	addr := netip.AddrFrom4([4]byte{192, 168, 33, byte(n)})
	elan := netvirt.ELANName(addr, "default")
	if r.IntN(2) == 0 {
		v.Nodes[addr] = &coe.Node{UID: addr.String(), HostName: fmt.Sprintf("node%d", r.IntN(5)), InternalIP: addr}
	}
	if r.IntN(10) > 0 {
		v.ELANs[elan] = &coe.ELANFact{Name: elan, VNI: uint32(70000 + n), NetworkType: []string{"", "VXLAN", "FLAT", coe.MixedNetworks}[r.IntN(4)]}
	}
	gateway := block(n).Addr().Next()
	if r.IntN(4) == 0 {
		gateway = gateway.Next()
	}
	v.Blocks = append(v.Blocks,
		&coe.Block{ELAN: elan, Prefix: block(n), Gateway: gateway, Network: "default"},
		&coe.Block{ELAN: elan, Prefix: gatewayOnly, Gateway: gatewayOnly.Addr()})
}

var gatewayOnly = netip.MustParsePrefix("169.254.1.1/32")

func block(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n), 0}), 29)
}

func addRandomPod(v *coe.View, r *rand.Rand, i, address int) {
	n := r.IntN(3)
	key := synth.LeaseKey(i)
	p := &coe.Pod{
		UID: key.PodUID, Name: fmt.Sprintf("pod-%d", r.IntN(20)*8+i), Namespace: "default",
		HostIP: netip.AddrFrom4([4]byte{192, 168, 33, byte(n)}), NoNetwork: r.IntN(9) == 0,
		Interfaces: []coe.PodInterface{{UID: key.InterfaceUID, NetworkType: []string{"", "VXLAN", "FLAT", "GRE", "VLAN"}[r.IntN(5)]}},
	}
	if r.IntN(4) == 0 {
		p.HostPorts = []uint16{uint16(80 + r.IntN(2))}
	}
	v.Pods = append(v.Pods, p)
	if r.IntN(9) == 0 {
		v.Refusals[key] = coe.Refusal{Reason: coe.PoolExhausted, Message: "no address is left"}
	}
	if r.IntN(6) == 0 {
		return
	}
	l := &coe.Lease{
		PodUID: key.PodUID, InterfaceUID: key.InterfaceUID, Seq: r.Uint64N(100), Namespace: "default", Pod: p.Name,
		Name: "default:" + p.Name, Primary: true, Node: p.HostIP, MAC: fmt.Sprintf("0a:58:0a:00:00:%02x", address),
		Released: int64(r.IntN(8) / 7),
		Addresses: []coe.LeasedAddress{{
			Address: netip.AddrFrom4([4]byte{10, 0, 9, byte(address)}), Network: gatewayOnly, Gateway: gatewayOnly.Addr(),
		}},
	}
	if r.IntN(3) > 0 {
		l.Addresses[0].Network, l.Addresses[0].Gateway = block(n), block(n).Addr().Next()
	}
	synth.PutLease(v, l)
	if r.IntN(9) == 0 {
		p.HostIP = netip.Addr{} // its node is gone; the lease keeps its address
	}
	if r.IntN(5) == 0 {
		addSecondInterface(v, p, *l)
	}
}

// addSecondInterface adds an interface to a pod. It has a lease if the address of the
// first interface is in a block.
func addSecondInterface(v *coe.View, p *coe.Pod, l coe.Lease) {
	l.InterfaceUID += "-2"
	l.Name += "-2"
	l.Primary = false
	p.Interfaces = append(p.Interfaces, coe.PodInterface{UID: l.InterfaceUID})
	if l.Addresses[0].Network != gatewayOnly {
		l.Addresses = slices.Clone(l.Addresses)
		l.Addresses[0].Address = netip.AddrFrom4([4]byte{10, 1, 9, l.Addresses[0].Address.As4()[3]})
		synth.PutLease(v, &l)
	}
}

func addRandomService(v *coe.View, r *rand.Rand, i int) {
	s := &coe.Service{
		UID: fmt.Sprintf("svc-%d", i), Name: fmt.Sprintf("svc-%d", r.IntN(2)), Namespace: "default",
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(r.IntN(3))})},
	}
	for _, p := range v.Pods {
		if r.IntN(2) == 0 {
			s.PodEndpoints = append(s.PodEndpoints, p.UID)
		}
	}
	for range r.IntN(3) {
		s.Ports = append(s.Ports, coe.ServicePort{
			Protocol: []string{"tcp", "udp"}[r.IntN(2)], Port: uint16(80 + r.IntN(2)), TargetPort: []string{"", "8080", "http"}[r.IntN(3)],
		})
	}
	s.InternalLocal = r.IntN(3) == 0
	v.Services = append(v.Services, s)
	e := &coe.Endpoints{
		UID: "e" + s.UID, Name: s.Name, Namespace: "default",
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 9, byte(r.IntN(9))})},
		Ports:     []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: 8080}},
	}
	if r.IntN(2) == 0 {
		e.Places = []coe.Place{{Node: fmt.Sprintf("node%d", r.IntN(5))}}
		if r.IntN(2) == 0 {
			e.Places[0].Hints = &coe.Hints{Nodes: []string{fmt.Sprintf("node%d", r.IntN(5))}}
		}
	}
	v.Endpoints = append(v.Endpoints, e)
}
