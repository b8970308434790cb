package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/service"
)

// Way is how clients outside the cluster reach an endpoint of a service.
type Way struct {
	// At is the address that clients ask; zero for every address of the nodes, of the family of To.
	At netip.Addr `json:"at,omitzero"`
	// Node is the node that alone answers if At is zero; zero for every node. Its addresses of the family of To are not known.
	Node netip.Addr `json:"node,omitzero"`
	// Gateway is the node of the gateway of OVN that answers; zero if nodes answer.
	Gateway  netip.Addr `json:"gateway,omitzero"`
	Port     uint16     `json:"port"`
	Protocol string     `json:"protocol"`
	// Clients are the clients that may ask, of the family of the service's address: ranges, or "none"; empty for all.
	Clients string `json:"clients,omitempty"`
	Service string `json:"service"` // NAMESPACE/NAME
	Policy  string `json:"externalTrafficPolicy"`
	// To is an endpoint, and Pod its pod as NAMESPACE/NAME; zero if the service has no endpoint there.
	To  netip.AddrPort `json:"to,omitzero"`
	Pod string         `json:"pod,omitempty"`
	// Sees says which source address the endpoint sees: that of "the client", the edge address of "the asked node", or that which
	// "the gateway" of OVN has in its link.
	Sees string `json:"sees,omitempty"`
	// Admits says which of these clients the network policies of the pod admit: "all", "none", the ranges that they admit, or
	// "by some nodes". It is empty for an endpoint that is not a pod of the manifests.
	Admits string `json:"admits,omitempty"`
}

// WayChange is a way that is opened or closed.
type WayChange struct {
	Verb string `json:"verb"` // "open" or "close"
	Way
}

// Values of Way.
const (
	SeesClient  = "the client"
	SeesEdge    = "the asked node"
	SeesGateway = "the gateway"
	AdmitsAll   = "all"
	AdmitsNone  = "none"
	AdmitsSome  = "by some nodes"
	noClients   = "none"
)

// wayChanges compares ways, sorted by service and by what clients ask.
func wayChanges(before, after []Way) (changes []WayChange) {
	was, is := setOf(before), setOf(after)
	for w := range is {
		if !was[w] {
			changes = append(changes, WayChange{"open", w})
		}
	}
	for w := range was {
		if !is[w] {
			changes = append(changes, WayChange{"close", w})
		}
	}
	slices.SortFunc(changes, func(a, b WayChange) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port),
			a.At.Compare(b.At), a.Node.Compare(b.Node), a.Gateway.Compare(b.Gateway), strings.Compare(a.Verb, b.Verb), a.To.Compare(b.To),
			strings.Compare(a.Clients, b.Clients), strings.Compare(a.Policy, b.Policy), strings.Compare(a.Sees, b.Sees), strings.Compare(a.Admits, b.Admits))
	})
	return changes
}

// setOf returns ways as a set: a port of both families without endpoints is one way.
func setOf(ways []Way) map[Way]bool {
	set := map[Way]bool{}
	for _, w := range ways {
		set[w] = true
	}
	return set
}

// wayFinder finds the ways of a network.
type wayFinder struct {
	policies *policy.Cluster
	nodes    map[netip.Addr]*coe.Node
	pods     map[netip.Addr]*coe.Pod         // of a namespace
	edges    []netip.Addr                    // of nodes
	gateways map[netip.Addr]netvirt.Gateway  // by node
	atOVN    map[string][]netvirt.GatewayVIP // in order, by namespace
	services map[string]*coe.Service         // of a namespace, by UID
}

// asked is a Way to no endpoint yet.
type asked struct {
	Way
	clients netvirt.PrefixList // who may ask; all if Clients is empty
	sources []netip.Addr       // those that an endpoint can see, if it does not see the client's
}

// ways returns the ways by which clients outside reach the services of the network. The manifests have its pods and policies.
func (n *network) ways(model netvirt.Model, of *manifest.Set) (all []Way, err error) {
	world, err := of.World()
	if err != nil {
		return nil, err
	}
	f := &wayFinder{policies: policy.Compile(world), nodes: n.store.Nodes(), gateways: map[netip.Addr]netvirt.Gateway{}, atOVN: map[string][]netvirt.GatewayVIP{}}
	for _, k := range model.Keys() {
		switch o := model[k].(type) {
		case netvirt.ManagementPort:
			for _, at := range o.Families() {
				f.edges = append(f.edges, at.Edge)
			}
		case netvirt.Gateway:
			f.gateways[o.Node] = o
		case netvirt.GatewayVIP:
			f.atOVN[o.Namespace] = append(f.atOVN[o.Namespace], o)
		}
	}
	for _, ns := range n.store.Namespaces() {
		view := n.store.View(ns)
		f.pods, f.services = podsByAddress(view), servicesByUID(view)
		for _, e := range service.Exposures(view, n.cfg.Mapping.ServiceSettings()) {
			all = append(all, f.waysBy(&e)...)
		}
		for _, v := range f.atOVN[ns] {
			all = append(all, f.wayBy(v)...)
		}
	}
	return all, nil
}

func servicesByUID(v coe.View) map[string]*coe.Service {
	services := map[string]*coe.Service{}
	for _, s := range v.Services {
		services[s.UID] = s
	}
	return services
}

func podsByAddress(v coe.View) map[netip.Addr]*coe.Pod {
	byUID := map[string]*coe.Pod{}
	for _, p := range v.Pods {
		byUID[p.UID] = p
	}
	pods := map[netip.Addr]*coe.Pod{}
	for _, l := range v.Leases {
		for _, a := range l.Addresses {
			if p := byUID[l.PodUID]; p != nil && l.Released == 0 {
				pods[a.Address] = p
			}
		}
	}
	return pods
}

// waysBy returns the ways by a port on which nodes answer. A node with a local endpoint is asked by its internal address of the
// family of the endpoint.
func (f *wayFinder) waysBy(e *service.Exposure) []Way {
	way := asked{
		Way:     Way{At: e.Address, Port: e.Port, Protocol: e.Protocol, Service: e.Namespace + "/" + e.Service.Name, Policy: "Cluster", Sees: SeesEdge},
		sources: f.edges,
	}
	if e.Restricted {
		way.restrict(netvirt.NewPrefixList(e.Sources...).In(e.To.Addr()))
	}
	everyNode := !way.At.IsValid() || way.At.IsUnspecified()
	if everyNode {
		way.At = netip.Addr{}
	}
	if !e.Local {
		return f.to(way, e.All)
	}
	way.Policy, way.Sees = "Local", SeesClient
	if len(e.Endpoints) == 0 {
		return f.to(way, nil)
	}
	var all []Way
	for _, node := range slices.SortedFunc(maps.Keys(e.Endpoints), netip.Addr.Compare) {
		at := way
		if everyNode {
			at.At, at.Node = f.asked(node, e.To.Addr())
		}
		all = append(all, f.to(at, e.Endpoints[node])...)
	}
	return all
}

// wayBy returns the ways by a port on which a gateway of OVN answers.
func (f *wayFinder) wayBy(v netvirt.GatewayVIP) []Way {
	way := asked{Way: Way{
		At: v.VIP.Addr(), Gateway: v.Gateway, Port: v.VIP.Port(), Protocol: string(v.Protocol), Service: v.Namespace + "/" + f.services[v.Service].Name, Policy: "Cluster", Sees: SeesGateway,
	}}
	if v.Local {
		way.Policy, way.Sees = "Local", SeesClient
	}
	if v.Restricted {
		way.restrict(v.Sources)
	}
	for _, of := range f.gateways[v.Gateway].Families() {
		way.sources = append(way.sources, of.LinkAddress().Addr())
	}
	return f.to(way, v.Endpoints.All())
}

// restrict lets some clients alone ask.
func (a *asked) restrict(to netvirt.PrefixList) {
	a.clients, a.Clients = to, cmp.Or(strings.Join(texts(to.All()), ", "), noClients)
}

// asked returns the internal address of a node of the family of an address. If it is not known, asked returns the node instead.
func (f *wayFinder) asked(node, family netip.Addr) (at, unknown netip.Addr) {
	if node.Is4() == family.Is4() {
		return node, netip.Addr{}
	}
	if n := f.nodes[node]; n != nil && n.SecondIP.IsValid() && n.SecondIP.Is4() == family.Is4() {
		return n.SecondIP, netip.Addr{}
	}
	return netip.Addr{}, node
}

// to returns a way to each of several endpoints; one without an endpoint if there are none.
func (f *wayFinder) to(way asked, endpoints []netip.AddrPort) (all []Way) {
	for _, to := range endpoints {
		one := way
		one.To = to
		if p := f.pods[to.Addr()]; p != nil {
			one.Pod = p.Namespace + "/" + p.Name
			one.Admits = f.admits(p, one)
		}
		all = append(all, one.Way)
	}
	if all == nil {
		way.Sees = ""
		all = []Way{way.Way}
	}
	return all
}

// admits returns what the network policies of a pod say about the clients of a way.
func (f *wayFinder) admits(p *coe.Pod, w asked) string {
	ends, _ := f.policies.Pod(p.Namespace, p.Name)
	if len(ends) == 0 {
		return ""
	}
	var ranges []netip.Prefix
	if w.Sees == SeesClient {
		ranges = w.clients.All()
	}
	blocks, all := f.policies.Sources(ends[0].From(w.To.Addr()), policy.Port{Protocol: w.Protocol, Number: w.To.Port()}, ranges...)
	admitted := func(a netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b *coe.AddressBlock) bool { return b.Contains(a) })
	}
	switch {
	case len(blocks) == 0, w.Clients == noClients:
		return AdmitsNone
	case all:
		return AdmitsAll
	case w.Sees == SeesClient:
		return strings.Join(texts(blocks), ", ")
	}
	sources, some := 0, 0
	for _, a := range w.sources {
		if a.IsValid() && a.Is4() == w.To.Addr().Is4() {
			sources++
			some += number(admitted(a))
		}
	}
	switch some {
	case 0:
		return AdmitsNone
	case sources:
		return AdmitsAll
	}
	return AdmitsSome
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func texts[T fmt.Stringer](of []T) (all []string) {
	for _, one := range of {
		all = append(all, one.String())
	}
	return all
}
