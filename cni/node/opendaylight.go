package node

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// controllersOf returns the addresses of OpenDaylight among the managers of the switch. A manager with a host name has none: the
// switch resolves it.
func controllersOf(managers []string) (all []netip.Addr) {
	for _, m := range managers {
		for _, r := range ovs.Remotes(m) {
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
