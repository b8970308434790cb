package manifest

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Lists returns the paths of the lists of an API server that have all kinds of objects of a Set.
func Lists() []string {
	return []string{
		"/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods", "/api/v1/services",
		"/apis/discovery.k8s.io/v1/endpointslices", "/apis/networking.k8s.io/v1/networkpolicies",
	}
}

// EgressList is the path of the list of EgressIPs. A cluster without the custom resource has none.
const EgressList = "/apis/coe-bridge.io/v1/egressips"

// With returns the objects of a running cluster as they are after kubectl apply of other
// manifests. An object of changes replaces the object of the same kind and name. It keeps what a
// manifest leaves to the cluster: its UID, the node of a pod, cluster addresses of a service, and
// its status. The objects of changes are modified.
func (m *Set) With(changes *Set) *Set {
	return &Set{
		Namespaces: replaced(m.Namespaces, changes.Namespaces, func(_, _ *corev1.Namespace) {}),
		Nodes: replaced(m.Nodes, changes.Nodes, func(old, n *corev1.Node) {
			if len(n.Status.Addresses) == 0 {
				n.Status = old.Status
			}
			if len(n.Spec.PodCIDRs) == 0 {
				n.Spec.PodCIDR, n.Spec.PodCIDRs = old.Spec.PodCIDR, old.Spec.PodCIDRs
			}
		}),
		Pods: replaced(m.Pods, changes.Pods, func(old, p *corev1.Pod) {
			p.Spec.NodeName = cmp.Or(p.Spec.NodeName, old.Spec.NodeName)
			if p.Status.Phase == "" && p.Status.PodIP == "" && p.Status.HostIP == "" {
				p.Status = old.Status
			}
		}),
		Services: replaced(m.Services, changes.Services, func(old, s *corev1.Service) {
			if s.Spec.ClusterIP == "" {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
			}
		}),
		Slices:    replaced(m.Slices, changes.Slices, func(_, _ *discoveryv1.EndpointSlice) {}),
		Policies:  replaced(m.Policies, changes.Policies, func(_, _ *networkingv1.NetworkPolicy) {}),
		EgressIPs: m.egressIPsWith(changes.EgressIPs),
		AccessLists: slices.Concat(slices.DeleteFunc(slices.Clone(m.AccessLists), func(old *coe.PolicySpec) bool {
			return slices.ContainsFunc(changes.AccessLists, func(p *coe.PolicySpec) bool { return p.UID == old.UID })
		}), changes.AccessLists),
		Skipped: slices.Concat(m.Skipped, changes.Skipped),
	}
}

// egressIPsWith returns the EgressIPs after changes. One that is replaced keeps its age.
func (m *Set) egressIPsWith(changes []*coe.EgressSpec) []*coe.EgressSpec {
	all := slices.Clone(m.EgressIPs)
	for _, e := range changes {
		at := slices.IndexFunc(all, func(old *coe.EgressSpec) bool { return old.Name == e.Name })
		if at < 0 {
			all = append(all, e)
			continue
		}
		e.UID, e.Created = all[at].UID, all[at].Created
		all[at] = e
	}
	return all
}

// replaced returns a list in which objects of changes replace those with the same name. complete
// completes them.
func replaced[O metav1.Object](list, changes []O, complete func(old, changed O)) []O {
	type name struct{ namespace, name string }
	changed := make(map[name]O, len(changes))
	for _, o := range changes {
		changed[name{o.GetNamespace(), o.GetName()}] = o
	}
	var all []O
	for _, old := range list {
		of := name{old.GetNamespace(), old.GetName()}
		o, found := changed[of]
		if !found {
			all = append(all, old)
			continue
		}
		delete(changed, of)
		o.SetUID(old.GetUID())
		complete(old, o)
		all = append(all, o)
	}
	for _, o := range changes {
		if _, isNew := changed[name{o.GetNamespace(), o.GetName()}]; isNew {
			all = append(all, o)
		}
	}
	return all
}
