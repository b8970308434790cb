package nodeports

import (
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// PodSets returns the sets for the namespace of a pod.
func (f *Family) PodSets() []*nftables.Set {
	return slices.DeleteFunc(f.Sets(), func(s *nftables.Set) bool { return !slices.Contains([]string{elsewhere, endpoints, clients}, s.Name) })
}

// PodChains returns the chains for the namespace of a pod. A connection of TCP is led from its first packet on, so one that began before continues.
// The chain has the priority after the usual one: a proxy in the pod that takes its connections over comes first.
func (f *Family) PodChains() []Chain {
	to := f.toChain(elsewhere)
	all := []Chain{{
		f.nat(own, nftables.ChainHookOutput, nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest+1)),
		[]rule{
			{"to endpoints, a connection of TCP that begins", slices.Concat(isTCP(expr.CmpOpEq), firstOfTCP(), to)},
			{"to endpoints", slices.Concat(isTCP(expr.CmpOpNeq), to)},
		},
	}}
	for n := 1; n <= MaxEndpoints; n++ {
		all = append(all, f.anyOf(n))
	}
	slices.SortFunc(all, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isTCP matches packets of TCP, or of other protocols.
func isTCP(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Cmp{Op: op, Register: first, Data: []byte{unix.IPPROTO_TCP}},
	}
}

// firstOfTCP matches packets with the flag SYN and without ACK.
func firstOfTCP() []expr.Any {
	const flags, syn, ack = 13, 0x02, 0x10
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{syn}},
	}
}
