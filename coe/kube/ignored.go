package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// ignoredOfPod returns the settings of a pod that are not enforced. The mapping adds those that depend on the backend.
func ignoredOfPod(in *corev1.Pod) (out coe.Ignored) {
	for _, name := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
		if in.Annotations[name] != "" {
			out |= coe.Bandwidth
		}
	}
	if value, set := in.Annotations[coe.DHCPAnnotation]; set && value != "true" {
		out |= coe.DHCPValue
	}
	return out | unknownAnnotations(in.Annotations, InterfacesAnnotation, coe.ProfilesAnnotation, coe.DHCPAnnotation)
}

// ignoredOfService returns the settings of a service that are not enforced. The mapping adds those
// that depend on the backend.
func ignoredOfService(in *corev1.Service) (out coe.Ignored) {
	return out | unknownAnnotations(in.Annotations)
}

// ignoredOfNamespace returns the settings of a namespace that are not enforced.
func ignoredOfNamespace(in *corev1.Namespace) (out coe.Ignored) {
	if _, set := in.Annotations[coe.PolicyLogAnnotation]; set && policyLog(in) == "" {
		out |= coe.PolicyLogValue
	}
	return out | unknownAnnotations(in.Annotations, coe.PolicyLogAnnotation, coe.ProfilesAnnotation)
}

// unknownAnnotations reports whether there are annotations with the bridge's prefix that are
// not known.
func unknownAnnotations(annotations map[string]string, known ...string) coe.Ignored {
next:
	for name := range annotations {
		if !strings.HasPrefix(name, coe.AnnotationPrefix) {
			continue
		}
		for _, k := range known {
			if name == k {
				continue next
			}
		}
		return coe.UnknownAnnotation
	}
	return 0
}

// hostPorts returns the ports of the node that a pod requests.
func hostPorts(in *corev1.Pod) (ports []uint16) {
	for _, containers := range [][]corev1.Container{in.Spec.InitContainers, in.Spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if port.HostPort > 0 && port.HostPort <= 65535 && len(ports) < coe.MaxHostPorts {
					ports = append(ports, uint16(port.HostPort))
				}
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
