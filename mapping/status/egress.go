package status

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// EgressIPs is the container coe-status:egress-ips.
type EgressIPs struct {
	EgressIPs []EgressIP `json:"egress-ip,omitempty"`
}

// EgressIP is an EgressIP, and the node that holds its address.
type EgressIP struct {
	Name       string     `json:"name"`
	Address    netip.Addr `json:"address,omitzero"`
	State      string     `json:"state"`
	Node       netip.Addr `json:"node,omitzero"`
	NodeName   string     `json:"node-name,omitempty"`
	Candidates []string   `json:"candidate,omitempty"`
	Pods       int        `json:"pods"`
}

// EgressIPsOf lists the EgressIPs of a store.
func EgressIPsOf(store *state.Store) (out EgressIPs) {
	all, nodes := store.EgressIPs(), store.Nodes()
	if len(all) == 0 {
		return out
	}
	var candidates []string
	for _, n := range nodes {
		if n.Egress {
			candidates = append(candidates, n.HostName)
		}
	}
	slices.Sort(candidates)
	pods := map[*coe.EgressIP]int{}
	for _, namespace := range store.Namespaces() {
		view := store.View(namespace)
		if view.PolicySet == nil {
			continue
		}
		labels := view.PolicySet.LabelsOf(namespace)
		for _, p := range view.Pods {
			if !p.NoNetwork {
				pods[coe.FirstEgressIP(all, labels, p.Labels)]++
			}
		}
	}
	for _, e := range all {
		one := EgressIP{Name: e.Name, Address: e.Address, State: e.State(), Node: e.Host(), Candidates: candidates, Pods: pods[e]}
		if n := nodes[one.Node]; n != nil {
			one.NodeName = n.HostName
		}
		out.EgressIPs = append(out.EgressIPs, one)
	}
	return out
}
