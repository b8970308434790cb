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
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The chains.
const (
	arriving  = "arriving"
	leaving   = "leaving"
	own       = "own"
	onNode    = "on-node"
	onAddress = "on-address"
	loopback  = "loopback"
)

// chain is a chain with its rules.
type chain struct {
	*nftables.Chain
	rules []rule
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
// arriving    sends packets to an external address through on-address, and those to an address of the node
//
//	through on-node. Packets of nodes that come from the pod network have been through a service there, and
//	are not led again: a service whose endpoint is a node port would lead them in a circle. To an external
//	address they are dropped: the routers outside would send them back.
//
// leaving     source NAT of packets of other nodes and of pods to an endpoint, to the edge address. The
//
//	answer of the endpoint would go to them directly otherwise. The same for packets of all clients to
//	endpoints that answer by a gateway. Packets of the node's programs get the address of the
//	node in the pod network.
//
// loopback    drops packets from the pod network with a loopback address: the link accepts them, so that
//
//	programs of the node reach host ports at a loopback address.
//
// on-address  drops packets of clients that must not reach the port. Then destination NAT of packets of
//
//	pods, to the cluster address of the service: they reach all endpoints. Others as on-node.
//
// on-node     destination NAT: to an endpoint on the node if the port is local, otherwise to the cluster
//
//	address of the service. Packets to a local port without an endpoint are dropped. Then packets to a host
//	port, to its pod, unless a program of the node listens there.
//
// own         destination NAT of packets of the node's programs, to the cluster address or the pod. Only host
//
//	ports answer at loopback addresses.
//
// The source of a packet to a cluster address is translated by the rules for all traffic of the node
// to services, so answers come back here; leaving comes after these. The source of a packet from
// outside the cluster to an endpoint stays: the answer of a pod leaves the network by the pod's node.
func (t *Table) chains() []chain {
	edge := "with the address " + t.place.Edge.String()
	again := slices.Concat(from(t.cfg.Link), source(t.place.Network))
	all := []chain{
		{
			nat(arriving, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
			[]rule{
				{fmt.Sprintf("from nodes %s in the pod network to external addresses: not again", t.place.Network), slices.Concat(again, toExternal(), dropped())},
				{fmt.Sprintf("from nodes %s in the pod network: not again", t.place.Network),
					slices.Concat(again, []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}})},
				{"to external addresses", append(toExternal(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onAddress})},
				{"to the node", append(toNode(), &expr.Verdict{Kind: expr.VerdictJump, Chain: onNode})},
			},
		},
		{
			nat(leaving, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+1)),
			append([]rule{
				{"from nodes to an endpoint " + edge, slices.Concat(by(t.cfg.Link), fromNodes(), translated(), snat(t.place.Edge))},
				{"from pods to an endpoint " + edge, slices.Concat(by(t.cfg.Link), from(t.cfg.Link), translated(), snat(t.place.Edge))},
				{"from egress links to an endpoint " + edge, slices.Concat(by(t.cfg.Link), from(t.egressLinks()), translated(), snat(t.place.Edge))},
			}, t.answersByGateways(edge)...),
		},
		{
			&nftables.Chain{Table: table(), Name: onAddress},
			append([]rule{
				{"from other sources not to restricted ports", fromOtherSources()},
				{"from pods to services", slices.Concat(from(t.cfg.Link), asked(), dnat(services))},
				{"from egress links to services", slices.Concat(from(t.egressLinks()), asked(), dnat(services))},
			}, lead(asked())...),
		},
		{
			&nftables.Chain{Table: table(), Name: onNode},
			lead(askedOfNode()),
		},
		{
			nat(own, nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
			[]rule{
				{"from other sources not to restricted ports", fromOtherSources()},
				{"to external addresses of services", slices.Concat(asked(), dnat(services))},
				{"to services", slices.Concat(notLoopback(), toNode(), askedOfNode(), dnat(services))},
			},
		},
	}
	if t.place.HostPorts {
		all = t.withHostPorts(all)
	}
	return all
}

// withHostPorts adds the rules for host ports. Those for services come before them. An external address belongs to
// its service on all ports, and only host ports of a loopback address answer there.
func (t *Table) withHostPorts(all []chain) []chain {
	back := []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}
	notExternal := rule{"not at external addresses", append(toExternal(), back...)}
	ofAddress := rule{"to host ports of the address", slices.Concat(toNode(), asked(), dnat(hosts))}
	ofNode := rule{"to host ports", slices.Concat(notLoopback(), toNode(), askedOfNode(), dnat(hosts))}
	for i := range all {
		c := &all[i]
		switch c.Name {
		case leaving:
			text := "from the node to an endpoint with the address " + t.place.Node.String()
			c.rules = append([]rule{{text, slices.Concat(by(t.cfg.Link), fromHere(), translated(), snat(t.place.Node))}}, c.rules...)
		case onNode:
			c.rules = append(c.rules, notExternal, rule{"not at loopback addresses", append(loopbackAt(ipDestination, expr.CmpOpEq), back...)},
				rule{"not if a program listens", append(listening(), back...)}, ofAddress, ofNode)
		case own:
			c.rules = append(c.rules, notExternal, ofAddress, ofNode)
		}
	}
	guard := chain{
		&nftables.Chain{Table: table(), Name: loopback, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		[]rule{
			{"from the pod network not to loopback addresses", slices.Concat(from(t.cfg.Link), loopbackAt(ipDestination, expr.CmpOpEq), dropped())},
			{"from the pod network not from loopback addresses", slices.Concat(from(t.cfg.Link), loopbackAt(ipSource, expr.CmpOpEq), dropped())},
		},
	}
	all = append(all, guard)
	slices.SortFunc(all, func(a, b chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// answersByGateways returns the rules for packets to endpoints that answer by gateways.
func (t *Table) answersByGateways(edge string) (all []rule) {
	for _, p := range t.place.ByGateways {
		all = append(all, rule{
			fmt.Sprintf("to an endpoint in %s, which answers by a gateway, %s", p, edge),
			slices.Concat(by(t.cfg.Link), destination(p), translated(), snat(t.place.Edge)),
		})
	}
	return all
}

// lead returns the rules that translate the destination of packets to a port, whose address, protocol and
// number at loads.
func lead(at []expr.Any) []rule {
	return []rule{
		{"to the endpoint on the node", slices.Concat(at, dnat(singles))},
		{"to an endpoint on the node", slices.Concat(at, randomSlot(), dnat(endpoints))},
		{"to the client's endpoint on the node", slices.Concat(at, slotOfClient(), dnat(stickies))},
		{"no endpoint on the node", slices.Concat(at, []expr.Any{&expr.Lookup{SourceRegister: first, SetName: locals}}, dropped())},
		{"to services", slices.Concat(at, dnat(services))},
	}
}

func nat(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Table: table(), Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}
}

// hasRules reports whether the table has exactly the sets, chains and rules of the package.
func (t *Table) hasRules(c *nftables.Conn) (bool, error) {
	are, err := c.GetSets(table())
	if err != nil {
		return false, fmt.Errorf("list nftables sets: %w", err)
	}
	name := func(s *nftables.Set) string { return s.Name + " " + s.KeyType.Name + " " + s.DataType.Name }
	if !slices.Equal(sorted(are, name), sorted(sets(), name)) {
		return false, nil
	}
	have, err := c.ListChainsOfTableFamily(table().Family)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != TableName })
	slices.SortFunc(have, func(a, b *nftables.Chain) int { return strings.Compare(a.Name, b.Name) })
	if !slices.EqualFunc(have, t.chains(), sameChain) {
		return false, nil
	}
	for _, chain := range t.chains() {
		rules, err := c.GetRules(table(), chain.Chain)
		if err != nil {
			return false, fmt.Errorf("list nftables rules: %w", err)
		}
		if !slices.EqualFunc(rules, chain.rules, sameRule) {
			return false, nil
		}
	}
	return true, nil
}

func sorted[T any](all []T, text func(T) string) []string {
	var texts []string
	for _, one := range all {
		texts = append(texts, text(one))
	}
	slices.Sort(texts)
	return texts
}

func sameRule(is *nftables.Rule, want rule) bool {
	text, _ := userdata.GetString(is.UserData, userdata.TypeComment)
	return text == want.text
}

func sameChain(is *nftables.Chain, want chain) bool {
	if is.Name != want.Name || is.Type != want.Type || (is.Hooknum == nil) != (want.Hooknum == nil) {
		return false
	}
	return want.Hooknum == nil || *is.Hooknum == *want.Hooknum && is.Priority != nil && *is.Priority == *want.Priority
}

// The registers of 4 bytes that hold a key, and then the value that belongs to it. first has the
// number of a register of 16 bytes, which begins with the same 4 bytes.
const (
	first  = unix.NFT_REG_1
	second = unix.NFT_REG32_01
	third  = unix.NFT_REG32_02
	fourth = unix.NFT_REG32_03
	other  = unix.NFT_REG32_07
)

// Offsets in headers.
const (
	ipSource, ipDestination = 12, 16
	destinationPort         = 2 // of TCP, UDP and SCTP
)

// toNode matches packets to an address of the node.
func toNode() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: first, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// from matches packets that came in by a link, and by matches packets that leave by it. A name that ends in * means
// every link whose name begins so.
func from(link string) []expr.Any { return byName(expr.MetaKeyIIFNAME, link) }
func by(link string) []expr.Any   { return byName(expr.MetaKeyOIFNAME, link) }

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
func (t *Table) egressLinks() string { return cmp.Or(t.cfg.EgressLinks, t.cfg.Link) }

// fromNodes matches packets whose source is the address of a node.
func fromNodes() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4},
		&expr.Lookup{SourceRegister: first, SetName: nodesSet},
	}
}

// fromHere matches packets whose source is an address of the node.
func fromHere() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: first, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// source matches packets from a range of addresses, and destination packets to one.
func source(network netip.Prefix) []expr.Any      { return inNetwork(ipSource, network) }
func destination(network netip.Prefix) []expr.Any { return inNetwork(ipDestination, network) }

func inNetwork(offset uint32, network netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: net.CIDRMask(network.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: network.Masked().Addr().AsSlice()},
	}
}

// snat translates the source to an address.
func snat(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: first},
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

// notLoopback matches packets whose destination is not a loopback address.
func notLoopback() []expr.Any { return loopbackAt(ipDestination, expr.CmpOpNeq) }

// loopbackAt compares the address at an offset with the loopback addresses.
func loopbackAt(offset uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		&expr.Cmp{Op: op, Register: first, Data: []byte{127}},
	}
}

// listening matches packets for which the node has a socket of TCP or UDP.
func listening() []expr.Any {
	return []expr.Any{
		&expr.Socket{Key: expr.SocketKeyWildcard, Register: first},
		&expr.Cmp{Op: expr.CmpOpLte, Register: first, Data: []byte{1}},
	}
}

// toExternal matches packets to an external address of a service.
func toExternal() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4},
		&expr.Lookup{SourceRegister: first, SetName: externals},
	}
}

// fromOtherSources drops packets to a restricted port from clients that must not reach it.
func fromOtherSources() []expr.Any {
	return slices.Concat(asked(), []expr.Any{
		&expr.Lookup{SourceRegister: first, SetName: restricted},
		&expr.Payload{DestRegister: fourth, Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4},
		&expr.Lookup{SourceRegister: first, SetName: sources, Invert: true},
	}, dropped())
}

// dropped counts packets and drops them.
func dropped() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// asked loads the destination address, the protocol and the destination port of a packet.
func asked() []expr.Any {
	return append([]expr.Any{&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4}}, port()...)
}

// askedOfNode loads the same of a packet to the node, with everyAddress.
func askedOfNode() []expr.Any {
	return append([]expr.Any{&expr.Immediate{Register: first, Data: everyAddress.AsSlice()}}, port()...)
}

func port() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: second},
		&expr.Payload{DestRegister: third, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
	}
}

// randomSlot loads a random slot.
func randomSlot() []expr.Any {
	return []expr.Any{&expr.Numgen{Register: fourth, Modulus: Slots, Type: unix.NFT_NG_RANDOM}}
}

// slotOfClient loads the slot of the source address. The seed is fixed, so that a client keeps its
// slot when the rules are created again.
func slotOfClient() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: other, Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4},
		&expr.Hash{SourceRegister: other, DestRegister: fourth, Length: 4, Modulus: Slots, Seed: 1, Type: expr.HashTypeJenkins},
	}
}

// dnat translates the destination to the value that a map has for the loaded key. Without a value the
// packet goes on to the next rule.
func dnat(set string) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: first, RegProtoMin: second},
	}
}

// generation returns the generation of nftables in a network namespace, which increases by one with
// each transaction.
func generation(ns netns.NsHandle) (uint32, error) {
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("open nftables: %w", err)
	}
	defer socket.Close()
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	for _, m := range messages {
		attributes, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("read the generation of nftables: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binaryutil.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("read the generation of nftables: the kernel did not answer")
}
