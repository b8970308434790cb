package mapping

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// addEgressIPs adds the ways by which the pods of EgressIPs leave. They exist if there is a node network: without one
// no pod leaves. A host that is not a node of the cluster any more has no port, and if it was active, nothing leaves.
func addEgressIPs(m netvirt.Model, v coe.ClusterView, transit string, all *policies) {
	network := v.Networks.Nodes.Masked()
	if m[netvirt.NodeNetwork{Prefix: network}.Key()] == nil || all == nil {
		return
	}
	for _, e := range v.EgressIPs {
		o := netvirt.EgressIP{Name: e.Name, Group: egressGroupName(e.Name), Network: network, Transit: transit, Number: e.Number}
		for i, addr := range e.Hosts {
			if n := v.Nodes[addr]; n != nil {
				o.Hosts[i] = netvirt.EgressHost{Node: addr, Chassis: n.HostName}
			}
		}
		if e.Active > 0 && o.Hosts[e.Active-1] != (netvirt.EgressHost{}) {
			o.Active = e.Active
		}
		m.Add(o)
	}
}

// egressOf returns the first EgressIP that selects the pod with an address; nil if none does.
func (b *builder) egressOf(a netip.Addr) *coe.EgressIP {
	if b.policies == nil || len(b.policies.egress) == 0 || b.pods[a] == nil {
		return nil
	}
	if b.selected == nil {
		b.selected = map[string]*coe.EgressIP{}
		for _, p := range b.Pods {
			labels := coe.PodLabels(b.policies.labels, p.Labels)
			if i := slices.IndexFunc(b.policies.egress, func(e *coe.EgressIP) bool { return e.Pods.Matches(labels) }); i >= 0 {
				b.selected[p.UID] = b.policies.egress[i]
			}
		}
	}
	return b.selected[b.pods[a].PodUID]
}

// sharedEgress adds a problem for each EgressIP that selects a pod of the namespace that another one selects too,
// with an example.
func (b *builder) sharedEgress() {
	if b.policies == nil || len(b.policies.egress) < 2 {
		return
	}
	noted := map[[2]string]bool{}
	for _, p := range b.Pods {
		if p.NoNetwork {
			continue
		}
		var first *coe.EgressIP
		labels := coe.PodLabels(b.policies.labels, p.Labels)
		for _, e := range b.policies.egress {
			switch {
			case !e.Pods.Matches(labels):
			case first == nil:
				first = e
			case !noted[[2]string{e.Name, first.Name}]:
				noted[[2]string{e.Name, first.Name}] = true
				b.problems = append(b.problems, coe.Problem{
					Namespace: b.Namespace, Kind: coe.EgressKind, UID: e.UID, Name: e.Name, Reason: coe.NotEnforced,
					Message: fmt.Sprintf("egressip %s selects pods of the namespace too, for example %s, and was accepted first: they leave with its address", first.Name, p.Name),
				})
			}
		}
	}
}
