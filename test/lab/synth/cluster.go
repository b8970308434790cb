package synth

import (
	"fmt"
	"strings"
)

// Cluster is a cluster as RESTCONF clients tell of it: pods by number, spread
// over its nodes and namespaces in turn.
type Cluster struct {
	Nodes, Namespaces int
}

// The containers that the bodies are of, as a path below a config tree.
const (
	PoolsPath = "dhcp_allocation_pool:dhcp_allocation_pool"
	NodesPath = "k8s-node:k8s-nodes-info"
	PodsPath  = "pod:coe"
)

// Pools is the body that tells of one pool, 10.0.0.0/8, for all pods.
func (Cluster) Pools() string {
	return `{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.0.0.0/8"}]}]}`
}

// NodesBody is the body that tells of all nodes.
func (c Cluster) NodesBody() string {
	nodes := make([]string, 0, c.Nodes)
	for n := range c.Nodes {
		nodes = append(nodes, fmt.Sprintf(`{"uid":"00000000-0000-4000-9000-%012d","host-name":"%s","internal-ip-address":"%s"}`,
			n, nodeName(n), NodeAddress(n)))
	}
	return `{"k8s-nodes":[` + strings.Join(nodes, ",") + `]}`
}

// PodsBody is the body that tells of the pods from one number up to another.
func (c Cluster) PodsBody(from, to int) string {
	pods := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		pods = append(pods, fmt.Sprintf(`{"uid":"%s","name":"%s","network-NS":"%s","host-ip-address":"%s",`+
			`"interface":[{"uid":"00000000-0000-4000-a000-%012d","network-type":"VXLAN","segmentation-id":70000}]}`,
			PodUID(i), PodName(i), c.Namespace(i), NodeAddress(i/c.Namespaces%c.Nodes), i))
	}
	return `{"pods":[` + strings.Join(pods, ",") + `]}`
}

// PodPath is the path of a pod below a config tree.
func (Cluster) PodPath(i int) string { return PodsPath + "/pods/" + PodUID(i) }

// Namespace is the namespace of the i-th pod.
func (c Cluster) Namespace(i int) string { return fmt.Sprintf("ns%d", i%c.Namespaces) }
