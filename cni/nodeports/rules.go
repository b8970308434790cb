package nodeports

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// The chains.
const (
	arriving  = "arriving"
	leaving   = "leaving"
	own       = "own"
	ownOnNode = "own-on-node"
	onNode    = "on-node"
	onAddress = "on-address"
	loopback  = "loopback"

	refusing      = "refusing"
	refusedHere   = "refused-here"
	refusedBeyond = "refused-beyond"
	ownRefused    = "own-refused"

	noEndpoint = "no-endpoint"
)

// Node is a node as its rules see it, in one family.
type Node struct {
	Family *Family
	// Link is the link to the pod network. EgressLinks are further links by which packets of pods come in: a name that
	// ends in * means every link whose name begins so.
	Link, EgressLinks string
	At                Addresses
	// HostPorts, Balances and Isolated are as in the Place.
	HostPorts, Balances, Isolated bool
}

// Chain is a chain with its rules.
type Chain struct {
	*nftables.Chain
	rules []rule
}

// Texts returns the texts of the rules.
func (c Chain) Texts() (all []string) {
	for _, r := range c.rules {
		all = append(all, r.text)
	}
	return all
}

// rule is an nftables rule. Its text identifies it: rules with equal texts are equal.
type rule struct {
	text  string
	exprs []expr.Any
}

func (r rule) in(c *nftables.Chain) *nftables.Rule {
	return &nftables.Rule{Table: c.Table, Chain: c, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.text)}
}

// Chains returns the chains of the table, sorted by name:
//
// any-of-n    destination NAT to a random one of n endpoints of a port at one address. node-any-of-n does the same for
//
//	ports at every address of the node. Ports with affinity have chains of their own; see clientRules. So have
//	those that lead clients inside the cluster elsewhere.
//
// arriving    sends packets to an external address through on-address, and those to an address of the node
//
//	through on-node. Packets of nodes that come from the pod network have been through a service there, and
//	are not led again: a service whose endpoint is a node port would lead them in a circle. To an external
//	address they are dropped: the routers outside would send them back.
//
// leaving     source NAT of packets of other nodes and of pods to an endpoint, to the edge address. The
//
//	answer of the endpoint would go to them directly otherwise. If the pod network does not balance, a pod
//	answers another node through its own node, so packets of other nodes keep their source. The same for packets
//	of all clients to endpoints that answer by a gateway, and to endpoints of ports that lead to all nodes.
//	Packets of the node's programs keep an address that is routed to the node. Those to host ports get the
//	address of the node in the pod network, and those to an endpoint that is a program of the node get its address.
//
// loopback    drops packets from the pod network with a loopback address: the link accepts them, so that
//
//	programs of the node reach host ports at a loopback address.
//
// no-endpoint drops packets to a local port without an endpoint.
//
// refusing    leads packets to a local port that refuses clients nowhere.
//
// refused-beyond, refused-here  refuse these packets: those to an external address are forwarded, the others
//
//	are for the node. Kernels before 5.9 cannot refuse packets earlier.
//
// on-address  drops packets of clients that must not reach the port. Then destination NAT of packets of
//
//	pods, to the cluster address of the service: they reach all endpoints. Others as on-node.
//
// on-node     sends packets through the chain for the number of endpoints of their port. Those to a port that
//
//	leads to no endpoints get destination NAT to the cluster address of the service. Then packets to a host
//	port, to its pod, unless a program of the node listens there.
//
// own         sends packets of the node's programs through the chain for the number of endpoints of a port that is only
//
//	for them; to endpoints elsewhere only while these are known to be current. Destination NAT of others, to the
//	cluster address or the pod. Only host ports answer at loopback addresses.
//
// own-refused refuses packets of the node's programs to a port that is only for them and refuses clients.
//
// The source of a packet to a cluster address is translated by the rules for all traffic of the node
// to services, so answers come back here; leaving comes after these. The source of a packet from
// outside the cluster to an endpoint on this node alone stays: the answer of a pod leaves the network by the pod's
// node.
func (n Node) Chains() []Chain {
	f := n.Family
	if n.Isolated {
		return n.isolatedChains()
	}
	again := slices.Concat(matches.InBy(n.Link), f.sourceIn(n.At.Network))
	all := []Chain{
		{
			f.nat(arriving, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
			append(n.notFromGateways(), []rule{
				{fmt.Sprintf("from nodes %s in the pod network to external addresses: not again", n.At.Network), slices.Concat(again, f.toExternal(), dropped())},
				{fmt.Sprintf("from nodes %s in the pod network: not again", n.At.Network), slices.Concat(again, returned())},
				{"to external addresses", append(f.toExternal(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onAddress})},
				{"to the node", append(f.toNode(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onNode})},
			}...),
		},
		{f.nat(leaving, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+1)), n.leavingRules()},
		{
			f.Chain(onAddress),
			append([]rule{
				{"from other sources not to restricted ports", f.fromOtherSources()},
				{"from pods to services", slices.Concat(matches.InBy(n.Link), f.asked(), f.dnat(Services))},
				{"from egress links to services", slices.Concat(matches.InBy(n.egressLinks()), f.asked(), f.dnat(Services))},
			}, f.lead(f.asked())...),
		},
		{f.Chain(onNode), f.lead(f.askedOfNode())},
		{
			f.nat(own, nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
			[]rule{
				{"from other sources not to restricted ports", f.fromOtherSources()},
				{"to endpoints on the node", f.toChain(here)},
				{"to endpoints elsewhere, while they are current", slices.Concat(isFresh(), f.toChain(elsewhere))},
				{"to external addresses of services", slices.Concat(f.asked(), f.dnat(Services))},
				{"to services", slices.Concat(f.notLoopback(), f.toNode(), f.askedOfNode(), f.dnat(Services))},
			},
		},
	}
	all = append(all, f.refusing()...)
	if n.Balances {
		all = n.balanceAll(all)
	}
	if n.HostPorts {
		all = n.withHostPorts(all)
	}
	all = append(all, f.balancing()...)
	slices.SortFunc(all, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isolatedChains returns the chains for isolated namespaces: those that lead pods to endpoints in their own namespace. No chain
// refuses clients: the caller must refuse what is still for a cluster address, because it knows whose addresses are routed where.
func (n Node) isolatedChains() []Chain {
	f, links := n.Family, n.egressLinks()
	all := []Chain{
		{
			f.nat(arriving, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
			[]rule{{"from pods to services", slices.Concat(matches.InBy(links), f.toExternal(), []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: onAddress}})}},
		},
		{f.nat(leaving, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+1)), []rule{{
			"from pods to an endpoint in their namespace with the address " + n.At.Edge.String(), slices.Concat(matches.OutBy(links), matches.InBy(links), matches.Translated(), f.snat(n.At.Edge)),
		}}},
		{f.Chain(onAddress), f.leadAlways(f.asked())},
	}
	unhooked := slices.DeleteFunc(f.refusing(), func(c Chain) bool { return c.Hooknum != nil })
	all = slices.Concat(all, unhooked, f.balancing())
	slices.SortFunc(all, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// notFromGateways returns the rules for packets that a gateway has led to the node: they are not led again, because a
// service whose endpoint is a node port would lead them in a circle.
func (n Node) notFromGateways() []rule {
	gateways := n.Family.gateways
	from := slices.Concat(matches.InBy(n.Link), n.Family.sourceIn(gateways))
	return []rule{
		{fmt.Sprintf("from gateways %s to external addresses: not again", gateways), slices.Concat(from, n.Family.toExternal(), dropped())},
		{fmt.Sprintf("from gateways %s: not again", gateways), slices.Concat(from, returned())},
	}
}

// balanceAll changes the rules for a pod network that does not balance: no client is led to a cluster address. The
// endpoints on other nodes count even if nobody keeps them current, as with kube-proxy.
func (n Node) balanceAll(all []Chain) []Chain {
	f := n.Family
	restricted := rule{"from other sources not to restricted ports", f.fromOtherSources()}
	toOwn := slices.Concat(f.notLoopback(), f.toNode(), []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: ownOnNode}})
	for i := range all {
		c := &all[i]
		switch c.Name {
		case onAddress:
			c.rules = slices.Concat([]rule{restricted}, n.leadPods(f.asked()), f.leadAlways(f.asked()))
		case onNode:
			c.rules = slices.Concat(n.leadPods(f.askedOfNode()), f.leadAlways(f.askedOfNode()))
		case own:
			c.rules = slices.Concat(
				[]rule{restricted, {"at the address of the node, to endpoints and nodes that have some", f.toChain(elsewhere)}, f.leadInside(f.asked())},
				f.leadAlways(f.asked()), []rule{{"to the node", toOwn}},
			)
		}
	}
	return append(all, Chain{f.Chain(ownOnNode), append([]rule{f.leadInside(f.askedOfNode())}, f.leadAlways(f.askedOfNode())...)})
}

// leadInside returns the rule that leads clients inside the cluster of a port, whose key at loads, if they reach other endpoints.
func (f *Family) leadInside(at []expr.Any) rule {
	return rule{"inside the cluster, to endpoints on any node", slices.Concat(at, verdictOf(Insiders))}
}

// leadPods returns the rules of leadInside for packets of pods.
func (n Node) leadPods(at []expr.Any) (all []rule) {
	inside := n.Family.leadInside(at)
	for _, link := range slices.Compact([]string{n.Link, n.egressLinks()}) {
		all = append(all, rule{"from " + link + " " + inside.text, slices.Concat(matches.InBy(link), inside.exprs)})
	}
	return all
}

// leadAlways returns the rules of lead that do not depend on whether the endpoints are current.
func (f *Family) leadAlways(at []expr.Any) []rule { return f.lead(at)[1:] }

// leavingRules returns the rules for the source of packets to endpoints.
func (n Node) leavingRules() (all []rule) {
	f, edge := n.Family, "with the address "+n.At.Edge.String()
	snat := slices.Concat(matches.Translated(), f.snat(n.At.Edge))
	if n.At.Node.IsValid() {
		all = append(all, n.toItself())
	}
	switch {
	case n.Balances:
		all = append(all, n.fromNode("an endpoint", nil), n.fromNodeOutside())
	case n.HostPorts:
		all = append(all, n.fromNode("a host port", hasLabel(hostLabel)))
	}
	all = append(all, n.fromPrograms()...)
	if !n.Balances {
		all = append(all, rule{"from other nodes to an endpoint " + edge, slices.Concat(matches.OutBy(n.Link), f.fromNodes(), snat)})
	}
	all = append(all, []rule{
		{"from pods to an endpoint " + edge, slices.Concat(matches.OutBy(n.Link), matches.InBy(n.Link), snat)},
		{"from egress links to an endpoint " + edge, slices.Concat(matches.OutBy(n.Link), matches.InBy(n.egressLinks()), snat)},
	}...)
	for _, p := range n.At.ByGateways {
		all = append(all, rule{
			fmt.Sprintf("to an endpoint in %s, which answers by a gateway, %s", p, edge), slices.Concat(matches.OutBy(n.Link), f.destinationIn(p), snat),
		})
	}
	return append(all, rule{"from clients to an endpoint on any node " + edge, slices.Concat(matches.OutBy(n.Link), hasLabel(edgeLabel), snat)})
}

// fromNode returns the rule for the source of packets of the node's programs to pods, of connections that match.
func (n Node) fromNode(to string, of []expr.Any) rule {
	text := fmt.Sprintf("from the node to %s with the address %s", to, n.At.Node)
	return rule{text, slices.Concat(matches.OutBy(n.Link), matches.FromHere(), of, matches.Translated(), n.Family.snat(n.At.Node))}
}

// fromPrograms returns the rules for the source of packets of the node's programs to other endpoints: an address that is routed to
// the node stays.
func (n Node) fromPrograms() (all []rule) {
	kept := []netip.Prefix{n.At.Network}
	if n.At.Internal.IsValid() {
		kept = append(kept, netip.PrefixFrom(n.At.Internal, n.At.Internal.BitLen()))
	}
	for _, p := range kept {
		all = append(all, rule{
			fmt.Sprintf("from the node with an address in %s to an endpoint with this address", p),
			slices.Concat(matches.OutBy(n.Link), matches.FromHere(), n.Family.sourceIn(p), returned()),
		})
	}
	if !n.At.Node.IsValid() {
		return all
	}
	return append(all, rule{
		fmt.Sprintf("from the node with another address to an endpoint with the address %s", n.At.Node),
		slices.Concat(matches.OutBy(n.Link), matches.FromHere(), matches.Translated(), n.Family.snat(n.At.Node)),
	})
}

// toItself returns the rule for the source of packets of the node's programs to programs of the node. The kernel has chosen
// the source by the route to the cluster address, and a server of UDP would answer from it.
func (n Node) toItself() rule {
	f := n.Family
	return rule{fmt.Sprintf("from %s to the node itself with the address of the endpoint", n.At.Node), slices.Concat(
		matches.OutBy("lo"), f.sourceIn(netip.PrefixFrom(n.At.Node, n.At.Node.BitLen())), matches.Translated(), f.load(f.destination, first),
		[]expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: f.translate, RegAddrMin: first}},
	)}
}

// fromNodeOutside returns the rule for the source of packets of the node's programs to endpoints that are neither in the pod
// network nor on the node. The kernel has chosen the source by the route to the cluster address.
func (n Node) fromNodeOutside() rule {
	elsewhere := slices.Concat(matches.NotOutBy(n.Link), matches.NotOutBy("lo"))
	return rule{
		"from the node to an endpoint elsewhere with the address of the link",
		slices.Concat(elsewhere, matches.FromHere(), matches.Translated(), []expr.Any{&expr.Masq{}}),
	}
}

// balancing returns the chains that choose an endpoint. A rule must load the whole key itself, so ports at every address of
// the node have other chains than ports at one address.
func (f *Family) balancing() []Chain {
	all := []Chain{{f.Chain(noEndpoint), []rule{{"no endpoint on the node", dropped()}}}}
	for n := 1; n <= MaxEndpoints; n++ {
		all = append(all, f.anyOf(n), Chain{
			f.Chain(chainOf(true, n)), []rule{{"of the node", slices.Concat(f.askedOfNode(), f.anySlot(n), f.dnat(endpoints))}},
		})
	}
	return all
}

// anyOf returns the chain that chooses one of n endpoints of a port at one address.
func (f *Family) anyOf(n int) Chain {
	return Chain{f.Chain(chainOf(false, n)), []rule{{"of an address", slices.Concat(f.asked(), f.anySlot(n), f.dnat(endpoints))}}}
}

// anySlot loads a random one of n slots.
func (f *Family) anySlot(n int) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: f.behind(2), Modulus: uint32(n), Type: unix.NFT_NG_RANDOM}}
}

// refusing returns the chains for ports that refuse clients.
func (f *Family) refusing() []Chain {
	refuse := func(text string, is []expr.Any) []rule {
		tcp := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{unix.IPPROTO_TCP}}}
		return []rule{
			{text + " by TCP", slices.Concat(tcp, is, []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})},
			{text, slices.Concat(is, []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.portUnreachable}})},
		}
	}
	to := func(at []expr.Any) []expr.Any {
		return slices.Concat(begins(), at, []expr.Any{&expr.Lookup{SourceRegister: first, SetName: refused}})
	}
	filter := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return &nftables.Chain{Table: f.Table(), Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter}
	}
	return []Chain{
		{f.Chain(refusing), []rule{{"clients are refused", returned()}}},
		{filter(refusedBeyond, nftables.ChainHookForward), refuse("to an external address", to(f.asked()))},
		{f.Chain(ownRefused), refuse("from a program of the node", nil)},
		{filter(refusedHere, nftables.ChainHookInput), slices.Concat(
			refuse("to the node", to(slices.Concat(f.notLoopback(), f.askedOfNode()))), refuse("to an external address", to(f.asked())),
		)},
	}
}

// withHostPorts adds the rules for host ports. Those for services come before them. An external address belongs to
// its service on all ports, and only host ports of a loopback address answer there.
func (n Node) withHostPorts(all []Chain) []Chain {
	f := n.Family
	notExternal := rule{"not at external addresses", append(f.toExternal(), returned()...)}
	ofAddress := rule{"to host ports of the address", slices.Concat(f.toNode(), f.asked(), f.dnat(HostPorts))}
	ofNode := rule{"to host ports", slices.Concat(f.notLoopback(), f.toNode(), f.askedOfNode(), f.dnat(HostPorts))}
	for i := range all {
		c := &all[i]
		switch c.Name {
		case onNode:
			c.rules = append(c.rules, notExternal, rule{"not at loopback addresses", append(f.compare(f.destination, expr.CmpOpEq, f.loopback), returned()...)},
				rule{"not if a program listens", append(listening(), returned()...)}, ofAddress, ofNode)
		case own:
			c.rules = append(c.rules, notExternal, rule{"to the node: remember this for the source", append(f.toNode(), setLabel(hostLabel)...)}, ofAddress, ofNode)
		}
	}
	return append(all, Chain{
		&nftables.Chain{Table: f.Table(), Name: loopback, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		[]rule{
			{"from the pod network not to loopback addresses", slices.Concat(matches.InBy(n.Link), f.compare(f.destination, expr.CmpOpEq, f.loopback), dropped())},
			{"from the pod network not from loopback addresses", slices.Concat(matches.InBy(n.Link), f.compare(f.source, expr.CmpOpEq, f.loopback), dropped())},
		},
	})
}

// lead returns the rules that translate the destination of packets to a port, whose key at loads.
func (f *Family) lead(at []expr.Any) []rule {
	edge := slices.Concat(at, []expr.Any{&expr.Lookup{SourceRegister: first, SetName: edged}})
	return []rule{
		{"to services: nobody keeps the endpoints on other nodes current", slices.Concat(edge, notFresh(), at, f.dnat(Services))},
		{"to endpoints on any node: remember this for the source", slices.Concat(edge, setLabel(edgeLabel))},
		{"to endpoints", slices.Concat(at, verdictOf(balancers))},
		{"to services", slices.Concat(at, f.dnat(Services))},
	}
}

// toChain sends packets to a port to the chain that a map of verdicts has for it.
func (f *Family) toChain(set string) []expr.Any { return slices.Concat(f.asked(), verdictOf(set)) }

// verdictOf looks the loaded key up in a map of verdicts. Without a verdict the packet goes on to the next rule.
func verdictOf(set string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: first, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set}}
}

// Chain returns a chain of the table without a hook.
func (f *Family) Chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: f.Table(), Name: name}
}

func (f *Family) nat(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Table: f.Table(), Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}
}

// destinationPort is the offset of the port in the header of TCP, UDP and SCTP.
const destinationPort = 2

// toNode matches packets to an address of the node, except link-local ones.
func (f *Family) toNode() (all []expr.Any) {
	if f.linkLocal.IsValid() {
		all = f.compare(f.destination, expr.CmpOpNeq, f.linkLocal)
	}
	return append(all,
		&expr.Fib{Register: first, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	)
}
