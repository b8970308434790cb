package node

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/policyroute"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// egressWay is an egress address that packets get which come in by a link. Only pods that are selected send there, so
// the node need not know them, and nothing else may happen to their packets.
type egressWay struct {
	link    string
	port    string // the switch's end
	address netip.Addr
	owner   bool // a NIC of the node has the address
}

// egressMark is the bit of the mark of packets that the rules of egress addresses have seen.
const egressMark = 1 << 24

// fencePriority is the priority of the routing rules of putFences.
const fencePriority = 206

const (
	// staleFor is how long a connection is in the set egress-stale after its last packet, and maxStale how many are there.
	// Every forgetEvery they are forgotten.
	staleFor    = time.Minute
	maxStale    = 4096
	forgetEvery = 10 * time.Second
)

// addEgress adds a pair of links for each port of the node in egress addresses.
func (w *wanted) addEgress(part *uplink.Egress) error {
	for _, a := range part.Addresses {
		mac, err := net.ParseMAC(a.MAC)
		if err != nil || !a.NextHop.Is4() || !a.Egress.Is4() {
			return fmt.Errorf("egress-changed from the bridge: port %q has an invalid address", a.Name)
		}
		suffix := fmt.Sprintf("%d-%d", a.Number, a.NextHop.As4()[3]&7)
		p := pair{link: egressLink + suffix, port: egressPort + suffix, iface: a.Name, addresses: []netip.Addr{a.NextHop}, mac: mac, filter: "2"}
		w.pairs = append(w.pairs, p)
		w.egress = append(w.egress, egressWay{p.link, p.port, a.Egress, a.Owner})
	}
	slices.SortFunc(w.egress, func(a, b egressWay) int { return strings.Compare(a.link, b.link) })
	return nil
}

// egressAddresses names the egress addresses on NICs among what a check has changed.
const egressAddresses = "egress addresses"

// isOwn reports whether a link joins the node to the pod network, for pods that are selected or all.
func isOwn(link string) bool { return link == linkName || strings.HasPrefix(link, egressLink) }

// takeLost takes the egress addresses away that the node does not own, from its NICs. It comes before everything else, and needs only the kernel:
// another node can have the address already while the switch does not answer. It also comes before join, which removes the rule that keeps the node
// from answering there.
func (n *Node) takeLost(part *uplink.Egress) (changed bool, err error) {
	var w wanted
	if part != nil && w.addEgress(part) != nil { // wanted returns this error
		return false, nil
	}
	_, owned := addressesOfWays(w.egress)
	return n.nics.TakeLost(owned)
}

// putEgress gives the NICs of the node the addresses that the node owns. heard is when the bridge was last heard.
func (n *Node) putEgress(ways []egressWay, heard time.Time, o *outcome) {
	ports := map[netip.Addr]string{}
	for _, w := range ways {
		ports[w.address] = w.port
	}
	all, owned := addressesOfWays(ways)
	done := n.nics.Put(all, owned, heard)
	o.note("", egressAddresses, done.Changed, done.Err)
	for address, failed := range done.Failed {
		o.note(ports[address], egressAddresses, false, failed)
	}
	o.unfit = done.Unfit
	n.metrics.egressOwned.Set(float64(n.nics.Held()))
}

// addressesOfWays returns the addresses of all ways, and of those that the node owns.
func addressesOfWays(ways []egressWay) (all, owned []netip.Addr) {
	for _, w := range ways {
		all = append(all, w.address)
		if w.owner {
			owned = append(owned, w.address)
		}
	}
	return all, owned
}

// egressChains returns the chains of egress addresses, which are there while the node has some.
func (w wanted) egressChains() []*nftables.Chain {
	if len(w.egress) == 0 {
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
func (w wanted) egressSets() []*nftables.Set {
	if len(w.egress) == 0 {
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
// egress-marks  marks packets that came in by the links. The kernel drops those without the mark (see putFences), so nothing
//
//	leaves after another program has removed the table.
//
// egress-only   drops packets that leave without the address after all: those that the kernel does not track, and those of
//
//	connections that began with another source. The set egress-stale has such connections.
//
// egress-own    drops packets of the node's programs to the egress address.
//
// way-out       source NAT to the egress address.
//
// no-return     rejects packets that are routed back to the pod network, except by a node port.
func (w wanted) egressRules() (all []rule) {
	if len(w.egress) == 0 {
		return nil
	}
	links := egressLink + "*"
	all = append(all, rule{table4(), egressMarks, fmt.Sprintf("from %s with the mark %#x", links, egressMark), slices.Concat(inBy(links), marked())})
	for _, e := range w.egress {
		all = append(all, rule{
			table4(), wayOut, fmt.Sprintf("from %s through other links than %s with source %s", e.link, linkName, e.address),
			slices.Concat(inBy(e.link), outBy(linkName, expr.CmpOpNeq), snat(e.address)),
		}, rule{
			table4(), egressOnly, fmt.Sprintf("from %s with source %s", e.link, e.address),
			slices.Concat(inBy(e.link), source(single(e.address)), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}),
		})
		if e.owner {
			answers := slices.Concat(destination(single(e.address)), notAnswer(), dropped())
			all = append(all, rule{table4(), egressIn, fmt.Sprintf("to %s only answers", e.address), answers}, rule{table4(), egressOwn, fmt.Sprintf("not to %s", e.address), answers})
		}
	}
	out := slices.Concat(inBy(links), outBy(linkName, expr.CmpOpNeq))
	all = append(all,
		rule{table4(), egressOnly, fmt.Sprintf("from %s with another source by TCP: noted", links), slices.Concat(out, noted(unix.IPPROTO_TCP))},
		rule{table4(), egressOnly, fmt.Sprintf("from %s with another source by UDP: noted", links), slices.Concat(out, noted(unix.IPPROTO_UDP))},
		rule{table4(), egressOnly, fmt.Sprintf("from %s through other links than %s not with another source", links, linkName), slices.Concat(out, dropped())},
		rule{
			table4(), noReturn, fmt.Sprintf("from %s not back to %s, except by a node port", links, linkName),
			slices.Concat(inBy(links), outBy(linkName, expr.CmpOpEq), sameDestination(), reject(table4())),
		})
	return append(all, databaseRules(links, w.databases, databasesHere, databasesThere)...)
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
func staleConnection(e nftables.SetElement) (c nodeports.Connection, ok bool) {
	if len(e.Key) != 5*4 {
		return c, false
	}
	at := func(part int) netip.AddrPort {
		k := e.Key[part*4:]
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(k[:4])), binary.BigEndian.Uint16(k[4:6]))
	}
	return nodeports.Connection{From: at(0), To: at(2), Protocol: e.Key[4*4]}, true
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

// putFences makes the kernel drop packets that came in by the links of egress addresses without egressMark, by routing rules:
// programs that remove all nftables rules leave these in place. It removes the routing rules of other links.
func putFences(ns netns.NsHandle, w wanted) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		all, err := links.Dump(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_V4) })
		if errors.Is(err, unix.EOPNOTSUPP) && len(w.egress) == 0 {
			return nil // the kernel has no routing rules
		}
		if err != nil {
			return fmt.Errorf("list routing rules: %w", err)
		}
		missing := map[string]bool{}
		for _, e := range w.egress {
			missing[e.link] = true
		}
		for _, is := range all {
			if isFence(&is) && missing[is.IifName] {
				delete(missing, is.IifName)
				continue
			}
			if is.Protocol != protocol || is.Priority == policyroute.Priority {
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
	return r.Protocol == protocol && r.Priority == fencePriority && r.Mark == 0 && r.Mask != nil && *r.Mask == egressMark
}

// fence returns the routing rule that drops packets from a link without egressMark.
func fence(link string) *netlink.Rule {
	r, mask := netlink.NewRule(), uint32(egressMark)
	r.Family, r.Priority, r.Protocol, r.Type = netlink.FAMILY_V4, fencePriority, protocol, unix.RTN_BLACKHOLE
	r.IifName, r.Mask = link, &mask
	return r
}

// forgetStale deletes the connections that began with another source than the egress address and go on. Their next packets
// begin them again, with the egress address: a flow of UDP continues, and one of TCP is reset by its other end. It lists all
// connections of the kernel, so it does nothing for forgetEvery after it was needed.
func (n *Node) forgetStale(w wanted) error {
	if time.Since(n.forgotten) < forgetEvery {
		return nil
	}
	for _, set := range w.egressSets() {
		c, err := nftables.New(nftables.WithNetNSFd(int(n.cfg.Netns)))
		if err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
		list, err := c.GetSetElements(set)
		if err != nil {
			return fmt.Errorf("list nftables set %s: %w", set.Name, err)
		}
		stale := map[nodeports.Connection]bool{}
		for _, e := range list {
			if connection, ok := staleConnection(e); ok {
				stale[connection] = true
			}
		}
		if len(stale) == 0 {
			continue
		}
		n.forgotten = time.Now()
		if err := nodeports.ForgetConnections(n.cfg.Netns, stale); err != nil {
			return err
		}
		c.FlushSet(set)
		if err := c.Flush(); err != nil {
			return fmt.Errorf("empty nftables set %s: %w", set.Name, err)
		}
	}
	return nil
}

// forgetStray deletes the connections to the egress address of a pair that is about to be made. Such answers came in while a
// neighbour took this node for the holder. A connection that moves here would get another port, because they have its port.
func (n *Node) forgetStray(w wanted, p pair) error {
	for _, e := range w.egress {
		if e.link == p.link {
			return nodeports.ForgetTo(n.cfg.Netns, e.address)
		}
	}
	return nil
}

// answer lets the bridge ask which part in egress addresses is in force. A port of a part is in force once OVN has installed
// it, and if nothing that concerns it has failed. A part stays in force until another one is.
func (n *Node) answer(asks context.Context, place *uplink.Place, part *uplink.Egress, o *outcome) error {
	if part == nil {
		n.confirmed = egress.State{}
		return n.answers.Sync(netip.AddrPort{}, nil, egress.State{})
	}
	key, err := hex.DecodeString(part.Key)
	if err != nil {
		return fmt.Errorf("egress-changed from the bridge: key: %w", err)
	}
	if o.err == nil {
		if n.confirmed.Applied, n.confirmed.Missing = part.Version, n.missing(asks, part, o.ways); len(n.confirmed.Missing) == 0 {
			n.confirmed.Version = part.Version
		}
	}
	n.confirmed.Unfit = o.unfit
	n.confirmed.Links = linksOf(part)
	return n.answers.Sync(netip.AddrPortFrom(place.Node, part.Port), key, n.confirmed)
}

// missing returns the names of the ports of a part that are not in force. failed has the ends of their links in the switch
// whose links or addresses are not as they should be.
func (n *Node) missing(asks context.Context, part *uplink.Egress, failed map[string]error) (names []string) {
	for _, p := range pairsOf(part) {
		if failed[p.port] != nil || n.cfg.Switch.Check(asks, p.port) != nil {
			names = append(names, p.iface)
		}
	}
	return names
}

// pairsOf returns the pairs of links for the ports of a part; none if the part has an invalid address: then the check has failed.
func pairsOf(part *uplink.Egress) []pair {
	var w wanted
	if w.addEgress(part) != nil {
		return nil
	}
	return w.pairs
}

// linksOf returns the links by which packets for the ports of a part come in, by the name of the port.
func linksOf(part *uplink.Egress) map[string]string {
	all := map[string]string{}
	for _, p := range pairsOf(part) {
		all[p.iface] = p.link
	}
	return all
}
