package bridge

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	// nodeStreams is the kind of the nodes' streams.
	nodeStreams = "node-interfaces"
	podTraces   = "coe-status:pods/namespace/pod"
)

// agents tells what is a node's own: the stream of its address, what is known of the
// pods on it, and the pods that RESTCONF clients say are on it.
type agents struct {
	store *coe.Store
	// written is the revision of what RESTCONF clients wrote, which the store follows.
	written func() int64
	// most is how many interfaces the pods may have that the agent of one node makes.
	most int
	// watched says that Kubernetes makes the pods.
	watched bool
	// requestable reports whether the agent of a node may request an address for a pod
	// of a namespace.
	requestable func(node netip.Addr, namespace string, addr netip.Addr) bool
}

// DefaultAgentInterfaces is how many interfaces the pods on a node may have for its agent
// to make more: kubelet runs as many pods by default.
const DefaultAgentInterfaces = 110

var _ restconf.Agents = agents{}

// MayFollow implements restconf.Agents.
func (a agents) MayFollow(node, stream string) bool {
	address, is := strings.CutPrefix(stream, nodeStreams+"=")
	return is && a.has(node, address)
}

// MayRead implements restconf.Agents.
func (a agents) MayRead(node string, list *yang.Node, keys []string) bool {
	if listName(list) != podTraces {
		return false
	}
	pod := a.store.Pod(keys[1]).Pod
	return pod != nil && pod.Namespace == keys[0] && (pod.NodeName == node || a.owns(node, pod.HostIP))
}

// MayWrite implements restconf.Agents.
func (a agents) MayWrite(node string, entry *yang.Data) bool {
	return listName(entry.Node) == northbound.Pods && a.has(node, entry.Leaf("host-ip-address"))
}

// Admit implements restconf.Agents. Addresses that rest after their pod count too, so
// that an agent that makes and deletes pods again and again takes no more from a pool
// than twice what it may have at once.
func (a agents) Admit(ctx context.Context, node string, entries []*yang.Data) error {
	if a.watched {
		return &restconf.AdmissionError{Says: fmt.Sprintf("the agent of node %s makes no pods here: Kubernetes does; a writer may make others", node)}
	}
	if err := a.catchUp(ctx); err != nil {
		return err
	}
	more := 0
	for _, entry := range entries {
		more += max(1, len(entry.All("interface")))
		if addr := a.unrequestable(entry); addr.IsValid() {
			return &restconf.AdmissionError{Says: fmt.Sprintf(
				"the agent of node %s may not request %s: no pool that serves the pod has it, nor --pod-network; a writer may make the pod", node, addr)}
		}
	}
	use := a.use(node)
	interfaces := use.Interfaces + more
	if interfaces <= a.most && interfaces+use.Resting <= 2*a.most {
		return nil
	}
	return &restconf.AdmissionError{Full: true, Says: fmt.Sprintf(
		"the pods on node %s have %d interfaces, and %d addresses of others rest: with %d more that is above the %d that its agent may make (--agent-interfaces); delete pods, or have a writer make them",
		node, use.Interfaces, use.Resting, more, a.most)}
}

// unrequestable is an address of an entry that its node's agent may not request: only a
// writer may name one outside the pools that serve the pod. It is zero where there is
// none.
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

// catchUp waits until the store has what was written before.
func (a agents) catchUp(ctx context.Context) error {
	revision := a.written()
	poll := time.NewTicker(heardPoll)
	defer poll.Stop()
	for a.store.Revision() < revision {
		select {
		case <-ctx.Done():
			return fmt.Errorf("count the pods of a node: %w", datastore.ErrUnavailable)
		case <-poll.C:
		}
	}
	return nil
}

// use is what the pods on a node use, by all its addresses.
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

// owns tells whether an address is a node's: it is that of the node which is known to
// have it. One that no node is known to have is that of the agent which is named by it.
func (a agents) owns(node string, address netip.Addr) bool {
	if known := a.store.Nodes()[address]; known != nil {
		return known.HostName == node
	}
	named, err := netip.ParseAddr(node)
	return err == nil && named == address
}
