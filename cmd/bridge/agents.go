package bridge

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/northbound/entry"
	"github.com/coe-bridge/coe-bridge/coe/state"
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
// traces of the pods on the node, write pods on the node, and read and replace its chassis.
type agents struct {
	store *state.Store
	// written is the revision of what RESTCONF clients wrote, which the store follows.
	written func() int64
	// most is the limit of interfaces of the pods that the agent of one node creates.
	most int
	// watched is set if Kubernetes creates the pods.
	watched bool
	// requestable reports whether the agent of a node may request an address for a pod
	// of a namespace.
	requestable func(node netip.Addr, namespace string, addr netip.Addr) bool
	chassis     *chassisPace
}

// chassisInterval is the shortest time between two attempts to change the chassis of a node at a replica: ovn-northd computes the network
// again for each. An attempt without an answer counts, because it can have been made.
const chassisInterval = 10 * time.Second

// chassisPace has the times at which agents tried to replace chassis, by the name of the node.
type chassisPace struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newChassisPace() *chassisPace { return &chassisPace{last: map[string]time.Time{}} }

// admit reports why a chassis cannot be replaced now; nil if it can.
func (p *chassisPace) admit(node string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.last[node]) >= chassisInterval {
		p.last[node] = now
		return nil
	}
	return &tree.DeniedError{Message: fmt.Sprintf("the agent of node %s has tried to report a chassis less than %s ago: report it again later", node, chassisInterval)}
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
	switch entry.ListName(list) {
	case northbound.Chassis:
		return a.has(node, keys[0])
	case podTraces:
	default:
		return false
	}
	pod := a.store.Pod(keys[1]).Pod
	return pod != nil && pod.Namespace == keys[0] && (pod.NodeName == node || a.owns(node, pod.HostIP))
}

// MayWrite implements tree.Agents.
func (a agents) MayWrite(node string, op tree.Op, e *yang.Data) bool {
	switch entry.ListName(e.Node) {
	case northbound.Pods:
		return op != tree.Replace && a.has(node, e.Leaf("host-ip-address"))
	case northbound.Chassis:
		return op == tree.Replace && a.has(node, e.Leaf("address"))
	}
	return false
}

// Admit implements tree.Agents.
func (a agents) Admit(ctx context.Context, node string, entries []*yang.Data) error {
	pods := slices.DeleteFunc(slices.Clone(entries), func(e *yang.Data) bool { return entry.ListName(e.Node) == northbound.Chassis })
	if len(pods) < len(entries) {
		if err := a.chassis.admit(node); err != nil {
			return err
		}
	}
	if len(pods) == 0 {
		return nil
	}
	return a.admitPods(ctx, node, pods)
}

// admitPods is Admit for pods. Addresses that rest after their pod count too, so
// that an agent that makes and deletes pods again and again takes no more from a pool
// than twice what it may have at once.
func (a agents) admitPods(ctx context.Context, node string, entries []*yang.Data) error {
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
func (a agents) use(node string) (all state.NodeUse) {
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
