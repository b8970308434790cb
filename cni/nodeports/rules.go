package nodeports

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
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

	noEndpoint = "no-endpoint"

	refusing      = "refusing"
	refusedHere   = "refused-here"
	refusedBeyond = "refused-beyond"
)

// chain is a chain with its rules.
type chain struct {
	*nftables.Chain
	rules []rule
}

// texts returns the texts of the rules.
func (c chain) texts() (all []string) {
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

// chains returns the chains of the table, sorted by name:
//
// any-of-n, client-of-n  destination NAT to one of n endpoints: a random one, or always the same one of a client.
//
// arriving    sends packets to an external address through on-address, and those to an address of the node
//
//	through on-node. Packets of nodes that come from the pod network have been through a service there, and
//	are not led again: a service whose endpoint is a node port would lead them in a circle. To an external
//	address they are dropped: the routers outside would send them back.
//
// leaving     source NAT of packets of other nodes and of pods to an endpoint, to the edge address. The
//
//	answer of the endpoint would go to them directly otherwise. The same for packets of all clients to
//	endpoints that answer by a gateway, and to endpoints of ports that lead to all nodes. Packets of the node's
//	programs to host ports get the address of the node in the pod network.
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
// own         destination NAT of packets of the node's programs, to the cluster address or the pod. Only host
//
//	ports answer at loopback addresses.
//
// The source of a packet to a cluster address is translated by the rules for all traffic of the node
// to services, so answers come back here; leaving comes after these. The source of a packet from
// outside the cluster to an endpoint on this node alone stays: the answer of a pod leaves the network by the pod's
// node.
func (t *table) chains() []chain {
	all := t.ownChains()
	if t.family.has(gatewayLinks.Addr()) {
		all[0].rules = slices.Insert(all[0].rules, 0, t.notFromGateways()...)
	}
	return all
}

// gatewayLinks has the addresses of gateways of OVN that are clients of services.
var gatewayLinks = netip.MustParsePrefix("169.254.192.0/18")

// notFromGateways returns the rules for packets that a gateway has led to the node: they are not led again, because a
// service whose endpoint is a node port would lead them in a circle.
func (t *table) notFromGateways() []rule {
	from := slices.Concat(from(t.cfg.Link), t.family.sourceIn(gatewayLinks))
	return []rule{
		{fmt.Sprintf("from gateways %s to external addresses: not again", gatewayLinks), slices.Concat(from, t.family.toExternal(), dropped())},
		{fmt.Sprintf("from gateways %s: not again", gatewayLinks), slices.Concat(from, returned())},
	}
}

// ownChains returns the chains without the rules for packets from gateways. The first one is for packets that arrive.
func (t *table) ownChains() []chain {
	f := t.family
	again := slices.Concat(from(t.cfg.Link), f.sourceIn(t.at.Network))
	all := []chain{
		{
			f.nat(arriving, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
			[]rule{
				{fmt.Sprintf("from nodes %s in the pod network to external addresses: not again", t.at.Network), slices.Concat(again, f.toExternal(), dropped())},
				{fmt.Sprintf("from nodes %s in the pod network: not again", t.at.Network), slices.Concat(again, returned())},
				{"to external addresses", append(f.toExternal(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onAddress})},
				{"to the node", append(f.toNode(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onNode})},
			},
		},
		{f.nat(leaving, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+1)), t.leavingRules()},
		{
			f.chain(onAddress),
			append([]rule{
				{"from other sources not to restricted ports", f.fromOtherSources()},
				{"from pods to services", slices.Concat(from(t.cfg.Link), f.asked(), f.dnat(services))},
				{"from egress links to services", slices.Concat(from(t.egressLinks()), f.asked(), f.dnat(services))},
			}, f.lead(f.asked())...),
		},
		{f.chain(onNode), f.lead(f.askedOfNode())},
		{
			f.nat(own, nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
			[]rule{
				{"from other sources not to restricted ports", f.fromOtherSources()},
				{"to external addresses of services", slices.Concat(f.asked(), f.dnat(services))},
				{"to services", slices.Concat(f.notLoopback(), f.toNode(), f.askedOfNode(), f.dnat(services))},
			},
		},
	}
	all = append(all, f.refusing()...)
	if t.balances {
		all = t.balanceAll(all)
	}
	if t.hostPorts {
		all = t.withHostPorts(all)
	}
	all = append(all, f.balancing()...)
	slices.SortFunc(all, func(a, b chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// balanceAll changes the rules for a pod network that does not balance: no client is led to a cluster address. The
// endpoints on other nodes count even if nobody keeps them current, as with kube-proxy.
func (t *table) balanceAll(all []chain) []chain {
	f := t.family
	restricted := rule{"from other sources not to restricted ports", f.fromOtherSources()}
	toOwn := slices.Concat(f.notLoopback(), f.toNode(), []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: ownOnNode}})
	for i := range all {
		c := &all[i]
		switch c.Name {
		case onAddress:
			c.rules = append([]rule{restricted}, f.leadAlways(f.asked())...)
		case onNode:
			c.rules = f.leadAlways(f.askedOfNode())
		case own:
			c.rules = slices.Concat([]rule{restricted}, f.leadAlways(f.asked()), []rule{{"to the node", toOwn}})
		}
	}
	return append(all, chain{f.chain(ownOnNode), f.leadAlways(f.askedOfNode())})
}

// leadAlways returns the rules of lead that do not depend on whether the endpoints are current.
func (f *family) leadAlways(at []expr.Any) []rule { return f.lead(at)[1:] }

// leavingRules returns the rules for the source of packets to endpoints.
func (t *table) leavingRules() (all []rule) {
	f, edge := t.family, "with the address "+t.at.Edge.String()
	snat := slices.Concat(translated(), f.snat(t.at.Edge))
	if t.balances || t.hostPorts {
		all = append(all, t.fromNode())
	}
	if t.balances {
		all = append(all, t.fromNodeOutside())
	}
	all = append(all, []rule{
		{"from nodes to an endpoint " + edge, slices.Concat(by(t.cfg.Link), f.fromNodes(), snat)},
		{"from pods to an endpoint " + edge, slices.Concat(by(t.cfg.Link), from(t.cfg.Link), snat)},
		{"from egress links to an endpoint " + edge, slices.Concat(by(t.cfg.Link), from(t.egressLinks()), snat)},
	}...)
	for _, p := range t.at.ByGateways {
		all = append(all, rule{
			fmt.Sprintf("to an endpoint in %s, which answers by a gateway, %s", p, edge), slices.Concat(by(t.cfg.Link), f.destinationIn(p), snat),
		})
	}
	return append(all, rule{"from clients to an endpoint on any node " + edge, slices.Concat(by(t.cfg.Link), edgedConnection(), snat)})
}

// fromNode returns the rule for the source of packets of the node's programs to endpoints.
func (t *table) fromNode() rule {
	text := "from the node to an endpoint with the address " + t.at.Node.String()
	return rule{text, slices.Concat(by(t.cfg.Link), fromHere(), translated(), t.family.snat(t.at.Node))}
}

// fromNodeOutside returns the rule for the source of packets of the node's programs to endpoints that are neither in the pod
// network nor on the node. The kernel has chosen the source by the route to the cluster address.
func (t *table) fromNodeOutside() rule {
	elsewhere := slices.Concat(byOther(t.cfg.Link), byOther("lo"))
	return rule{
		"from the node to an endpoint elsewhere with the address of the link",
		slices.Concat(elsewhere, fromHere(), translated(), []expr.Any{&expr.Masq{}}),
	}
}

// balancing returns the chains that choose an endpoint. A chain serves ports of the node and of external addresses, and a rule
// must load the whole key itself. The key of a port at every address of the node is found second: a port of the
// destination address has its own slots, or none.
func (f *family) balancing() []chain {
	all := []chain{{f.chain(noEndpoint), []rule{{"no endpoint on the node", dropped()}}}}
	for n := uint32(1); n <= MaxEndpoints; n++ {
		for _, sticky := range []bool{false, true} {
			slot := f.randomSlot(n)
			if sticky {
				slot = f.slotOfClient(n)
			}
			all = append(all, chain{f.chain(chainOf(int(n), sticky)), []rule{
				{"of an external address", slices.Concat(f.asked(), slot, f.dnat(endpoints))},
				{"of the node", slices.Concat(f.askedOfNode(), slot, f.dnat(endpoints))},
			}})
		}
	}
	return all
}

// refusing returns the chains for ports that refuse clients.
func (f *family) refusing() []chain {
	refuse := func(text string, at []expr.Any) []rule {
		tcp := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{unix.IPPROTO_TCP}}}
		is := slices.Concat(begins(), at, []expr.Any{&expr.Lookup{SourceRegister: first, SetName: refused}})
		return []rule{
			{text + " by TCP", slices.Concat(tcp, is, []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})},
			{text, slices.Concat(is, []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.portUnreachable}})},
		}
	}
	filter := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return &nftables.Chain{Table: f.nftable(), Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter}
	}
	return []chain{
		{f.chain(refusing), []rule{{"clients are refused", returned()}}},
		{filter(refusedBeyond, nftables.ChainHookForward), refuse("to an external address", f.asked())},
		{filter(refusedHere, nftables.ChainHookInput), slices.Concat(
			refuse("to the node", slices.Concat(f.notLoopback(), f.askedOfNode())), refuse("to an external address", f.asked()),
		)},
	}
}

// withHostPorts adds the rules for host ports. Those for services come before them. An external address belongs to
// its service on all ports, and only host ports of a loopback address answer there.
func (t *table) withHostPorts(all []chain) []chain {
	f := t.family
	notExternal := rule{"not at external addresses", append(f.toExternal(), returned()...)}
	ofAddress := rule{"to host ports of the address", slices.Concat(f.toNode(), f.asked(), f.dnat(hosts))}
	ofNode := rule{"to host ports", slices.Concat(f.notLoopback(), f.toNode(), f.askedOfNode(), f.dnat(hosts))}
	for i := range all {
		c := &all[i]
		switch c.Name {
		case onNode:
			c.rules = append(c.rules, notExternal, rule{"not at loopback addresses", append(f.compare(f.destination, expr.CmpOpEq, f.loopback), returned()...)},
				rule{"not if a program listens", append(listening(), returned()...)}, ofAddress, ofNode)
		case own:
			c.rules = append(c.rules, notExternal, ofAddress, ofNode)
		}
	}
	return append(all, chain{
		&nftables.Chain{Table: f.nftable(), Name: loopback, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		[]rule{
			{"from the pod network not to loopback addresses", slices.Concat(from(t.cfg.Link), f.compare(f.destination, expr.CmpOpEq, f.loopback), dropped())},
			{"from the pod network not from loopback addresses", slices.Concat(from(t.cfg.Link), f.compare(f.source, expr.CmpOpEq, f.loopback), dropped())},
		},
	})
}

// lead returns the rules that translate the destination of packets to a port, whose key at loads.
func (f *family) lead(at []expr.Any) []rule {
	edge := slices.Concat(at, []expr.Any{&expr.Lookup{SourceRegister: first, SetName: edged}})
	return []rule{
		{"to services: nobody keeps the endpoints on other nodes current", slices.Concat(edge, notFresh(), at, f.dnat(services))},
		{"to endpoints on any node: remember this for the source", slices.Concat(edge, edgeConnection())},
		{"to endpoints", slices.Concat(at, []expr.Any{
			&expr.Lookup{SourceRegister: first, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: balancers},
		})},
		{"to services", slices.Concat(at, f.dnat(services))},
	}
}

func (f *family) chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: f.nftable(), Name: name}
}

func (f *family) nat(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Table: f.nftable(), Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}
}

// destinationPort is the offset of the port in the header of TCP, UDP and SCTP.
const destinationPort = 2

// toNode matches packets to an address of the node, except link-local ones.
func (f *family) toNode() (all []expr.Any) {
	if f.linkLocal.IsValid() {
		all = f.compare(f.destination, expr.CmpOpNeq, f.linkLocal)
	}
	return append(all,
		&expr.Fib{Register: first, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	)
}

// from matches packets that came in by a link, and by matches packets that leave by it. A name that ends in * means
// every link whose name begins so.
func from(link string) []expr.Any { return byName(expr.MetaKeyIIFNAME, link) }
func by(link string) []expr.Any   { return byName(expr.MetaKeyOIFNAME, link) }

// byOther matches packets that do not leave by a link.
func byOther(link string) []expr.Any {
	match := by(link)
	match[1].(*expr.Cmp).Op = expr.CmpOpNeq
	return match
}

func byName(key expr.MetaKey, link string) []expr.Any {
	begin, all := strings.CutSuffix(link, "*")
	name := []byte(begin)
	if !all {
		name = append(name, make([]byte, unix.IFNAMSIZ-len(name))...)
	}
	return []expr.Any{
		&expr.Meta{Key: key, Register: first},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: name},
	}
}

// egressLinks returns the name of the egress links. Without any it is that of the link to the pod network: the kernel has an
// empty name for packets of its own.
func (t *table) egressLinks() string { return cmp.Or(t.cfg.EgressLinks, t.cfg.Link) }

// fromNodes matches packets whose source is the address of a node.
func (f *family) fromNodes() []expr.Any {
	return append(f.load(f.source, first), &expr.Lookup{SourceRegister: first, SetName: nodesSet})
}

// load loads the address at an offset of the header into a register.
func (f *family) load(offset, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}}
}

// fromHere matches packets whose source is an address of the node.
func fromHere() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: first, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// sourceIn matches packets from a range of addresses, and destinationIn packets to one.
func (f *family) sourceIn(network netip.Prefix) []expr.Any {
	return f.compare(f.source, expr.CmpOpEq, network)
}

func (f *family) destinationIn(network netip.Prefix) []expr.Any {
	return f.compare(f.destination, expr.CmpOpEq, network)
}

// compare compares the network of the address at an offset.
func (f *family) compare(offset uint32, op expr.CmpOp, network netip.Prefix) []expr.Any {
	size := int(f.size)
	return append(f.load(offset, first),
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: f.size, Mask: net.CIDRMask(network.Bits(), 8*size), Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: first, Data: network.Masked().Addr().AsSlice()},
	)
}

// snat translates the source to an address.
func (f *family) snat(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: f.translate, RegAddrMin: first},
	}
}

// translated matches packets of connections whose destination is translated.
func translated() []expr.Any {
	const bit = 1 << 5 // IPS_DST_NAT
	status := binaryutil.NativeEndian.PutUint32
	return []expr.Any{
		&expr.Ct{Register: first, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: status(bit), Xor: status(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: status(0)},
	}
}

// begins matches the first packets of connections.
func begins() []expr.Any {
	bit := binaryutil.NativeEndian.PutUint32
	return []expr.Any{
		&expr.Ct{Register: first, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: bit(expr.CtStateBitNEW), Xor: bit(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: bit(0)},
	}
}

// notLoopback matches packets whose destination is not a loopback address.
func (f *family) notLoopback() []expr.Any { return f.compare(f.destination, expr.CmpOpNeq, f.loopback) }

// listening matches packets for which the node has a socket of TCP or UDP.
func listening() []expr.Any {
	return []expr.Any{
		&expr.Socket{Key: expr.SocketKeyWildcard, Register: first},
		&expr.Cmp{Op: expr.CmpOpLte, Register: first, Data: []byte{1}},
	}
}

// toExternal matches packets to an external address of a service.
func (f *family) toExternal() []expr.Any {
	return append(f.load(f.destination, first), &expr.Lookup{SourceRegister: first, SetName: externals})
}

// fromOtherSources drops packets to a restricted port from clients that must not reach it.
func (f *family) fromOtherSources() []expr.Any {
	return slices.Concat(
		f.asked(), []expr.Any{&expr.Lookup{SourceRegister: first, SetName: restricted}},
		f.load(f.source, f.behind(2)), []expr.Any{&expr.Lookup{SourceRegister: first, SetName: sources, Invert: true}}, dropped(),
	)
}

// dropped counts packets and drops them, and returned counts them and ends the chain.
func dropped() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

func returned() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}
}

// asked loads the key of the port that a packet is for at its destination address.
func (f *family) asked() []expr.Any { return append(f.load(f.destination, first), f.port()...) }

// askedOfNode loads the key of the port at every address of the node.
func (f *family) askedOfNode() []expr.Any { return append(f.everyAddress(), f.port()...) }

func (f *family) everyAddress() []expr.Any {
	return []expr.Any{&expr.Immediate{Register: first, Data: f.every.AsSlice()}}
}

func (f *family) port() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.behind(0)},
		&expr.Payload{DestRegister: f.behind(1), Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
	}
}

// notFresh matches while the endpoints on other nodes are not known to be current.
func notFresh() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Lookup{SourceRegister: first, SetName: fresh, Invert: true}}
}

// edgeLabel is the bit of conntrack labels that marks a connection whose endpoint sees the edge address. The address
// that a client asked would say the same, but the nft command cannot list a rule that looks it up.
var edgeLabel = append(make([]byte, 15), 0x80)

// edgeConnection sets the bit of a connection, and edgedConnection matches connections that have it.
func edgeConnection() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: edgeLabel},
		&expr.Ct{Key: expr.CtKeyLABELS, Register: first, SourceRegister: true},
	}
}

func edgedConnection() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyLABELS, Register: first},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 16, Mask: edgeLabel, Xor: make([]byte, 16)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: edgeLabel},
	}
}

// randomSlot loads one of n slots behind the key of a port.
func (f *family) randomSlot(n uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: f.behind(2), Modulus: n, Type: unix.NFT_NG_RANDOM}}
}

// slotOfClient loads the slot of the source address. The seed is fixed, so that a client has the same slot at all
// nodes, and when the rules are created again.
func (f *family) slotOfClient(n uint32) []expr.Any {
	return append(f.load(f.source, other),
		&expr.Hash{SourceRegister: other, DestRegister: f.behind(2), Length: f.size, Modulus: n, Seed: 1, Type: expr.HashTypeJenkins},
	)
}

// dnat translates the destination to the value that a map has for the loaded key. Without a value the
// packet goes on to the next rule.
func (f *family) dnat(set string) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.translate, RegAddrMin: first, RegProtoMin: f.behind(0)},
	}
}
