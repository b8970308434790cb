package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Recreated returns the set with pods that have no addresses yet, as if all had been created again. It has no EndpointSlices
// of services with a selector: SelectedEndpoints chooses their endpoints from the pods.
func (m *Set) Recreated() *Set {
	again := *m
	again.Pods = make([]*corev1.Pod, len(m.Pods))
	for i, p := range m.Pods {
		if !p.Spec.HostNetwork {
			p = p.DeepCopy()
			p.Status.PodIP, p.Status.PodIPs = "", nil
		}
		again.Pods[i] = p
	}
	selecting := map[string]bool{}
	for _, s := range m.Services {
		selecting[s.Namespace+"/"+s.Name] = len(s.Spec.Selector) > 0
	}
	again.Slices = slices.DeleteFunc(slices.Clone(m.Slices), func(s *discoveryv1.EndpointSlice) bool {
		return selecting[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]]
	})
	return &again
}
