package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

func newRoutes() *cobra.Command {
	cmd := newReader(resource{"routes", "Show which pods a machine outside the cluster reaches through which node", readRoutes, false})
	cmd.Use = "routes [NODE...]"
	cmd.Long = `routes shows for each node the addresses of its pods, as prefixes. Routes to these prefixes
through ADDRESS let a machine on the network of the nodes reach the pods without NAT. The
pods see the address of the machine, and network policies apply to it. A node with addresses
of both families has a row for each: IPv4 prefixes have an IPv4 address, IPv6 prefixes an
IPv6 address. There is no row for a family of which the bridge knows no address of the node.

A pod must be reached through its own node. Prefixes come and go with pods, so let a
program set the routes: -w -o json prints each change.`
	cmd.Example = `  coe-bridge routes
  coe-bridge routes worker-1 -o json
  coe-bridge routes -w`
	return cmd
}

// nodeRoutes are the routes through a node of one address family.
type nodeRoutes struct {
	Name     string         `json:"name"`
	Address  netip.Addr     `json:"address"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// managementPorts are the ports of the nodes that forward packets to pods.
type managementPorts struct {
	List []managementPort `json:"management-port"`
}

type managementPort struct {
	Node    netip.Addr `json:"node"`
	Second  netip.Addr `json:"second-node-address"`
	IPv6    netip.Addr `json:"ipv6-address"`
	Chassis string     `json:"chassis"`
}

// nextHops returns the addresses of the node by which it forwards packets of the same family to pods, at most one of
// each family.
func (p managementPort) nextHops() (all []netip.Addr) {
	for _, a := range []netip.Addr{p.Node, p.Second} {
		if a.Is4() || a.Is6() && p.IPv6.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

func readRoutes(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var ports managementPorts
	if err := c.Get(ctx, client.Confirmed, "coe-netvirt:management-ports", &ports); err != nil {
		return output.Table{}, nil, err
	}
	var leases status.Leases
	if err := c.Get(ctx, client.Confirmed, "coe-status:leases", &leases); err != nil {
		return output.Table{}, nil, err
	}
	shown, err := routesOf(ports.List, leases.Leases)
	if err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAME", "ADDRESS", "PREFIXES"},
		Empty:   "no routes: no node has a management port; nodes that the bridge knows have one with --isolation none, and with --ovn-layout node",
	}
	for _, n := range shown {
		t.Rows = append(t.Rows, []string{n.Name, text(n.Address), joined(n.Prefixes)})
	}
	return t, shown, nil
}

// routesOf returns the routes through nodes, sorted by the names of the nodes, IPv4 first.
func routesOf(ports []managementPort, leases []status.Lease) ([]nodeRoutes, error) {
	prefixes, err := prefixesOf(leases)
	if err != nil {
		return nil, err
	}
	all := []nodeRoutes{}
	for _, p := range ports {
		for _, hop := range p.nextHops() {
			all = append(all, nodeRoutes{cmp.Or(p.Chassis, p.Node.String()), hop, output.Listed(ofFamily(prefixes[p.Node], hop))})
		}
	}
	slices.SortFunc(all, func(a, b nodeRoutes) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address)) })
	return all, nil
}

// ofFamily returns the prefixes of the family of an address.
func ofFamily(all []netip.Prefix, a netip.Addr) (of []netip.Prefix) {
	for _, p := range all {
		if p.Addr().Is4() == a.Is4() {
			of = append(of, p)
		}
	}
	return of
}

// prefixesOf returns the fewest prefixes that have the addresses of each node's pods and of their
// blocks, and no address of another node.
func prefixesOf(leases []status.Lease) (map[netip.Addr][]netip.Prefix, error) {
	sets := map[netip.Addr]*netipx.IPSetBuilder{}
	for _, l := range leases {
		if l.Released != "" {
			continue
		}
		if sets[l.Node] == nil {
			sets[l.Node] = &netipx.IPSetBuilder{}
		}
		for i, a := range l.Addresses {
			if network := l.Networks[i]; network.Contains(a) {
				sets[l.Node].AddPrefix(network)
			} else { // of no pool: the network is that of the gateway
				sets[l.Node].Add(a)
			}
		}
	}
	all := map[netip.Addr][]netip.Prefix{}
	for node, builder := range sets {
		set, err := builder.IPSet()
		if err != nil {
			return nil, fmt.Errorf("combine the prefixes of node %s: %w", node, err)
		}
		all[node] = set.Prefixes()
	}
	return all, nil
}
