package nodeports

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// egressLinks returns the name of the egress links. Without any it is that of the link to the pod network: the kernel has an
// empty name for packets of its own.
func (n Node) egressLinks() string { return cmp.Or(n.EgressLinks, n.Link) }

// fromNodes matches packets whose source is the address of a node.
func (f *Family) fromNodes() []expr.Any {
	return append(f.load(f.source, first), &expr.Lookup{SourceRegister: first, SetName: Nodes})
}

// load loads the address at an offset of the header into a register.
func (f *Family) load(offset, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}}
}

// sourceIn matches packets from a range of addresses, and destinationIn packets to one.
func (f *Family) sourceIn(network netip.Prefix) []expr.Any {
	return f.compare(f.source, expr.CmpOpEq, network)
}

func (f *Family) destinationIn(network netip.Prefix) []expr.Any {
	return f.compare(f.destination, expr.CmpOpEq, network)
}

// compare compares the network of the address at an offset.
func (f *Family) compare(offset uint32, op expr.CmpOp, network netip.Prefix) []expr.Any {
	size := int(f.size)
	return append(f.load(offset, first),
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: f.size, Mask: net.CIDRMask(network.Bits(), 8*size), Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: first, Data: network.Masked().Addr().AsSlice()},
	)
}

// snat translates the source to an address.
func (f *Family) snat(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: f.translate, RegAddrMin: first},
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
func (f *Family) notLoopback() []expr.Any { return f.compare(f.destination, expr.CmpOpNeq, f.loopback) }

// listening matches packets for which the node has a socket of TCP or UDP.
func listening() []expr.Any {
	return []expr.Any{
		&expr.Socket{Key: expr.SocketKeyWildcard, Register: first},
		&expr.Cmp{Op: expr.CmpOpLte, Register: first, Data: []byte{1}},
	}
}

// toExternal matches packets to an external address of a service.
func (f *Family) toExternal() []expr.Any {
	return append(f.load(f.destination, first), &expr.Lookup{SourceRegister: first, SetName: Externals})
}

// fromOtherSources drops packets to a restricted port from clients that must not reach it.
func (f *Family) fromOtherSources() []expr.Any {
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
func (f *Family) asked() []expr.Any { return append(f.load(f.destination, first), f.port()...) }

// askedOfNode loads the key of the port at every address of the node.
func (f *Family) askedOfNode() []expr.Any { return append(f.everyAddress(), f.port()...) }

func (f *Family) everyAddress() []expr.Any {
	return []expr.Any{&expr.Immediate{Register: first, Data: f.Every.AsSlice()}}
}

func (f *Family) port() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.behind(0)},
		&expr.Payload{DestRegister: f.behind(1), Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
	}
}

// isFresh matches while the endpoints on other nodes are known to be current, and notFresh while they are not.
func isFresh() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Lookup{SourceRegister: first, SetName: fresh}}
}

func notFresh() []expr.Any {
	match := isFresh()
	match[1].(*expr.Lookup).Invert = true
	return match
}

// edgeLabel is the bit of conntrack labels that marks a connection whose endpoint sees the edge address, and hostLabel that
// of a connection of the node's programs to a host port. The address that a client asked would say the same, but the nft
// command cannot list a rule that looks it up.
var (
	edgeLabel = append(make([]byte, 15), 0x80)
	hostLabel = append(make([]byte, 15), 0x40)
)

// setLabel sets a bit of a connection, and hasLabel matches connections that have it.
func setLabel(bit []byte) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: bit},
		&expr.Ct{Key: expr.CtKeyLABELS, Register: first, SourceRegister: true},
	}
}

func hasLabel(bit []byte) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyLABELS, Register: first},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 16, Mask: bit, Xor: make([]byte, 16)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: bit},
	}
}

// dnat translates the destination to the value that a map has for the loaded key. Without a value the
// packet goes on to the next rule.
func (f *Family) dnat(set string) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.translate, RegAddrMin: first, RegProtoMin: f.behind(0)},
	}
}
