package agentstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// ExposedRecords is the prefix of the records of the ports that services have on nodes, in the
// name space of all records. The name of the port follows: "exposed/tcp/30080".
const ExposedRecords = "exposed"

// The notifications about ports of services on nodes. An agent that does not know external addresses would
// take their ports for ports of the node, so these have a notification of their own; so have IPv6 addresses, ports to which
// nodes lead only their own programs, or only clients inside the cluster, and health checks.
const (
	exposedEvent = "coe-agent:exposed-port-changed"
	addressEvent = "coe-agent:exposed-address-changed"
	ipv6Event    = "coe-agent:exposed-ipv6-changed"
	ownEvent     = "coe-agent:own-port-changed"
	insideEvent  = "coe-agent:inside-port-changed"
	healthEvent  = "coe-agent:health-check-changed"
	nodesEvent   = "coe-agent:nodes-changed"
)

// The keys on the streams of nodes. Keys of interfaces begin with a UID.
const (
	exposedKey   = "exposed-port/" // the name of the port follows, with a prefix if nodes lead only some clients
	ownPrefix    = "own/"          // their own programs
	insidePrefix = "inside/"       // clients inside the cluster
	nodesKey     = "nodes"
)

// exposed holds the ports that services have on nodes. Every node with a place gets all of them,
// and the addresses of all nodes.
type exposed struct {
	ports map[string]*exposedPort // by name
	// former has the ports that have changed since the streams were updated; nil for a new one.
	former map[string]*exposedPort
	locals int               // how many ports are local
	told   map[string][]byte // the nodes whose streams have the ports, as keys
	nodes  []byte            // the content of nodes-changed that the streams have
}

func newExposed() exposed {
	return exposed{ports: map[string]*exposedPort{}, former: map[string]*exposedPort{}}
}

// exposedPort is the record of a port, with the contents of its notifications.
type exposedPort struct {
	local      bool
	everywhere []byte            // for all other nodes
	byNode     map[string][]byte // for nodes with endpoints of their own
	// shared is the port with the endpoints of all nodes, for programs of nodes, and inside for all clients inside the cluster; nil for none.
	// Each has a name of its own.
	shared, inside *exposedPort
}

// record applies one record, nil for none. It returns false for a record of another kind. A port
// whose record cannot be read stays as it was: the leader writes it again.
func (e *exposed) record(name string, value []byte, log *slog.Logger) bool {
	port, ok := strings.CutPrefix(name, ExposedRecords+"/")
	if !ok {
		return false
	}
	var now *exposedPort
	if value != nil {
		var err error
		if now, err = newExposedPort(port, value); err != nil {
			log.Error("cannot read the record of a node port; nodes keep its former content", "record", name, "err", err)
			return true
		}
	}
	e.put(ownPrefix+port, now.further().shared)
	e.put(insidePrefix+port, now.further().inside)
	e.put(port, now)
	return true
}

// put sets a port; nil deletes it.
func (e *exposed) put(name string, now *exposedPort) {
	was := e.ports[name]
	if was == nil && now == nil {
		return
	}
	if _, noted := e.former[name]; !noted {
		e.former[name] = was
	}
	e.locals += now.locals() - was.locals()
	if e.ports[name] = now; now == nil {
		delete(e.ports, name)
	}
}

func (p *exposedPort) locals() int {
	if p != nil && p.local {
		return 1
	}
	return 0
}

// further returns the port, whose further ports count; the zero value for none.
func (p *exposedPort) further() exposedPort {
	if p == nil {
		return exposedPort{}
	}
	return *p
}

// exposedContent is the content of exposed-port-changed, exposed-address-changed, exposed-ipv6-changed,
// own-port-changed and inside-port-changed.
type exposedContent struct {
	Operation   string            `json:"operation"`
	External    netip.Addr        `json:"external-address,omitzero"`
	Protocol    string            `json:"protocol"`
	Port        uint16            `json:"port"`
	Address     netip.Addr        `json:"cluster-address,omitzero"`
	ServicePort uint16            `json:"service-port,omitempty"`
	Restricted  bool              `json:"restricted,omitempty"`
	Sources     []netip.Prefix    `json:"source-range,omitempty"`
	Local       bool              `json:"local,omitempty"`
	Refuses     bool              `json:"refuses,omitempty"`
	Affinity    uint32            `json:"affinity,omitempty"` // seconds
	Every       bool              `json:"every,omitempty"`
	Endpoints   []exposedEndpoint `json:"endpoint,omitempty"`
}

type exposedEndpoint struct {
	IP   netip.Addr `json:"ip"`
	Port uint16     `json:"port"`
	Node netip.Addr `json:"node,omitzero"` // only if shared, or inside
}

func newExposedPort(name string, value []byte) (*exposedPort, error) {
	var record coe.ExposedPort
	if err := json.Unmarshal(value, &record); err != nil {
		return nil, err
	}
	switch {
	case record.Name() != name:
		return nil, fmt.Errorf("it is the record of %s", record.Name())
	case record.Port == 0 || record.Health == nil && !record.To.IsValid():
		return nil, errors.New("the port or the address of the service is missing")
	case record.Health != nil:
		return newHealthCheck(&record), nil
	}
	content := exposedContent{
		Operation: "put", External: record.Address, Protocol: record.Protocol, Port: record.Port, Address: record.To.Addr(), ServicePort: record.To.Port(),
		Restricted: record.Restricted, Sources: record.Sources, Local: record.Local, Refuses: record.Refuses, Affinity: record.Affinity,
	}
	content.Endpoints = endpointsOf(record.Direct)
	p := &exposedPort{local: record.Local && !record.Own, everywhere: encodeExposed(content), byNode: map[string][]byte{}}
	for node, endpoints := range record.Endpoints {
		here := content
		here.Endpoints = endpointsOf(endpoints)
		p.byNode[node.String()] = encodeExposed(here)
	}
	if record.Shared {
		p.shared = newShared(&record, content)
	}
	if len(record.Inside) > 0 {
		p.inside = newInside(&record, content)
	}
	return p, nil
}

func endpointsOf(list []netip.AddrPort) (all []exposedEndpoint) {
	for _, at := range list {
		all = append(all, exposedEndpoint{IP: at.Addr(), Port: at.Port()})
	}
	return all
}

// newShared returns the port for programs of nodes, with the endpoints of the nodes whose address has the family of the
// port; nil if there are none. The content is the same for all nodes.
func newShared(record *coe.ExposedPort, content exposedContent) *exposedPort {
	content.Local, content.Refuses, content.Every, content.Endpoints = false, false, record.Every, nil
	for _, node := range slices.SortedFunc(maps.Keys(record.Endpoints), netip.Addr.Compare) {
		for _, at := range record.Endpoints[node] {
			if node.Is4() == at.Addr().Is4() {
				content.Endpoints = append(content.Endpoints, exposedEndpoint{at.Addr(), at.Port(), node})
			}
		}
	}
	if content.Endpoints == nil {
		return nil
	}
	return &exposedPort{everywhere: encodeExposed(content)}
}

// newInside returns the port for clients inside the cluster. The content is the same for all nodes.
func newInside(record *coe.ExposedPort, content exposedContent) *exposedPort {
	content.Local, content.Refuses, content.Endpoints = false, false, nil
	for _, e := range record.Inside {
		content.Endpoints = append(content.Endpoints, exposedEndpoint{e.At.Addr(), e.At.Port(), e.Node})
	}
	return &exposedPort{everywhere: encodeExposed(content)}
}

// healthContent is the content of health-check-changed.
type healthContent struct {
	Operation string `json:"operation"`
	Port      uint16 `json:"port"`
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Endpoints int    `json:"local-endpoints"`
}

func newHealthCheck(record *coe.ExposedPort) *exposedPort {
	content := healthContent{Operation: "put", Port: record.Port, Namespace: record.Namespace, Service: record.Health.Service}
	p := &exposedPort{everywhere: encodeExposed(content), byNode: map[string][]byte{}}
	for node, ready := range record.Health.Ready {
		here := content
		here.Endpoints = ready
		p.byNode[node.String()] = encodeExposed(here)
	}
	return p
}

func encodeExposed(c any) []byte {
	content, _ := json.Marshal(c) // addresses and strings always encode
	return content
}

// on returns the content for a node; nil if there is no such port.
func (p *exposedPort) on(node string) []byte {
	if p == nil {
		return nil
	}
	if here := p.byNode[node]; here != nil {
		return here
	}
	return p.everywhere
}

// tellExposed adds to changes the ports that have changed for nodes with a place, all ports for nodes
// that have got one, and the end of all ports for nodes that have lost it. It follows tellNodes.
func (h *Hub) tellExposed(changes []stream.Change) []stream.Change {
	e, n := &h.exposed, &h.nodes
	if len(e.former) == 0 && !n.retold {
		return changes
	}
	n.retold = false
	nodes := e.addresses(n.told, n.serve)
	changed := sortedKeys(e.former, nil)
	all := sync.OnceValue(func() []string { return sortedKeys(e.ports, e.former) })
	for _, node := range sortedKeys(n.told, e.told) {
		had, has := e.told[node] != nil, n.told[node] != nil
		changes = appendChange(changes, stream.Change{Stream: node, Key: nodesKey, Name: nodesEvent}, when(had, e.nodes), when(has, nodes), noNodes)
		names := changed
		if had != has {
			names = all()
		}
		for _, name := range names {
			was, now := when(had, e.before(name).on(node)), when(has, e.ports[name].on(node))
			changes = appendChange(changes, stream.Change{Stream: node, Key: exposedKey + name, Name: eventOf(name)}, was, now, encodeExposedDeleted(name))
		}
	}
	clear(e.former)
	e.told, e.nodes = n.told, nodes
	return changes
}

// before returns the port that the streams have.
func (e *exposed) before(name string) *exposedPort {
	if p, changed := e.former[name]; changed {
		return p
	}
	return e.ports[name]
}

// addresses returns the content of nodes-changed: the addresses of all nodes. It is nil if no port is local
// and nodes serve no host ports, because they count for no other.
func (e *exposed) addresses(nodes map[string][]byte, hostPorts bool) []byte {
	if e.locals == 0 && !hostPorts {
		return nil
	}
	content, _ := json.Marshal(map[string][]string{"node": sortedKeys(nodes, nil)}) // strings always encode
	return content
}

// noNodes is the content of nodes-changed while the addresses count for no port.
var noNodes = []byte(`{"node":[]}`)

// when returns a content if is is true, and nil otherwise.
func when(is bool, content []byte) []byte {
	if is {
		return content
	}
	return nil
}

// appendChange completes a change from one content to another, nil for none, and appends it unless
// they are equal.
func appendChange(changes []stream.Change, c stream.Change, was, now, deleted []byte) []stream.Change {
	switch {
	case bytes.Equal(was, now):
		return changes
	case now == nil:
		c.Content, c.Gone = deleted, true
	default:
		c.Content = now
	}
	return append(changes, c)
}

// sortedKeys returns the keys of both maps.
func sortedKeys[T any](a, b map[string]T) []string {
	all := slices.Collect(maps.Keys(a))
	all = slices.AppendSeq(all, maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

// eventOf returns the notification about the port of a name.
func eventOf(name string) string {
	switch {
	case strings.HasPrefix(name, ownPrefix):
		return ownEvent
	case strings.HasPrefix(name, insidePrefix):
		return insideEvent
	case strings.HasPrefix(name, "health/"):
		return healthEvent
	case strings.Contains(name, ":"):
		return ipv6Event
	case strings.Count(name, "/") > 1:
		return addressEvent
	}
	return exposedEvent
}

// encodeExposedDeleted returns the notification that a port was deleted.
func encodeExposedDeleted(name string) []byte {
	protocol, number, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, ownPrefix), insidePrefix), "/")
	number, address, external := strings.Cut(number, "/")
	switch {
	case protocol == "health":
		return fmt.Appendf(nil, `{"operation":"deleted","port":%s}`, number)
	case external:
		return fmt.Appendf(nil, `{"operation":"deleted","external-address":%q,"protocol":%q,"port":%s}`, address, protocol, number)
	}
	return fmt.Appendf(nil, `{"operation":"deleted","protocol":%q,"port":%s}`, protocol, number)
}
