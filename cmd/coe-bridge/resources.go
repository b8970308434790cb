package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

func resources() []resource {
	list := []resource{
		{"elan-instances", "Layer 2 networks: one for each namespace on each node", readELANInstances, false},
		{"vpn-instances", "Layer 3 networks: one for each namespace", readVPNInstances, false},
		{"interfaces", "Pods' interfaces, and whether the backend has them", readInterfaces, false},
		{"pods", "Pods, who said them, their addresses and how far they are", readPods, false},
		{"services", "Services, with their addresses and endpoints", readServices, false},
		{"pools", "DHCP pools, and how much of them is in use", readPools, false},
		{"leases", "Addresses that were handed out", readLeases, false},
		{"problems", "What can't be mapped now, why, and what would mend it", readProblems, false},
	}
	for _, k := range kinds() {
		if !slices.ContainsFunc(list, func(r resource) bool { return r.name == k.name }) {
			list = append(list, resource{k.name, k.short + ", as clients or Kubernetes wrote them", readKind(k), false})
		}
	}
	return list
}

// listed is a list as JSON and YAML show it, [] when there is nothing in it.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

type leases struct {
	List []lease `json:"lease"`
}

type lease struct {
	PodUID       string   `json:"pod-uid"`
	InterfaceUID string   `json:"interface-uid"`
	Name         string   `json:"interface-name"`
	Namespace    string   `json:"namespace"`
	Pod          string   `json:"pod"`
	Node         string   `json:"node"`
	MAC          string   `json:"mac-address"`
	Addresses    []string `json:"ip-address"`
	Network      []string `json:"network"`
	Released     string   `json:"released,omitempty"`
}

func readLeases(ctx context.Context, c *client) (table, any, error) {
	var all leases
	if err := c.get(ctx, confirmed, "coe-status:leases", &all); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"INTERFACE", "ADDRESS", "BLOCK", "MAC", "NODE", "RELEASED"},
		empty:   "no leases: no pod has an address",
	}
	for _, l := range all.List {
		t.rows = append(t.rows, []string{
			l.Name, strings.Join(l.Addresses, ","), strings.Join(l.Network, ","), l.MAC, l.Node, l.Released,
		})
	}
	return t, listed(all.List), nil
}

type pools struct {
	Networks []struct {
		ID    string `json:"network-id"`
		Pools []struct {
			Subnet  string   `json:"subnet"`
			From    string   `json:"allocate-from,omitempty"`
			To      string   `json:"allocate-to,omitempty"`
			Gateway string   `json:"gateway,omitempty"`
			DNS     []string `json:"dns-servers,omitempty"`
		} `json:"allocation-pool,omitempty"`
		Allocations []struct {
			Subnet string `json:"subnet"`
			Given  []struct {
				MAC     string `json:"mac"`
				Address string `json:"allocated-ip"`
			} `json:"allocation-instance"`
		} `json:"allocations,omitempty"`
	} `json:"network"`
}

func readPools(ctx context.Context, c *client) (table, any, error) {
	var all pools
	if err := c.get(ctx, confirmed, "dhcp_allocation_pool:dhcp_allocation_pool", &all); err != nil {
		return table{}, nil, err
	}
	var services mappedServices
	if err := c.get(ctx, wanted, "coe-netvirt:services", &services); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"NETWORK", "SUBNET", "FROM", "TO", "GATEWAY", "IN USE"},
		empty:   "no pools; coe-bridge apply -f FILE makes some",
	}
	for _, n := range all.Networks {
		used := map[string]int{}
		for _, a := range n.Allocations {
			used[a.Subnet] = len(a.Given)
		}
		for _, p := range n.Pools {
			if n.ID == coe.ServicePool {
				used[p.Subnet] = services.within(p.Subnet)
			}
			t.rows = append(t.rows, []string{n.ID, p.Subnet, p.From, p.To, p.Gateway, strconv.Itoa(used[p.Subnet])})
		}
	}
	return t, listed(all.Networks), nil
}

func readProblems(ctx context.Context, c *client) (table, any, error) {
	var st status
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	t := table{columns: []string{"NAMESPACE", "KIND", "NAME", "UID", "REASON", "MESSAGE"}, empty: "no problems"}
	for _, p := range st.Problems {
		t.rows = append(t.rows, []string{p.Namespace, p.Kind, p.Name, p.UID, p.Reason, p.Message})
	}
	return t, listed(st.Problems), nil
}
