package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// gateway is an entry of coe-gateways:gateways.
type gateway struct {
	Node     netip.Addr     `json:"node"`
	Address  netip.Addr     `json:"address"`
	Length   int            `json:"prefix-length"`
	NextHop  netip.Addr     `json:"next-hop"`
	IPv6     netip.Addr     `json:"ipv6-address"`
	Length6  int            `json:"ipv6-prefix-length"`
	Hop6     netip.Addr     `json:"ipv6-next-hop"`
	Pinned   []netip.Prefix `json:"pinned-subnets"`
	Services bool           `json:"services"`
}

// cells returns the cells of the gateway between the names and the problem.
func (g gateway) cells() []string {
	addresses, hops := []netip.Prefix{netip.PrefixFrom(g.Address, g.Length)}, []netip.Addr{g.NextHop}
	if g.IPv6.IsValid() {
		addresses, hops = append(addresses, netip.PrefixFrom(g.IPv6, g.Length6)), append(hops, g.Hop6)
	}
	services := "no"
	if g.Services {
		services = "yes"
	}
	return []string{joined(addresses), joined(hops), joined(g.Pinned), services}
}

// readGateways reads the gateways as clients wrote them, with the names of their nodes and their problems.
func readGateways(ctx context.Context, c *client.Client) (output.Table, any, error) {
	shown, err := entriesNamed(ctx, c, "gateways")
	if err != nil {
		return output.Table{}, nil, err
	}
	names, problems := map[string]string{}, map[string]string{}
	if len(shown) > 0 {
		if names, err = namesOfNodes(ctx, c); err == nil {
			problems, err = problemsOfGateways(ctx, c)
		}
		if err != nil {
			return output.Table{}, nil, err
		}
	}
	t := output.Table{
		Columns: []string{"NAME", "NODE ADDRESS", "ADDRESS", "NEXT HOP", "PINNED SUBNETS", "SERVICES", "PROBLEM"},
		Empty:   "no gateways; make a node one with coe-bridge gateway init, on the node",
	}
	for i := range shown {
		shown[i].Name = names[shown[i].UID]
	}
	slices.SortFunc(shown, func(a, b shownEntry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	for _, one := range shown {
		var g gateway
		if err := json.Unmarshal(one.Entry, &g); err != nil {
			return output.Table{}, nil, fmt.Errorf("read gateway of node %s: %w", one.UID, err)
		}
		t.Rows = append(t.Rows, slices.Concat([]string{one.Name, one.UID}, g.cells(), []string{problems[one.UID]}))
	}
	return t, shown, nil
}

// entriesNamed reads the entries of the kind with a name.
func entriesNamed(ctx context.Context, c *client.Client, name string) ([]shownEntry, error) {
	k, err := entrykind.Named(name)
	if err != nil {
		return nil, err
	}
	return entriesOf(ctx, c, k)
}

// namesOfNodes returns the names of nodes by their addresses.
func namesOfNodes(ctx context.Context, c *client.Client) (map[string]string, error) {
	nodes, err := entriesNamed(ctx, c, "nodes")
	names := map[string]string{}
	for _, n := range nodes {
		names[n.Address] = n.Name
	}
	return names, err
}

// problemsOfGateways returns the reasons of the problems of gateways by the addresses of their nodes.
func problemsOfGateways(ctx context.Context, c *client.Client) (map[string]string, error) {
	var st status.Status
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, p := range st.Problems {
		if p.Kind == "gateway" {
			reasons[p.UID] = string(p.Reason)
		}
	}
	return reasons, nil
}
