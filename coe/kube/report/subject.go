package report

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Kinds of problems that name the entity itself.
const (
	kindPod     = "pod"
	kindService = "service"

	kindNamespace = "namespace"
)

// subjects finds the Kubernetes objects of the problems of one namespace.
type subjects struct {
	store     *state.Store
	namespace string
	// pods are the pods of the namespace by name, services and policies by UID; created when
	// needed.
	pods     map[string]*coe.Pod
	services map[string]*coe.Service
	policies map[string]*coe.Policy
}

// of returns the object of a problem; nil if it has another origin or cannot be determined.
func (s *subjects) of(p coe.Problem) *corev1.ObjectReference {
	switch p.Kind {
	case kindPod:
		return s.pod(p.UID)
	case kindService, netvirt.KindServiceVIP.String(), netvirt.KindGatewayVIP.String():
		return s.service(serviceUID(p.UID))
	case kindNamespace:
		return s.namespaceItself(p.UID)
	case string(coe.NetworkPolicy):
		return s.policy(p.UID)
	case coe.EgressKind:
		return s.egressIP(p.UID)
	case netvirt.KindFloatingIP.String():
		return s.podOf(word(p.UID, 1)) // "router port address"
	default:
		return s.podOf(word(p.UID, 0)) // an interface, alone or with its address
	}
}

// serviceUID returns the UID of a service from the name of its Netvirt object, "namespace uid …",
// or name itself, which is the UID in a problem of mapping.
func serviceUID(name string) string {
	if uid := word(name, 1); uid != "" {
		return uid
	}
	return name
}

func word(s string, n int) string {
	if words := strings.Fields(s); n < len(words) {
		return words[n]
	}
	return ""
}

func (s *subjects) pod(uid string) *corev1.ObjectReference {
	reported := s.store.Pod(uid)
	if reported.Pod == nil || reported.Origin != coe.Kubernetes {
		return nil
	}
	return reference("Pod", reported.Pod.Namespace, reported.Pod.Name, uid)
}

// podOf returns the pod of an interface.
func (s *subjects) podOf(iface string) *corev1.ObjectReference {
	namespace, name, _, err := netvirt.ParseInterfaceName(iface)
	if err != nil || namespace != s.namespace {
		return nil
	}
	if s.pods == nil {
		s.pods = map[string]*coe.Pod{}
		for _, p := range s.store.View(s.namespace).Pods {
			s.pods[p.Name] = p
		}
	}
	if p := s.pods[name]; p != nil {
		return s.pod(p.UID)
	}
	return nil
}

func (s *subjects) service(uid string) *corev1.ObjectReference {
	if s.store.Origin(uid) != coe.Kubernetes {
		return nil
	}
	if s.services == nil {
		s.services = map[string]*coe.Service{}
		for _, service := range s.store.View(s.namespace).Services {
			s.services[service.UID] = service
		}
	}
	if service := s.services[uid]; service != nil {
		return reference("Service", s.namespace, service.Name, uid)
	}
	return nil
}

func (s *subjects) policy(uid string) *corev1.ObjectReference {
	if s.store.Origin(uid) != coe.Kubernetes {
		return nil
	}
	if s.policies == nil {
		s.policies = map[string]*coe.Policy{}
		for _, p := range s.store.View(s.namespace).Policies {
			s.policies[p.UID] = p
		}
	}
	p := s.policies[uid]
	if p == nil {
		return nil
	}
	ref := reference("NetworkPolicy", s.namespace, p.Name, uid)
	ref.APIVersion = "networking.k8s.io/v1"
	return ref
}

// egressIP returns an EgressIP with a problem that is not one of a namespace.
func (s *subjects) egressIP(uid string) *corev1.ObjectReference {
	if s.namespace != "" {
		return nil
	}
	spec := s.store.EgressSpec(uid)
	if spec == nil {
		return nil
	}
	ref := reference("EgressIP", "", spec.Name, uid)
	ref.APIVersion = kube.EgressIPs.GroupVersion().String()
	return ref
}

// namespaceItself returns the namespace as an object. Events about it are in the namespace,
// where kubectl shows them with the others.
func (s *subjects) namespaceItself(uid string) *corev1.ObjectReference {
	if n := s.store.Namespace(s.namespace); n != nil && n.UID == uid {
		return reference("Namespace", s.namespace, n.Name, uid)
	}
	return nil
}

func reference(kind, namespace, name, uid string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: types.UID(uid)}
}

// isSilent reports whether a problem needs no Event, because it is a normal state that others
// report.
func isSilent(store *state.Store, p coe.Problem) bool {
	switch p.Reason {
	case coe.Waiting:
		return p.Kind != coe.EgressKind
	case coe.NoNode:
		pod := store.Pod(p.UID).Pod
		return pod != nil && pod.NodeName == "" // not scheduled yet
	default:
		return false
	}
}

// stateOf reports whether an object exists, and whether it should be mapped.
func stateOf(store *state.Store, key objectKey) (exists, wanted bool) {
	if store.Origin(key.uid) == coe.Kubernetes {
		pod := store.Pod(key.uid).Pod
		return true, pod == nil || !pod.NoNetwork
	}
	if key.namespace == "" {
		exists = store.EgressSpec(key.uid) != nil
		return exists, exists
	}
	n := store.Namespace(key.namespace)
	exists = n != nil && n.UID == key.uid
	return exists, exists
}
