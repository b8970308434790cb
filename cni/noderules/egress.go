package noderules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/matches"
	"github.com/coe-bridge/coe-bridge/cni/policyroute"
)

// egressMark is the bit of the mark of packets that the rules of egress addresses have seen.
const egressMark = 1 << 24

// fencePriority is the priority of the routing rules of PutFences.
const fencePriority = 206

const (
	// staleFor is how long a connection is in the set egress-stale after its last packet, and maxStale how many are there.
	staleFor = time.Minute
	maxStale = 4096
)

// egressChains returns the chains of egress addresses, which are there while the node has some.
func (w Wanted) egressChains() []*nftables.Chain {
	if len(w.Egress) == 0 {
		return nil
	}
	at := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Table: table4(), Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: priority}
	}
	return []*nftables.Chain{
		at(egressIn, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle),
		at(egressMarks, nftables.ChainHookPrerouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest+10)), // the last before routing
		at(egressOnly, nftables.ChainHookPostrouting, nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+2)),
		at(egressOwn, nftables.ChainHookOutput, nftables.ChainPriorityMangle),
	}
}

// egressSets returns the sets of egress addresses.
func (w Wanted) egressSets() []*nftables.Set {
	if len(w.Egress) == 0 {
		return nil
	}
	connection := nftables.MustConcatSetType(
		nftables.TypeIPAddr, nftables.TypeInetService, nftables.TypeIPAddr, nftables.TypeInetService, nftables.TypeInetProto)
	return []*nftables.Set{{
		ID:    1, // the library would count in a variable that goroutines share
		Table: table4(), Name: egressStale, KeyType: connection, Concatenation: true, Dynamic: true, HasTimeout: true, Timeout: staleFor, Size: maxStale,
	}}
}

// egressRules returns the rules for the links of egress addresses:
//
// egress-in     drops packets to the egress address that answer no pod. So the node does not answer there, leads nobody to
//
//	node ports, and resets no connection of a pod that another node began to translate.
//
// egress-marks  marks packets that came in by the links. The kernel drops those without the mark (see PutFences), so nothing
//
//	leaves after another program has removed the table.
//
// egress-only   drops packets that leave without the address after all: packets that the kernel does not track, and packets of
//
//	connections that began with another source. The set egress-stale has such connections.
//
// egress-own    drops packets of the node's programs to the egress address.
//
// way-out       source NAT to the egress address.
//
// no-return     rejects packets that are routed back to the pod network, except by a node port.
func (w Wanted) egressRules() (all []rule) {
	if len(w.Egress) == 0 {
		return nil
	}
	links := EgressPrefix + "*"
	all = append(all, rule{table4(), egressMarks, fmt.Sprintf("from %s with the mark %#x", links, egressMark), slices.Concat(matches.InBy(links), marked())})
	for _, e := range w.Egress {
		all = append(all, rule{
			table4(), wayOut, fmt.Sprintf("from %s through other links than %s with source %s", e.Link, Link, e.Address),
			slices.Concat(matches.InBy(e.Link), matches.NotOutBy(Link), snat(e.Address)),
		}, rule{
			table4(), egressOnly, fmt.Sprintf("from %s with source %s", e.Link, e.Address),
			slices.Concat(matches.InBy(e.Link), source(single(e.Address)), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}),
		})
		if e.Owner {
			answers := slices.Concat(destination(single(e.Address)), notAnswer(), dropped())
			all = append(all, rule{table4(), egressIn, fmt.Sprintf("to %s only answers", e.Address), answers}, rule{table4(), egressOwn, fmt.Sprintf("not to %s", e.Address), answers})
		}
	}
	out := slices.Concat(matches.InBy(links), matches.NotOutBy(Link))
	all = append(all,
		rule{table4(), egressOnly, fmt.Sprintf("from %s with another source by TCP: noted", links), slices.Concat(out, noted(unix.IPPROTO_TCP))},
		rule{table4(), egressOnly, fmt.Sprintf("from %s with another source by UDP: noted", links), slices.Concat(out, noted(unix.IPPROTO_UDP))},
		rule{table4(), egressOnly, fmt.Sprintf("from %s through other links than %s not with another source", links, Link), slices.Concat(out, dropped())},
		rule{
			table4(), noReturn, fmt.Sprintf("from %s not back to %s, except by a node port", links, Link),
			slices.Concat(matches.InBy(links), matches.OutBy(Link), matches.NotTranslated(), reject(table4())),
		})
	return append(all, databaseRules(links, w.Databases, databasesHere, databasesThere)...)
}

// marked sets egressMark.
func marked() []expr.Any {
	number := binaryutil.NativeEndian.PutUint32
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: number(^uint32(egressMark)), Xor: number(egressMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true},
	}
}

// noted adds the connection of a packet that the kernel tracks to the set egress-stale.
func noted(protocol byte) []expr.Any {
	untracked := binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID | expr.CtStateBitUNTRACKED)
	all := []expr.Any{
		&expr.Ct{Register: register, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: untracked, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{protocol}},
	}
	for i, field := range []expr.Payload{
		{Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4}, {Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		{Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4}, {Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	} {
		field.DestRegister = unix.NFT_REG32_00 + uint32(i)
		all = append(all, &field)
	}
	return append(all, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG32_04},
		&expr.Dynset{SrcRegKey: unix.NFT_REG32_00, SetName: egressStale, Operation: unix.NFT_DYNSET_OP_UPDATE})
}

// staleConnection returns the connection in an element of the set egress-stale: each of its five parts has four bytes.
func staleConnection(e nftables.SetElement) (c conntrack.Leaving, ok bool) {
	if len(e.Key) != 5*4 {
		return c, false
	}
	at := func(part int) netip.AddrPort {
		k := e.Key[part*4:]
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(k[:4])), binary.BigEndian.Uint16(k[4:6]))
	}
	return conntrack.Leaving{Protocol: e.Key[4*4], Ends: conntrack.Ends{From: at(0), To: at(2)}}, true
}

// notAnswer matches packets that belong to no connection.
func notAnswer() []expr.Any {
	known := binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Ct{Register: register, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: known, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: make([]byte, 4)},
	}
}

// PutFences makes the kernel drop packets that came in by the links of egress addresses without egressMark, by routing rules:
// programs that remove all nftables rules leave these in place. It removes the routing rules of other links.
func (w Wanted) PutFences(ns netns.NsHandle) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		all, err := links.Dump(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_V4) })
		if errors.Is(err, unix.EOPNOTSUPP) && len(w.Egress) == 0 {
			return nil // the kernel has no routing rules
		}
		if err != nil {
			return fmt.Errorf("list routing rules: %w", err)
		}
		missing := map[string]bool{}
		for _, e := range w.Egress {
			missing[e.Link] = true
		}
		for _, is := range all {
			if isFence(&is) && missing[is.IifName] {
				delete(missing, is.IifName)
				continue
			}
			if is.Protocol != links.Protocol || is.Priority == policyroute.Priority {
				continue
			}
			changed = true
			if failed := h.RuleDel(&is); failed != nil && !errors.Is(failed, unix.ENOENT) {
				err = errors.Join(err, fmt.Errorf("remove the routing rule of link %s: %w", is.IifName, failed))
			}
		}
		for link := range missing {
			changed = true
			if failed := h.RuleAdd(fence(link)); failed != nil && !errors.Is(failed, unix.EEXIST) {
				err = errors.Join(err, fmt.Errorf("add the routing rule of link %s: %w", link, failed))
			}
		}
		return err
	})
	return changed, err
}

// isFence reports whether a routing rule is one of fence.
func isFence(r *netlink.Rule) bool {
	return r.Protocol == links.Protocol && r.Priority == fencePriority && r.Mark == 0 && r.Mask != nil && *r.Mask == egressMark
}

// fence returns the routing rule that drops packets from a link without egressMark.
func fence(link string) *netlink.Rule {
	r, mask := netlink.NewRule(), uint32(egressMark)
	r.Family, r.Priority, r.Protocol, r.Type = netlink.FAMILY_V4, fencePriority, links.Protocol, unix.RTN_BLACKHOLE
	r.IifName, r.Mask = link, &mask
	return r
}

// ForgetStale deletes the connections that began with another source than the egress address and go on. Their next packets
// begin them again, with the egress address: a flow of UDP continues, and one of TCP is reset by its other end. It reports
// whether there were some.
func (w Wanted) ForgetStale(ns netns.NsHandle) (some bool, err error) {
	for _, set := range w.egressSets() {
		c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
		if err != nil {
			return some, fmt.Errorf("open nftables: %w", err)
		}
		list, err := c.GetSetElements(set)
		if err != nil {
			return some, fmt.Errorf("list nftables set %s: %w", set.Name, err)
		}
		stale := map[conntrack.Leaving]bool{}
		for _, e := range list {
			if connection, ok := staleConnection(e); ok {
				stale[connection] = true
			}
		}
		if len(stale) == 0 {
			continue
		}
		some = true
		if err := conntrack.DeleteLeaving(ns, stale); err != nil {
			return some, err
		}
		c.FlushSet(set)
		if err := c.Flush(); err != nil {
			return some, fmt.Errorf("empty nftables set %s: %w", set.Name, err)
		}
	}
	return some, nil
}
