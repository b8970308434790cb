package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
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
		w.Egress = append(w.Egress, noderules.EgressWay{Link: p.link, Address: a.Egress, Owner: a.Owner})
	}
	slices.SortFunc(w.Egress, func(a, b noderules.EgressWay) int { return strings.Compare(a.Link, b.Link) })
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
	_, owned := addressesOfWays(w.Egress)
	return n.nics.TakeLost(owned)
}

// putEgress gives the NICs of the node the addresses that the node owns. heard is when the bridge was last heard.
func (n *Node) putEgress(ways []noderules.EgressWay, heard time.Time, o *outcome) {
	ports := map[netip.Addr]string{}
	for _, w := range ways {
		ports[w.Address] = egressPort + strings.TrimPrefix(w.Link, egressLink)
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
func addressesOfWays(ways []noderules.EgressWay) (all, owned []netip.Addr) {
	for _, w := range ways {
		all = append(all, w.Address)
		if w.Owner {
			owned = append(owned, w.Address)
		}
	}
	return all, owned
}

// forgetEvery is how often connections are forgotten.
const forgetEvery = 10 * time.Second

// forgetStale lets connections of selected pods that began with another source begin again. That lists all connections of the
// kernel, so it does nothing for forgetEvery after it was needed.
func (n *Node) forgetStale(w wanted) error {
	if time.Since(n.forgotten) < forgetEvery {
		return nil
	}
	some, err := w.ForgetStale(n.cfg.Netns)
	if some {
		n.forgotten = time.Now()
	}
	return err
}

// forgetStray deletes the connections to the egress address of a pair that is about to be made. Such answers came in while a
// neighbour took this node for the holder. A connection that moves here would get another port, because they have its port.
func (n *Node) forgetStray(w wanted, p pair) error {
	for _, e := range w.Egress {
		if e.Link == p.link {
			return conntrack.DeleteTo(n.cfg.Netns, e.Address)
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
