package bridge

import (
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	// nodeStreams is the kind of the nodes' streams.
	nodeStreams = "node-interfaces"
	podTraces   = "coe-status:pods/namespace/pod"
)

// agents tells what is a node's own: the stream of its address, what is known of the
// pods on it, and the pods that RESTCONF clients say are on it.
type agents struct{ store *coe.Store }

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
