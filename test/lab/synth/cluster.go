package synth

import (
	"fmt"
	"strings"
)

// Cluster is a cluster for RESTCONF clients. Its pods have numbers, and are distributed over its nodes and
// namespaces.
type Cluster struct {
	Nodes, Namespaces int
}

// The paths of the bodies' containers below a config tree.
const (
	PoolsPath = "dhcp_allocation_pool:dhcp_allocation_pool"
	NodesPath = "k8s-node:k8s-nodes-info"
	PodsPath  = "pod:coe"
)

// Pools is the body with one pool, 10.0.0.0/8, for all pods.
func (Cluster) Pools() string {
	return `{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.0.0.0/8"}]}]}`
}

// NodesBody returns the body with all nodes.
func (c Cluster) NodesBody() string {
	nodes := make([]string, 0, c.Nodes)
	for n := range c.Nodes {
		nodes = append(nodes, fmt.Sprintf(`{"uid":"00000000-0000-4000-9000-%012d","host-name":"%s","internal-ip-address":"%s"}`,
			n, nodeName(n), NodeAddress(n)))
	}
	return `{"k8s-nodes":[` + strings.Join(nodes, ",") + `]}`
}

// PodsBody returns the body with the pods with a range of numbers.
func (c Cluster) PodsBody(from, to int) string {
	pods := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		pods = append(pods, fmt.Sprintf(`{"uid":"%s","name":"%s","network-NS":"%s","host-ip-address":"%s",`+
			`"interface":[{"uid":"00000000-0000-4000-a000-%012d","network-type":"VXLAN","segmentation-id":70000}]}`,
			PodUID(i), PodName(i), c.Namespace(i), NodeAddress(i/c.Namespaces%c.Nodes), i))
	}
	return `{"pods":[` + strings.Join(pods, ",") + `]}`
}

// PodPath returns the path of a pod below a config tree.
func (Cluster) PodPath(i int) string { return PodsPath + "/pods/" + PodUID(i) }

// Namespace returns the namespace of the i-th pod.
func (c Cluster) Namespace(i int) string { return fmt.Sprintf("ns%d", i%c.Namespaces) }
