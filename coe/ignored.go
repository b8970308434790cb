package coe

import "strings"

// Ignored is a set of settings of an object that the bridge does not enforce. The set has a
// fixed size, so that a tenant cannot make it larger. Every member becomes part of a
// NotEnforced Problem.
type Ignored uint16

// The settings. ignoredTexts has a text for each, in the same order.
const (
	HostPort            Ignored = 1 << iota // pod: spec.containers[].ports[].hostPort, where nodes do not serve it
	Bandwidth                               // pod: the bandwidth annotations of Kubernetes
	NetworkID                               // pod: network-id of an interface (RESTCONF)
	NodePort                                // service: a node port, where nodes answer on none
	ExternalAddress                         // service: an external address, where nodes do not lead to it
	ExternalPolicyLocal                     // service: spec.externalTrafficPolicy Local, where nodes answer on no port of it
	InternalPolicyLocal                     // service: spec.internalTrafficPolicy Local, where the backend cannot do it
	SourceRanges                            // service: spec.loadBalancerSourceRanges, where nodes do not lead to load balancer addresses
	Topology                                // service: spec.trafficDistribution or topology-mode, where the backend cannot do it
	UnknownAnnotation                       // any object: an annotation with AnnotationPrefix
	PolicyLogValue                          // namespace: PolicyLogAnnotation
	HealthCheck                             // service: spec.healthCheckNodePort, where nodes answer on none
	DHCPValue                               // pod: DHCPAnnotation
)

// AnnotationPrefix is the prefix of the annotations that belong to the bridge.
const AnnotationPrefix = "coe-bridge.io/"

// DHCPAnnotation is the annotation by which a pod asks for DHCP; its value is "true".
const DHCPAnnotation = AnnotationPrefix + "dhcp"

var ignoredTexts = [...]string{
	"hostPort is not served: it needs --host-ports, --node-network, and --isolation none",
	"bandwidth annotations have no effect",
	"network-id of an interface has no effect: the namespace and the node decide on the network",
	"node ports are not served: they need --node-ports, a cluster IP of a family of --node-network, and --isolation none",
	"external addresses answer only pods, and none on OpenDaylight: others need ports, a cluster IP of the family, and what node ports need",
	"externalTrafficPolicy Local has no effect: every endpoint serves",
	"internalTrafficPolicy Local has no effect: endpoints on all nodes serve",
	"loadBalancerSourceRanges are not enforced: every source is let in",
	"trafficDistribution and topology-mode have no effect: endpoints in all zones serve",
	"an annotation that begins with " + AnnotationPrefix + " is unknown and has no effect: correct or remove it",
	"the annotation " + PolicyLogAnnotation + " has an unknown value and no effect: set it to " + string(LogDropped) + " or " + string(LogAll),
	"healthCheckNodePort is not served: it needs what node ports need",
	"the annotation " + DHCPAnnotation + ` has an unknown value and no effect: set it to "true"`,
}

// String returns the texts of the members. It does not allocate for a single member.
func (i Ignored) String() string {
	var texts []string
	for n, text := range ignoredTexts {
		switch flag := Ignored(1) << n; {
		case i == flag:
			return text
		case i&flag != 0:
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}
