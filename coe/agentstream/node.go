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
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// The records from which a node's own place in the network is computed.
const (
	nodeRecords    = "chosen/node/"
	networksRecord = "chosen/networks/"
)

// nodeChanged is the notification of a node's own place. nodeKey is its key on the node's
// stream; the keys of interfaces have a slash.
const (
	nodeChanged = "coe-agent:node-changed"
	nodeKey     = "node"
)

// nodes holds the records of nodes, and what their streams have.
type nodes struct {
	records  map[string][]byte // by the name of the record
	networks []byte
	told     map[string][]byte // content, by node; replaced, never changed
	changed  bool
	retold   bool // told was replaced, and tellExposed has not followed
	serve    bool // nodes may serve host ports
}

func newNodes() nodes { return nodes{records: map[string][]byte{}, told: map[string][]byte{}} }

// record applies one record, nil for none. It returns false for a record of another kind.
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

// tellNodes adds to changes the nodes whose own place has changed.
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
	n.told, n.retold = now, true
	return changes
}

// contents returns the notification of each node. If a record cannot be read, its node keeps
// the former content. ok is false if no content can be computed.
func (n *nodes) contents(cfg Config) (out map[string][]byte, ok bool) {
	out = map[string][]byte{}
	if n.networks == nil {
		return out, true
	}
	var networks coe.Networks
	if err := json.Unmarshal(n.networks, &networks); err != nil || !networks.Valid() {
		cfg.Log.Error("cannot read the networks; nodes keep their former place", "record", networksRecord, "err", err)
		return nil, false
	}
	n.serve = len(networks.HostPorts) > 0
	facts, last := map[string]coe.NodeFact{}, uint32(0)
	for name, value := range n.records {
		node := strings.TrimPrefix(name, nodeRecords)
		fact, err := decodeNodeFact(node, value)
		if err != nil {
			cfg.Log.Error("cannot read the record of a node; the node keeps its former place", "record", name, "err", err)
			if n.told[node] != nil {
				out[node] = n.told[node]
			}
			continue
		}
		facts[node] = fact
		if networks.Nodes.Has(fact.Number) {
			last = max(last, fact.Number)
		}
	}
	for node, fact := range facts {
		if place, ok := placeOf(fact, networks, last, cfg.MTU); ok {
			out[node], _ = json.Marshal(place) // addresses and strings always encode
		}
	}
	return out, true
}

func decodeNodeFact(node string, value []byte) (fact coe.NodeFact, err error) {
	if err = json.Unmarshal(value, &fact); err == nil && fact.Node.String() != node {
		err = fmt.Errorf("it is the record of node %s", fact.Node)
	}
	return fact, err
}

// place is the content of node-changed.
type place struct {
	Operation    string         `json:"operation"`
	Node         netip.Addr     `json:"node"`
	Isolated     bool           `json:"isolated,omitempty"`
	Name         string         `json:"name"`
	MAC          string         `json:"mac-address"`
	Address      netip.Addr     `json:"address"`
	Length       int            `json:"prefix-length,omitempty"`
	Gateway      netip.Addr     `json:"gateway,omitzero"`
	Service      netip.Addr     `json:"service-address,omitzero"`
	Edge         netip.Addr     `json:"edge-address,omitzero"`
	IPv6         placeIPv6      `json:"ipv6,omitzero"`
	WayOut       *wayOut        `json:"way-out,omitempty"`
	ServicesBy   string         `json:"services-by"`
	Pods         []netip.Prefix `json:"pod-network,omitempty"`
	Services     []netip.Prefix `json:"service-network,omitempty"`
	NoMasquerade []netip.Prefix `json:"no-masquerade,omitempty"`
	Gateways     []netip.Prefix `json:"gateway-network,omitempty"`
	MTU          uint16         `json:"mtu,omitempty"`

	HostPorts []coe.PortRange `json:"host-port-range,omitempty"`
}

// wayOut are the ports of a node in elan-instances, if pods leave by them.
type wayOut struct {
	Name string `json:"name"`
	MAC  string `json:"mac-address"`
}

// placeIPv6 are the IPv6 addresses of a place.
type placeIPv6 struct {
	Address netip.Addr `json:"address"`
	Length  int        `json:"prefix-length,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	Service netip.Addr `json:"service-address,omitzero"`
	Edge    netip.Addr `json:"edge-address,omitzero"`
}

// servicesBy returns what leads pods to services.
func servicesBy(n coe.Networks) string {
	if n.NodesBalance {
		return "node"
	}
	return "network"
}

// isolatedPlace returns the place of a node in isolated namespaces.
func isolatedPlace(f coe.NodeFact, n coe.Networks, mtu uint16) place {
	p := place{
		Operation: "put", Node: f.Node, Isolated: true, Name: netvirt.NodePortsName(f.Node), MAC: netvirt.NodePortMAC(f.Node),
		Address: f.Node, IPv6: placeIPv6{Address: nodenet.IsolatedIPv6(f.Node)}, ServicesBy: servicesBy(n), Pods: n.Pods, MTU: mtu,
	}
	if edge := n.IsolatedEdge(&f); edge.IsValid() {
		p.Edge, p.Gateway, p.Services, p.WayOut = edge, n.Nodes.Gateway(), n.Services, &wayOut{p.Name, p.MAC}
	}
	return p
}

// placeOf returns the place of a node. last is the highest number of a node. ok is false if it has no number of
// the range.
func placeOf(f coe.NodeFact, n coe.Networks, last uint32, mtu uint16) (p place, ok bool) {
	if n.Isolated {
		return isolatedPlace(f, n, mtu), true
	}
	var ipv6 placeIPv6
	if six := n.NodesIPv6; six.Has(f.Number) {
		ipv6 = placeIPv6{six.Address(f.Number), six.Bits(), six.Gateway(), six.ServiceAddress(f.Number), six.EdgeAddress(f.Number, last)}
	}
	var out *wayOut
	if n.NodesBalance {
		out = &wayOut{netvirt.NodePortsName(f.Node), netvirt.NodePortMAC(f.Node)}
	}
	return place{
		Operation: "put", Node: f.Node, IPv6: ipv6, WayOut: out, ServicesBy: servicesBy(n), Name: netvirt.ManagementPortName(f.Node), MAC: n.Nodes.MAC(f.Number),
		Address: n.Nodes.Address(f.Number), Length: n.Nodes.Bits(), Gateway: n.Nodes.Gateway(),
		Service: n.Nodes.ServiceAddress(f.Number), Edge: n.Nodes.EdgeAddress(f.Number, last), Pods: n.Routed(), Services: n.Services,
		NoMasquerade: n.NoMasquerade, Gateways: n.ByGateways(f.Node), MTU: mtu, HostPorts: n.HostPorts,
	}, n.Nodes.Has(f.Number)
}
