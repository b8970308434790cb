package node

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cni/odlports"
	"github.com/coe-bridge/coe-bridge/cni/ovs/remotes"
)

// controllersOf returns the addresses of OpenDaylight among the managers of the switch. A manager with a host name has none: the
// switch resolves it.
func controllersOf(managers []string) (all []netip.Addr) {
	for _, m := range managers {
		for _, r := range remotes.Parse(m) {
			if a, err := netip.ParseAddr(r.Host); err == nil {
				all = append(all, a.Unmap())
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// unusedPorts returns the ports with names for OpenDaylight whose own end is the link of a namespace, if no wanted pair has one
// of both. links has the own ends of ports.
func unusedPorts(links map[string]string, pairs []pair) (all []string) {
	for port, link := range links {
		kept := strings.HasPrefix(port, tapPrefix) && strings.HasPrefix(link, linkPrefix)
		if kept && !slices.ContainsFunc(pairs, func(p pair) bool { return p.link == link || p.port == port }) {
			all = append(all, port)
		}
	}
	return all
}

// replacePorts replaces a port of the node or of a pod that OpenDaylight has not programmed.
func (n *Node) replacePorts(ctx context.Context, w wanted) (replaced bool, err error) {
	if n.cfg.Programmed == nil {
		return false, nil
	}
	pods, err := n.cfg.Switch.Ports(ctx)
	if err != nil {
		return false, err
	}
	var all []odlports.Port
	for _, p := range w.pairs {
		all = append(all, odlports.Port{Name: p.port, Interface: p.iface, Addresses: p.addresses})
	}
	for _, p := range pods {
		all = append(all, odlports.Port{
			Name: p.Name, Interface: p.Interface, Container: p.Attachment.Container, Addresses: p.Addresses, Replaced: p.Replaced,
		})
	}
	return n.odl.Replace(ctx, all)
}
