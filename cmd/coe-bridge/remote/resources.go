package remote

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

func resources() []resource {
	list := []resource{
		{"elan-instances", "Layer 2 networks: one for each namespace on each node", readELANInstances, false},
		{"vpn-instances", "Layer 3 networks: one for each namespace", readVPNInstances, false},
		{"interfaces", "Interfaces of pods, and whether they are confirmed", readInterfaces, false},
		{"pods", "Pods, with their source, addresses and state", readPods, false},
		{"services", "Services, with their addresses and endpoints", readServices, false},
		{"pools", "DHCP pools, with the addresses in use, and how many pods fit", readPools, false},
		{"leases", "Addresses of pods", readLeases, false},
		{"egressips", "EgressIPs, with the nodes that hold their addresses", readEgressIPs, false},
		{"gateways", "Gateways of OVN, by node, with their addresses", readGateways, false},
		{"problems", "Objects that cannot be mapped, why, and what to do", readProblems, false},
	}
	for _, k := range entrykind.All() {
		if !slices.ContainsFunc(list, func(r resource) bool { return r.name == k.Name }) {
			list = append(list, resource{k.Name, k.Short + ", as clients or Kubernetes wrote them", readKind(k), false})
		}
	}
	return list
}

func readLeases(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var all status.Leases
	if err := c.Get(ctx, client.Confirmed, "coe-status:leases", &all); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"INTERFACE", "ADDRESS", "BLOCK", "MAC", "NODE", "RELEASED"},
		Empty:   "no leases: no pod has an address",
	}
	for _, l := range all.Leases {
		t.Rows = append(t.Rows, []string{
			l.Name, joined(l.Addresses), joined(l.Networks), l.MAC, text(l.Node), l.Released,
		})
	}
	return t, output.Listed(all.Leases), nil
}

func readEgressIPs(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var all status.EgressIPs
	if err := c.Get(ctx, client.Confirmed, "coe-status:egress-ips", &all); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAME", "ADDRESS", "STATE", "NODE", "CANDIDATES", "PODS"},
		Empty:   "no EgressIPs; create some in Kubernetes, and start the bridge with --egress-ips",
	}
	for _, e := range all.EgressIPs {
		node := e.NodeName
		if node == "" {
			node = text(e.Node)
		}
		t.Rows = append(t.Rows, []string{e.Name, text(e.Address), e.State, node, strings.Join(e.Candidates, ","), strconv.Itoa(e.Pods)})
	}
	return t, output.Listed(all.EgressIPs), nil
}

func readPools(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var all status.AllPools
	if err := c.Get(ctx, client.Confirmed, "coe-status:pools", &all); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NETWORK", "SUBNET", "FROM", "TO", "GATEWAY", "IN USE", "BLOCKS", "PODS THAT FIT"},
		Empty:   "no pools; create some with coe-bridge apply -f FILE",
	}
	for _, p := range all.Pools {
		fit := ""
		if p.Fit != nil {
			fit = strconv.FormatInt(*p.Fit, 10)
		}
		t.Rows = append(t.Rows, []string{
			p.Network, p.Subnet.String(), text(p.From), text(p.To), text(p.Gateway), strconv.Itoa(p.Given), strconv.Itoa(p.Blocks), fit,
		})
	}
	return t, output.Listed(all.Pools), nil
}

func readProblems(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var st status.Status
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAMESPACE", "KIND", "NAME", "UID", "REASON", "MESSAGE"},
		Empty:   "no problems",
		Note:    standbyNote(&st),
	}
	for _, p := range st.Problems {
		t.Rows = append(t.Rows, []string{p.Namespace, p.Kind, p.Name, p.UID, string(p.Reason), p.Message})
	}
	return t, output.Listed(st.Problems), nil
}
