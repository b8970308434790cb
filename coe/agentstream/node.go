package agentstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// The records of which a node's own place in the network is made.
const (
	nodeRecords    = "chosen/node/"
	networksRecord = "chosen/networks/"
)

// nodeChanged tells an agent of its node's own place; nodeKey is its key on the
// node's stream, where all others have a slash.
const (
	nodeChanged = "coe-agent:node-changed"
	nodeKey     = "node"
)

// nodes are the records of nodes, and what is told of them.
type nodes struct {
	records  map[string][]byte // by the name of the record
	networks []byte
	told     map[string][]byte // content, by node
	changed  bool
}

func newNodes() nodes { return nodes{records: map[string][]byte{}, told: map[string][]byte{}} }

// record takes one record, nil for none; false where it is of no node.
func (n *nodes) record(name string, value []byte) bool {
	switch {
	case name == networksRecord:
		n.networks = value
	case !strings.HasPrefix(name, nodeRecords):
		return false
	case value == nil:
		delete(n.records, name)
	default:
		n.records[name] = value
	}
	n.changed = true
	return true
}

// tellNodes adds what is new of nodes' own places to changes.
func (h *Hub) tellNodes(changes []stream.Change) []stream.Change {
	n := &h.nodes
	if !n.changed {
		return changes
	}
	n.changed = false
	now, ok := n.contents(h.cfg)
	if !ok {
		return changes
	}
	for _, node := range slices.Sorted(maps.Keys(n.told)) {
		if now[node] == nil {
			content := fmt.Appendf(nil, `{"operation":"deleted","node":%q}`, node)
			changes = append(changes, stream.Change{Stream: node, Key: nodeKey, Name: nodeChanged, Content: content, Gone: true})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(now[node], n.told[node]) {
			changes = append(changes, stream.Change{Stream: node, Key: nodeKey, Name: nodeChanged, Content: now[node]})
		}
	}
	n.told = now
	return changes
}

// contents is what is to be told of each node. A record that can't be read is left out,
// and its node keeps what it was told. It is false where no node can be told anything.
func (n *nodes) contents(cfg Config) (out map[string][]byte, ok bool) {
	out = map[string][]byte{}
	if n.networks == nil {
		return out, true
	}
	var networks coe.Networks
	if err := json.Unmarshal(n.networks, &networks); err != nil || networks.Nodes.Numbers() == 0 {
		cfg.Log.Error("networks can't be read, nodes are told nothing new", "record", networksRecord, "err", err)
		return nil, false
	}
	for name, value := range n.records {
		var fact coe.NodeFact
		var content []byte
		node := strings.TrimPrefix(name, nodeRecords)
		err := json.Unmarshal(value, &fact)
		if err == nil && fact.Node.String() != node {
			err = fmt.Errorf("it is that of %s", fact.Node)
		}
		if err == nil && fact.Number != 0 { // a node without a number has no management port
			content, err = json.Marshal(placeOf(fact, networks, cfg.MTU))
		}
		if err != nil {
			cfg.Log.Error("node's place can't be read, the node keeps what it was told", "record", name, "err", err)
			content = n.told[node]
		}
		if content != nil {
			out[node] = content
		}
	}
	return out, true
}

// place is a node's own place in the network, as the notification has it.
type place struct {
	Operation string         `json:"operation"`
	Node      netip.Addr     `json:"node"`
	Name      string         `json:"name"`
	MAC       string         `json:"mac-address"`
	Address   netip.Addr     `json:"address"`
	Length    int            `json:"prefix-length"`
	Gateway   netip.Addr     `json:"gateway"`
	Service   netip.Addr     `json:"service-address"`
	Pods      []netip.Prefix `json:"pod-network,omitempty"`
	Services  []netip.Prefix `json:"service-network,omitempty"`
	MTU       uint16         `json:"mtu,omitempty"`
}

func placeOf(f coe.NodeFact, n coe.Networks, mtu uint16) place {
	return place{
		Operation: "put", Node: f.Node, Name: netvirt.ManagementPortName(f.Node), MAC: n.Nodes.MAC(f.Number),
		Address: n.Nodes.Address(f.Number), Length: n.Nodes.Bits(), Gateway: n.Nodes.Gateway(),
		Service: n.Nodes.ServiceAddress(f.Number), Pods: n.Pods, Services: n.Services, MTU: mtu,
	}
}
