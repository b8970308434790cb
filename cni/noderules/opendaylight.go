package noderules

import (
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// controllerPorts are the ports of OpenDaylight beside OVSDB, which is a database: its cluster, OpenFlow, its console, and RESTCONF.
var controllerPorts = []uint16{2550, 6633, 6653, 8101, 8181, 8443}

// controllerRules returns rules that drop pods' traffic to OpenDaylight, like databaseRules: who writes to it controls the network of
// all pods. Other programs, also the bridge, have such ports at other addresses.
func (w Wanted) controllerRules(links string, chains ...string) (all []rule) {
	for _, chain := range chains {
		for _, a := range w.Controllers {
			for _, port := range controllerPorts {
				all = append(all, rule{
					tableBoth(), chain, fmt.Sprintf("from %s not to OpenDaylight %s, port %d", links, a, port),
					slices.Concat(matches.InBy(links), ofFamily(a), destination(single(a)), tcpTo(port, port), dropped()),
				})
			}
		}
	}
	return all
}

// nodePortRules returns the rules that drop packets from the ports of the node. With OpenDaylight the router has the MAC address of
// the port, so the kernel sees all packets to the router, of pods and of the node.
func nodePortRules() []rule {
	drop := slices.Concat(inByGroup(Group), dropped())
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
func (f *Family) balancing() (all []rule) {
	for _, to := range f.Services {
		refuse := slices.Concat(matches.OutBy(Link), destination(to), []expr.Any{
			&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable},
		})
		for _, chain := range []string{noReturn, noService} {
			all = append(all, rule{f.table(), chain, fmt.Sprintf("to services %s: nobody serves", to), refuse})
		}
	}
	return append(all, f.outside(NamespacePrefix+"*")...)
}
