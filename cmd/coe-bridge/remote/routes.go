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
pods see the address of the machine, and network policies apply to it.

A pod must be reached through its own node. Prefixes come and go with pods, so let a
program set the routes: -w -o json prints each change.`
	cmd.Example = `  coe-bridge routes
  coe-bridge routes worker-1 -o json
  coe-bridge routes -w`
	return cmd
}

// nodeRoutes are the routes through a node.
type nodeRoutes struct {
	Name     string         `json:"name"`
	Address  netip.Addr     `json:"address"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// managementPorts are the ports of the nodes that forward packets to pods.
type managementPorts struct {
	List []struct {
		Node    netip.Addr `json:"node"`
		Chassis string     `json:"chassis"`
	} `json:"management-port"`
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
	prefixes, err := prefixesOf(leases.Leases)
	if err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAME", "ADDRESS", "PREFIXES"},
		Empty:   "no routes: no node has a management port; nodes have one on OVN with --isolation none",
	}
	shown := []nodeRoutes{}
	for _, p := range ports.List {
		shown = append(shown, nodeRoutes{cmp.Or(p.Chassis, p.Node.String()), p.Node, output.Listed(prefixes[p.Node])})
	}
	slices.SortFunc(shown, func(a, b nodeRoutes) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address)) })
	for _, n := range shown {
		t.Rows = append(t.Rows, []string{n.Name, text(n.Address), joined(n.Prefixes)})
	}
	return t, shown, nil
}

// prefixesOf returns the fewest prefixes that have the IPv4 addresses of each node's pods and of their
// blocks, and no address of another node. IPv6 routes need the IPv6 address of the node, which is not known here.
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
			switch network := l.Networks[i]; {
			case !a.Is4():
			case network.Contains(a):
				sets[l.Node].AddPrefix(network)
			default: // of no pool: the network is that of the gateway
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
