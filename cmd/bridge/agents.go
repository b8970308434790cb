package bridge

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/northbound/entry"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	// nodeStreams is the kind of the nodes' streams.
	nodeStreams = "node-interfaces"
	podTraces   = "coe-status:pods/namespace/pod"
)

// agents says what the agent of a node may do: follow the stream of its address, read the
// traces of the pods on the node, and write pods on the node.
type agents struct {
	store *coe.Store
	// written is the revision of what RESTCONF clients wrote, which the store follows.
	written func() int64
	// most is the limit of interfaces of the pods that the agent of one node creates.
	most int
	// watched is set if Kubernetes creates the pods.
	watched bool
	// requestable reports whether the agent of a node may request an address for a pod
	// of a namespace.
	requestable func(node netip.Addr, namespace string, addr netip.Addr) bool
}

// DefaultAgentInterfaces is the limit of interfaces on a node for pods of its agent. It is
// kubelet's default limit of pods.
const DefaultAgentInterfaces = 110

var _ tree.Agents = agents{}

// MayFollow implements tree.Agents.
func (a agents) MayFollow(node, stream string) bool {
	address, is := strings.CutPrefix(stream, nodeStreams+"=")
	return is && a.has(node, address)
}

// MayRead implements tree.Agents.
func (a agents) MayRead(node string, list *yang.Node, keys []string) bool {
	if entry.ListName(list) != podTraces {
		return false
	}
	pod := a.store.Pod(keys[1]).Pod
	return pod != nil && pod.Namespace == keys[0] && (pod.NodeName == node || a.owns(node, pod.HostIP))
}

// MayWrite implements tree.Agents.
func (a agents) MayWrite(node string, pod *yang.Data) bool {
	return entry.ListName(pod.Node) == northbound.Pods && a.has(node, pod.Leaf("host-ip-address"))
}

// Admit implements tree.Agents. Addresses that rest after their pod count too, so
// that an agent that makes and deletes pods again and again takes no more from a pool
// than twice what it may have at once.
func (a agents) Admit(ctx context.Context, node string, entries []*yang.Data) error {
	if a.watched {
		return &tree.DeniedError{Message: fmt.Sprintf("the agent of node %s must not create pods: Kubernetes creates them; a user with the role writer can create others", node)}
	}
	if err := a.store.WaitRevision(ctx, a.written()); err != nil {
		return fmt.Errorf("count the pods of a node: %w", datastore.ErrUnavailable)
	}
	more := 0
	for _, entry := range entries {
		more += max(1, len(entry.All("interface")))
		if addr := a.unrequestable(entry); addr.IsValid() {
			return &tree.DeniedError{Message: fmt.Sprintf(
				"the agent of node %s must not request %s: neither a pool of the pod nor --pod-network contains the address; a user with the role writer can create this pod", node, addr)}
		}
	}
	use := a.use(node)
	interfaces := use.Interfaces + more
	if interfaces <= a.most && interfaces+use.Resting <= 2*a.most {
		return nil
	}
	return &tree.DeniedError{Full: true, Message: fmt.Sprintf(
		"the pods on node %s have %d interfaces, and %d addresses of deleted pods rest: with %d more that is above the %d that its agent can create (--agent-interfaces); delete pods, or create them as a user with the role writer",
		node, use.Interfaces, use.Resting, more, a.most)}
}

// unrequestable returns an address in an entry that the agent of its node must not request,
// or the zero Addr. Only a writer can request an address outside the pools of the pod.
func (a agents) unrequestable(entry *yang.Data) netip.Addr {
	node, _ := netip.ParseAddr(entry.Leaf("host-ip-address"))
	namespace := cmp.Or(entry.Leaf("network-NS"), coe.DefaultNamespace)
	for _, i := range entry.All("interface") {
		addr, err := netip.ParseAddr(i.Leaf("ip-address"))
		if err == nil && !a.requestable(node, namespace, addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// use is the use of the pods on a node, by all its addresses.
func (a agents) use(node string) (all coe.NodeUse) {
	named, _ := netip.ParseAddr(node)
	add := func(address netip.Addr) {
		u := a.store.NodeUse(address)
		all.Interfaces += u.Interfaces
		all.Resting += u.Resting
	}
	known := a.store.Nodes()
	for address, n := range known {
		if n.HostName == node {
			add(address)
		}
	}
	if known[named] == nil {
		add(named)
	}
	return all
}

func (a agents) has(node, address string) bool {
	parsed, err := netip.ParseAddr(address)
	return err == nil && a.owns(node, parsed)
}

// owns reports whether an address belongs to a node. An address that no known node has
// belongs to the agent with the address as its name.
func (a agents) owns(node string, address netip.Addr) bool {
	if known := a.store.Nodes()[address]; known != nil {
		return known.HostName == node
	}
	named, err := netip.ParseAddr(node)
	return err == nil && named == address
}
