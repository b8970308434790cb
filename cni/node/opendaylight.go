package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// controllerPorts are the ports of OpenDaylight beside OVSDB, which is a database: its cluster, OpenFlow, its console, and RESTCONF.
var controllerPorts = []uint16{2550, 6633, 6653, 8101, 8181, 8443}

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

// controllerRules returns rules that drop pods' traffic to OpenDaylight, like databaseRules: who writes to it controls the network of
// all pods. Other programs, also the bridge, have such ports at other addresses.
func (w wanted) controllerRules(links string, chains ...string) (all []rule) {
	for _, chain := range chains {
		for _, a := range w.controllers {
			for _, port := range controllerPorts {
				all = append(all, rule{
					tableBoth(), chain, fmt.Sprintf("from %s not to OpenDaylight %s, port %d", links, a, port),
					slices.Concat(inBy(links), ofFamily(a), destination(single(a)), tcpTo(port, port), dropped()),
				})
			}
		}
	}
	return all
}

// nodePortRules returns the rules that drop packets from the ports of the node. With OpenDaylight the router has the MAC address of
// the port, so the kernel sees all packets to the router, of pods and of the node.
func nodePortRules() []rule {
	drop := slices.Concat(inByGroup(group), dropped())
	return []rule{
		{tableBoth(), ownPods, "from ports of the node only through the switch", drop},
		{tableBoth(), noForward, "from ports of the node only through the switch", drop},
	}
}

// balancing returns the rules of a family if pods send to services by the links of their namespaces. The node has translated what it
// leads to services, so nothing behind the management port has a cluster address:
//
// no-return   refuses packets to cluster addresses, with ICMP port unreachable.
//
// no-service  does the same with packets of the node's programs.
//
// way-out     source NAT for what pods send out of the cluster by these links.
func (f *family) balancing() (all []rule) {
	for _, to := range f.services {
		refuse := slices.Concat(outBy(linkName, expr.CmpOpEq), destination(to), []expr.Any{
			&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable},
		})
		for _, chain := range []string{noReturn, noService} {
			all = append(all, rule{f.table(), chain, fmt.Sprintf("to services %s: nobody serves", to), refuse})
		}
	}
	return append(all, f.outside(linkPrefix+"*")...)
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
