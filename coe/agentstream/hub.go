// Package agentstream publishes to the agents of nodes what was chosen for their pods'
// interfaces: for each node a stream of complete records, one per interface
// (docs/architecture.md, rule 10).
//
// It reads the records that the leader keeps: the leases, the confirmations of the backend
// (Confirmation), the ports of services on nodes (coe.ExposedPort), and egress addresses. Every replica reads them, so
// every replica serves the streams of all nodes. The package does not know where records are stored or
// how streams reach their followers.
package agentstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// The prefixes of the records that the Hub reads, in the name space of all records. The pod
// UID and the interface UID follow.
const (
	leaseRecords        = "chosen/lease/"
	confirmationRecords = "confirmed/"
	networkRecord       = confirmationRecords + NetworkRecord
	// adoptingRecord exists while a leader writes leases for the interfaces in the backend.
	adoptingRecord = "chosen/adopting/"
)

// format is the form of the contents on nodes' streams. Increase it with every change of what a record becomes
// there: replicas of two versions then never continue each other's streams, so no agent keeps a content of the other.
const format = "22"

// CompleteRecord exists once a leader has listed every source and has claimed addresses for
// all of it. Its value is the identity of the datastore: a backup that is restored with a new
// identity is not complete. It is a name in the name space of all records.
const CompleteRecord = "complete/sources"

// HistoryRecord is the record of the datastore's history (see stream.Log.Turn), in the name
// space of all records.
const HistoryRecord = "history"

// The notifications of coe-agent.
const (
	changedEvent  = "coe-agent:interface-changed"
	networkEvent  = "coe-agent:network-changed"
	beginEvent    = "coe-agent:snapshot-begin"
	completeEvent = "coe-agent:snapshot-complete"
)

// Config configures a Hub.
type Config struct {
	// Identity is the identity of the datastore whose revisions the batches have.
	Identity string
	// MTU is the MTU in the record of every interface; 0 leaves it out.
	MTU uint16
	// DHCPLeaseTime is the lease time of interfaces with DHCP, in seconds.
	DHCPLeaseTime uint32
	// Physical are the physical networks of namespaces, whose machines are directly connected to the interfaces.
	Physical physical.Networks
	// Lost is Lost of stream.Config.
	Lost func(node string, revision int64)
	Log  *slog.Logger
}

// Batch is the change of one revision to the records of all prefixes.
type Batch struct {
	Revision int64
	// Snapshot means that Put has all records.
	Snapshot bool
	Put      map[string][]byte
	Delete   []string
}

// Hub keeps the record of every interface, and the streams of the nodes. Its methods may be
// called concurrently.
type Hub struct {
	cfg     Config
	streams *stream.Log

	mu         sync.Mutex
	known      bool              // a snapshot was applied
	told       bool              // the streams have the current records; see complete
	interfaces map[string]*iface // by "pod-uid/interface-uid"
	nodes      nodes
	exposed    exposed
	egress     egressRecords
	network    network
	history    []byte // not yet in the streams
	adopting   bool
	listed     bool // CompleteRecord has the identity of the datastore
}

// network is the record of the Network. Every node with an interface gets it.
type network struct {
	content []byte
	told    map[string]bool // by node: whether its stream has it
}

// networkKey is the key of the Network on nodes' streams. Keys of interfaces have a slash.
const networkKey = "network"

var _ stream.Source = (*Hub)(nil)

// iface is the state of one interface.
type iface struct {
	node string // the node whose stream has it; empty without an active lease
	// content is the object last sent to followers. Its first leaseLen bytes depend on
	// the lease only.
	content  []byte
	leaseLen int
	// want is the confirmation that counts for the lease; got is the recorded one.
	want, got digest
	// at and revision are when the current lease was confirmed.
	at       time.Time
	revision int64
}

func (i *iface) confirmed() bool { return i.node != "" && i.got == i.want }

// New returns an empty Hub. Followers wait for the first snapshot.
func New(cfg Config) *Hub {
	return &Hub{
		cfg:        cfg,
		streams:    stream.NewLog(stream.Config{Identity: cfg.Identity, Format: format, Begin: beginEvent, Complete: completeEvent, Lost: cfg.Lost}),
		interfaces: map[string]*iface{},
		nodes:      newNodes(),
		exposed:    newExposed(),
	}
}

// Apply applies the change of one revision. Revisions must ascend, and Apply must not be
// called concurrently.
func (h *Hub) Apply(b Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Snapshot {
		h.known, h.told = true, false
		h.interfaces = map[string]*iface{}
		h.nodes, h.exposed, h.network = newNodes(), newExposed(), network{}
		h.egress = egressRecords{}
		h.adopting, h.listed = false, false
	}
	before := map[string]iface{}
	for name, value := range b.Put {
		h.record(before, name, value)
	}
	for _, name := range b.Delete {
		h.record(before, name, nil)
	}
	var changes []stream.Change
	for _, key := range slices.Sorted(maps.Keys(before)) {
		changes = h.update(changes, key, before[key], b.Revision)
	}
	h.tell(b.Revision, changes)
}

// complete reports whether the records may be sent: a node removes what its snapshot lacks. A
// datastore that was lost gets its records back one by one, so nodes get nothing until the
// leader has listed every source, nor while it adopts the interfaces in the backend.
func (h *Hub) complete() bool { return h.listed && !h.adopting }

// tell updates the streams: by the changes of a revision, or by all records.
func (h *Hub) tell(revision int64, changes []stream.Change) {
	if !h.complete() {
		h.told = false
		h.streams.Forget()
		return
	}
	if h.history != nil {
		h.streams.Turn(revision, string(h.history))
		h.history = nil
	}
	if h.told {
		h.streams.Apply(revision, h.tellNetwork(h.tellEgress(h.tellExposed(h.tellNodes(changes))), false))
		return
	}
	h.told, h.network.told, h.exposed.told = true, nil, nil
	h.nodes.told, h.nodes.changed = map[string][]byte{}, true
	h.egress.told, h.egress.changed = nil, true
	h.streams.Reset(revision, h.tellNetwork(h.tellEgress(h.tellExposed(h.tellNodes(h.all()))), true))
}

// all returns the content of every interface as changes.
func (h *Hub) all() (changes []stream.Change) {
	for _, key := range slices.Sorted(maps.Keys(h.interfaces)) {
		if i := h.interfaces[key]; i.node != "" {
			changes = append(changes, stream.Change{Stream: i.node, Key: key, Name: changedEvent, Content: i.content})
		}
	}
	return changes
}

// record applies one record, nil for none, and saves the former state of its interface in
// before.
func (h *Hub) record(before map[string]iface, name string, value []byte) {
	switch name {
	case HistoryRecord:
		h.history = value
	case adoptingRecord:
		h.adopting = value != nil
	case CompleteRecord:
		// The record is deleted when the datastore is emptied.
		h.listed = value != nil && string(value) == h.cfg.Identity
	}
	if name == networkRecord {
		h.network = network{content: value}
		if value != nil && !jsontext.Value(value).IsValid() {
			h.network.content = nil // the leader will write it again
			h.cfg.Log.Error("cannot read the record of the network; nodes do not get it", "record", name)
		}
	}
	if name == networkRecord || h.recordOfNodes(name, value) {
		return
	}
	lease := strings.HasPrefix(name, leaseRecords)
	if !lease && !strings.HasPrefix(name, confirmationRecords) {
		return // not a record of an interface
	}
	key := strings.TrimPrefix(strings.TrimPrefix(name, leaseRecords), confirmationRecords)
	i := h.interfaces[key]
	if i == nil {
		i = &iface{}
		h.interfaces[key] = i
	}
	if _, noted := before[key]; !noted {
		before[key] = *i
	}
	if lease {
		h.lease(i, key, value)
	} else {
		i.got = digestOf(value)
	}
}

// recordOfNodes applies a record about nodes themselves. It returns false for a record of another kind.
func (h *Hub) recordOfNodes(name string, value []byte) bool {
	return h.nodes.record(name, value) || h.exposed.record(name, value, h.cfg.Log) || h.egress.record(name, value)
}

// tellNetwork adds to changes the network for nodes that need it: all if it has changed,
// otherwise those with a first interface.
func (h *Hub) tellNetwork(changes []stream.Change, snapshot bool) []stream.Change {
	n := &h.network
	if n.content == nil {
		return changes
	}
	var nodes []string
	if n.told == nil {
		n.told = map[string]bool{}
		if !snapshot {
			nodes = h.streams.Streams()
		}
	}
	for _, c := range changes {
		if !c.Gone {
			nodes = append(nodes, c.Stream)
		}
	}
	for _, node := range nodes {
		if !n.told[node] {
			n.told[node] = true
			changes = append(changes, stream.Change{Stream: node, Key: networkKey, Name: networkEvent, Content: n.content})
		}
	}
	return changes
}

// lease applies the lease of an interface, nil for none.
func (h *Hub) lease(i *iface, key string, value []byte) {
	*i = iface{got: i.got}
	if value == nil {
		return
	}
	l, err := decodeLease(key, value)
	if err == nil && l.Released == 0 {
		i.want = digestOf(ConfirmationOf(l).Encode())
		i.content, err = h.cfg.encode(l)
		i.leaseLen, i.node = len(i.content), l.Node.String()
	}
	if err != nil {
		*i = iface{got: i.got}
		h.cfg.Log.Error("cannot read a lease; its node does not get it", "record", leaseRecords+key, "err", err)
	}
}

func decodeLease(key string, value []byte) (*coe.Lease, error) {
	l := &coe.Lease{}
	err := json.Unmarshal(value, l)
	switch {
	case err != nil:
		return nil, err
	case RecordName(l.Key()) != key:
		return nil, fmt.Errorf("it is the lease of %s", RecordName(l.Key()))
	case !l.Node.IsValid():
		return nil, errors.New("the node is missing")
	}
	return l, nil
}

// update completes the content of an interface after a batch, and appends its changes.
func (h *Hub) update(changes []stream.Change, key string, old iface, revision int64) []stream.Change {
	i := h.interfaces[key]
	if i.node != "" {
		i.content = confirm(i.content[:i.leaseLen], i.confirmed())
	}
	i.since(old, revision)
	if old.node != "" && old.node != i.node {
		changes = append(changes, stream.Change{Stream: old.node, Key: key, Name: changedEvent, Content: encodeDeleted(key), Gone: true})
	}
	switch {
	case i.node == "" && i.got == digest{}:
		delete(h.interfaces, key)
	case i.node != "" && (i.node != old.node || !bytes.Equal(i.content, old.content)):
		changes = append(changes, stream.Change{Stream: i.node, Key: key, Name: changedEvent, Content: i.content})
	}
	return changes
}

// since sets the time of the confirmation.
func (i *iface) since(old iface, revision int64) {
	switch {
	case !i.confirmed():
		i.at, i.revision = time.Time{}, 0
	case old.confirmed() && old.want == i.want:
		i.at, i.revision = old.at, old.revision
	default:
		i.at, i.revision = time.Now(), revision
	}
}

// Confirmed reports whether the current lease of an interface is confirmed, since which
// revision, and when this process received the confirmation.
func (h *Hub) Confirmed(key coe.LeaseKey) (at time.Time, revision int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[RecordName(key)]
	if i == nil || !i.confirmed() {
		return time.Time{}, 0, false
	}
	return i.at, i.revision, true
}

// Settle calls Settle of stream.Log.
func (h *Hub) Settle(ctx context.Context, current func(context.Context) (string, error)) {
	h.streams.Settle(ctx, current)
}

// Known reports whether the Hub has applied a snapshot. Before that, Tree, Count and
// Confirmed do not cover the datastore.
func (h *Hub) Known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known
}

// Count returns the number of confirmed interfaces.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, i := range h.interfaces {
		if i.confirmed() {
			n++
		}
	}
	return n
}

// Keys implements stream.Source. It returns the nodes that have a stream with content.
func (h *Hub) Keys() []string { return h.streams.Streams() }

// Open implements stream.Source. The key is the address of a node.
func (h *Hub) Open(key, after string) (stream.Subscription, bool) {
	node, err := netip.ParseAddr(key)
	if err != nil {
		return nil, false
	}
	return h.streams.Open(node.String(), after), true
}

// Tree returns the container coe-agent:interfaces as JSON; nil if it is empty.
func (h *Hub) Tree() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(h.interfaces)) {
		i := h.interfaces[key]
		if i.node == "" {
			continue
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.Write(asEntry(i.content))
	}
	if out.Len() == 0 {
		return nil, nil
	}
	return slices.Concat([]byte(`{"interface":[`), out.Bytes(), []byte("]}")), nil
}
