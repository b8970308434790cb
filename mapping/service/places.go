package service

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// candidate is an endpoint of a port of a service.
type candidate struct {
	at       netip.AddrPort
	draining bool
	place    *coe.Place // nil if it is not known
}

// choice has the endpoints of a port by the place of the client. It follows the rules of kube-proxy
// (CategorizeEndpoints in pkg/proxy/topology.go of Kubernetes). An endpoint is ready if it is not
// draining. A service has local clients if internalTrafficPolicy is Local and they use its cluster address.
//
//	clients           | condition                                                             | endpoints
//	local             | endpoints on the client's node are ready                              | these
//	local             | none is ready there                                                   | the draining ones there, or none
//	others            | every ready endpoint has hints for nodes, one for the client's node   | the ready ones for this node
//	others, otherwise | every ready endpoint has hints for zones, one for the client's zone   | the ready ones for this zone
//	others, otherwise | an endpoint is ready                                                  | all that are ready
//	others, otherwise |                                                                       | all that are draining
//
// A node without a known zone is in none.
type choice struct {
	all            netvirt.EndpointList
	byNode, byZone map[string]netvirt.EndpointList // nil if they do not count
	local          bool                            // only byNode counts
}

func newChoice(candidates []candidate, local bool) *choice {
	ready := readyOf(candidates)
	c := &choice{all: listOf(orElse(ready, candidates)), local: local}
	switch {
	case local:
		c.byNode = map[string]netvirt.EndpointList{}
		here, _ := byNameOf(candidates, nodeOf)
		for node, all := range here {
			c.byNode[node] = listOf(orElse(readyOf(all), all))
		}
	case len(ready) > 0:
		c.byNode = hinted(ready, func(h *coe.Hints) []string { return h.Nodes })
		c.byZone = hinted(ready, func(h *coe.Hints) []string { return h.Zones })
	}
	return c
}

// at returns the endpoints for clients on a node; nil: on a node that is not known.
func (c *choice) at(n *coe.Node) netvirt.EndpointList {
	if n == nil {
		return c.all
	}
	if list, found := c.byNode[n.HostName]; found || c.local {
		return list
	}
	if list, found := c.byZone[n.Zone]; found {
		return list
	}
	return c.all
}

// byPlace reports whether the endpoints can depend on the place of the client.
func (c *choice) byPlace() bool {
	return len(c.byNode)+len(c.byZone) > 0 || c.local && c.all != ""
}

func readyOf(candidates []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.draining })
}

func orElse(ready, all []candidate) []candidate {
	if len(ready) > 0 {
		return ready
	}
	return all
}

func listOf(candidates []candidate) netvirt.EndpointList {
	all := make([]netip.AddrPort, len(candidates))
	for i, c := range candidates {
		all[i] = c.at
	}
	return netvirt.NewEndpointList(all...)
}

// nodeOf returns the node of an endpoint, if it is known.
func nodeOf(p *coe.Place) []string {
	if p.Node == "" {
		return nil
	}
	return []string{p.Node}
}

// hinted returns the endpoints by the names of their hints; nil if an endpoint has none.
func hinted(ready []candidate, names func(*coe.Hints) []string) map[string]netvirt.EndpointList {
	byName, complete := byNameOf(ready, func(p *coe.Place) []string {
		if p.Hints == nil {
			return nil
		}
		return names(p.Hints)
	})
	if !complete {
		return nil
	}
	lists := make(map[string]netvirt.EndpointList, len(byName))
	for name, all := range byName {
		lists[name] = listOf(all)
	}
	return lists
}

// byNameOf returns the candidates by the names of their places. complete reports whether each has a name.
func byNameOf(candidates []candidate, names func(*coe.Place) []string) (byName map[string][]candidate, complete bool) {
	byName, complete = map[string][]candidate{}, true
	for _, c := range candidates {
		var all []string
		if c.place != nil {
			all = names(c.place)
		}
		complete = complete && len(all) > 0
		for _, name := range all {
			byName[name] = append(byName[name], c)
		}
	}
	return byName, complete
}

// offer is a VIP of a service, and the choice of its endpoints; nil if the place of the client does not
// count.
type offer struct {
	netvirt.ServiceVIP
	choice *choice
}

// choices returns how the endpoints of a port are chosen for clients of the cluster addresses, and for
// clients of the external addresses, where internalTrafficPolicy does not count.
func (b *builder) choices(s *coe.Service, is4 bool, port coe.ServicePort, targets []target) (internal, external *choice) {
	var candidates []candidate
	for t, number := range b.served(s, is4, port, targets) {
		candidates = append(candidates, candidate{netip.AddrPortFrom(t.addr, number), t.draining, t.place})
	}
	external = newChoice(candidates, false)
	if !s.InternalLocal {
		return external, external
	}
	return newChoice(candidates, true), external
}

// dependsOnPlace reports whether the place of a client decides on its endpoints of a service.
func (b *builder) dependsOnPlace(s *coe.Service, endpoints []*coe.Endpoints) bool {
	return !b.Limits.NoPlaces && (s.InternalLocal || slices.ContainsFunc(endpoints, (*coe.Endpoints).Hinted))
}

// divide divides the nodes of clients into places whose clients have the same endpoints, and sets Near
// of the offers. It returns no places if all clients have the endpoints that clients of no place have.
// excess is a message if the places exceed a limit.
func (b *builder) divide(offers []offer) (places netvirt.PlaceList, excess string) {
	choices := choicesByPlace(offers)
	if len(choices) == 0 {
		return "", ""
	}
	var (
		nodes     [][]netip.Addr                   // by place
		number    = map[string]int{}               // of a place, by its signature
		id        = map[netvirt.EndpointList]int{} // of a list
		signature []byte
		differs   bool
	)
	for _, addr := range b.clients() {
		signature = signature[:0]
		for _, c := range choices {
			list := c.at(b.Nodes[addr])
			differs = differs || list != c.all
			if _, known := id[list]; !known {
				id[list] = len(id)
			}
			signature = binary.AppendUvarint(signature, uint64(id[list]))
		}
		place, known := number[string(signature)]
		if !known {
			place = len(nodes)
			number[string(signature)], nodes = place, append(nodes, nil)
		}
		nodes[place] = append(nodes[place], addr)
	}
	if !differs {
		return "", ""
	}
	if excess := b.excessOfPlaces(offers, nodes); excess != "" {
		return "", excess
	}
	for i := range offers {
		near := make([]netvirt.EndpointList, len(nodes))
		for place := range nodes {
			near[place] = offers[i].choice.at(b.Nodes[nodes[place][0]])
		}
		offers[i].Near = netvirt.NewNearList(near...)
	}
	return netvirt.NewPlaceList(nodes...), ""
}

// choicesByPlace returns the choices of offers that depend on the place of the client, each once.
func choicesByPlace(offers []offer) (choices []*choice) {
	for _, o := range offers {
		if o.choice.byPlace() && !slices.Contains(choices, o.choice) {
			choices = append(choices, o.choice)
		}
	}
	return choices
}

// excessOfPlaces returns a message if the places of a service exceed a limit, else "". If they exceed
// none, it adds them to the namespace's count of places. Services without places do not share this count.
func (b *builder) excessOfPlaces(offers []offer, places [][]netip.Addr) string {
	endpoints, memberships := 0, 0
	for _, nodes := range places {
		here, differs := map[netvirt.Protocol]int{}, map[netvirt.Protocol]bool{}
		for _, o := range offers {
			list := o.choice.at(b.Nodes[nodes[0]])
			here[o.Protocol] += max(1, backendsOf(list, o.VIP))
			differs[o.Protocol] = differs[o.Protocol] || list != o.Endpoints
		}
		for protocol, n := range here {
			memberships += len(nodes)
			if differs[protocol] { // else the place needs no copy
				endpoints += n
			}
		}
	}
	if endpoints > coe.MaxPlaceBackends {
		return fmt.Sprintf("the endpoints of clients at all places (internalTrafficPolicy, or hints of endpoints) are more than %d; split the service",
			coe.MaxPlaceBackends)
	}
	if b.placeEntries+endpoints+memberships > coe.MaxNamespaceBackends {
		return fmt.Sprintf("it and the services of the namespace before it have more than %d endpoints and nodes at the places of clients "+
			"(internalTrafficPolicy, or hints of endpoints); use another namespace, or remove services", coe.MaxNamespaceBackends)
	}
	b.placeEntries += endpoints + memberships
	return ""
}

// backendsOf returns the number of endpoints of a VIP. An IPv6 endpoint counts twice.
func backendsOf(list netvirt.EndpointList, vip netip.AddrPort) int {
	n := 0
	if list != "" {
		n = 1 + strings.Count(string(list), ",")
	}
	if vip.Addr().Is6() {
		n *= 2
	}
	return n
}

// clients returns the nodes of the pods that can be clients of the namespace's services, sorted: all
// nodes or, if namespaces are isolated, the nodes of its pods. A client elsewhere, such as a program on
// a node, has the endpoints of no place.
func (b *builder) clients() []netip.Addr {
	if b.clientNodes != nil {
		return b.clientNodes
	}
	if b.Isolated {
		nodes := map[netip.Addr]bool{}
		for _, l := range b.pods {
			nodes[l.Node] = true
		}
		b.clientNodes = slices.SortedFunc(maps.Keys(nodes), netip.Addr.Compare)
	} else {
		b.clientNodes = slices.SortedFunc(maps.Keys(b.Nodes), netip.Addr.Compare)
	}
	return b.clientNodes
}

// withoutPlaces returns the settings of a service about the place of clients that have no effect.
func (b *builder) withoutPlaces(s *coe.Service) (out coe.Ignored) {
	if !b.Limits.NoPlaces {
		return 0
	}
	if s.InternalLocal && !b.NodesBalance {
		out |= coe.InternalPolicyLocal
	}
	if s.Distributes && (!b.NodesBalance || b.tooFar(s)) {
		out |= coe.Topology
	}
	return out
}
