// Package agentstream turns what was chosen for pods' interfaces into what the
// agents of their nodes are told: for each node a stream of whole records, one for
// each interface (architecture, decision 11).
//
// It reads the records that the leader keeps: the leases, and which of them the
// network backend is known to have (Confirmation). Every replica reads them and so
// serves every node's stream, whoever leads. It knows neither where records are kept
// nor how streams reach their followers.
package agentstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// The prefixes of the records that the Hub reads, as all records of all prefixes are
// named. What stands after them is pod uid and interface uid.
const (
	leaseRecords        = "chosen/lease/"
	confirmationRecords = "confirmed/"
	networkRecord       = confirmationRecords + NetworkRecord
	// adoptingRecord is there while a leader writes leases of what the backend has.
	adoptingRecord = "chosen/adopting/"
)

// CompleteRecord is there once a leader has heard every source and has claimed for all
// that they said. It is named as all records of all prefixes are.
const CompleteRecord = "complete/sources"

// HistoryRecord is the name of the record with the datastore's history (see
// stream.Log.Turn), as all records of all prefixes are named.
const HistoryRecord = "history"

// The notifications of coe-agent.
const (
	changedEvent  = "coe-agent:interface-changed"
	networkEvent  = "coe-agent:network-changed"
	beginEvent    = "coe-agent:snapshot-begin"
	completeEvent = "coe-agent:snapshot-complete"
)

// Config is what a Hub is told.
type Config struct {
	// Identity is that of the datastore whose revisions the batches have.
	Identity string
	// MTU is told of every interface; 0: none is.
	MTU uint16
	// Lost is stream.Config's.
	Lost func(node string, revision int64)
	Log  *slog.Logger
}

// Batch is what one revision changed of the records of all prefixes.
type Batch struct {
	Revision int64
	// Snapshot: Put is every record that there is.
	Snapshot bool
	Put      map[string][]byte
	Delete   []string
}

// Hub keeps the record of every interface, and the streams of the nodes. It is safe
// for use by many goroutines.
type Hub struct {
	cfg     Config
	streams *stream.Log

	mu         sync.Mutex
	known      bool              // a snapshot was applied
	told       bool              // the streams have what there is; see complete
	interfaces map[string]*iface // by "pod-uid/interface-uid"
	nodes      nodes
	network    network
	history    []byte // that the streams were not told of yet
	adopting   bool
	heard      bool // CompleteRecord is there
}

// network is the record of the Network, which every node is told that is told of an interface.
type network struct {
	content []byte
	told    map[string]bool // by node: whether it has been told this
}

// networkKey is its key on nodes' streams; those of interfaces have a slash.
const networkKey = "network"

var _ stream.Source = (*Hub)(nil)

// iface is what the records say of one interface.
type iface struct {
	node string // of whose stream it is; empty while there is no living lease
	// content is the object that its followers were told last, the first said octets
	// of which follow from the lease alone.
	content []byte
	said    int
	// want is the confirmation that counts for the lease, got the one that is there.
	want, got digest
	// at and revision are of when the lease was confirmed as it is.
	at       time.Time
	revision int64
}

func (i *iface) confirmed() bool { return i.node != "" && i.got == i.want }

// New returns a Hub that knows nothing yet: followers wait for the first snapshot.
func New(cfg Config) *Hub {
	return &Hub{
		cfg:        cfg,
		streams:    stream.NewLog(stream.Config{Identity: cfg.Identity, Begin: beginEvent, Complete: completeEvent, Lost: cfg.Lost}),
		interfaces: map[string]*iface{},
		nodes:      newNodes(),
	}
}

// Apply takes what one revision changed. Revisions ascend; one goroutine calls it.
func (h *Hub) Apply(b Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Snapshot {
		h.known, h.told = true, false
		h.interfaces = map[string]*iface{}
		h.nodes, h.network = newNodes(), network{}
		h.adopting, h.heard = false, false
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
		changes = h.settle(changes, key, before[key], b.Revision)
	}
	h.tell(b.Revision, changes)
}

// complete reports whether the records are all that there is. The datastore may be
// empty because it was lost: nodes are told nothing until the leader has written down
// what the backend has, or has heard every source. So no node takes what its pods have
// for gone.
func (h *Hub) complete() bool {
	return !h.adopting && (h.heard || h.told || len(h.interfaces)+len(h.nodes.records) > 0)
}

// tell has the streams agree with the records: by the changes of a revision, or by all
// that there is.
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
		h.streams.Apply(revision, h.tellNetwork(h.tellNodes(changes), false))
		return
	}
	h.told, h.network.told = true, nil
	h.nodes.told, h.nodes.changed = map[string][]byte{}, true
	h.streams.Reset(revision, h.tellNetwork(h.tellNodes(h.all()), true))
}

// all is what nodes are told of every interface.
func (h *Hub) all() (changes []stream.Change) {
	for _, key := range slices.Sorted(maps.Keys(h.interfaces)) {
		if i := h.interfaces[key]; i.node != "" {
			changes = append(changes, stream.Change{Stream: i.node, Key: key, Name: changedEvent, Content: i.content})
		}
	}
	return changes
}

// record takes one record, nil for none, and notes what there was of its interface
// before the batch.
func (h *Hub) record(before map[string]iface, name string, value []byte) {
	switch name {
	case HistoryRecord:
		h.history = value
	case adoptingRecord:
		h.adopting = value != nil
	case CompleteRecord:
		h.heard = value != nil
		h.told = h.told && h.heard // the record is deleted when the datastore is emptied
	}
	if name == networkRecord {
		h.network = network{content: value}
		if value != nil && !json.Valid(value) {
			h.network.content = nil // the leader writes it again
			h.cfg.Log.Error("network can't be read, nodes are told nothing of it", "record", name)
		}
	}
	if name == networkRecord || h.nodes.record(name, value) {
		return
	}
	lease := strings.HasPrefix(name, leaseRecords)
	if !lease && !strings.HasPrefix(name, confirmationRecords) {
		return // of no interface
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

// tellNetwork adds to changes what nodes are to be told of the network: all when it is another
// than before, and each with its first interface.
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

// lease takes an interface's lease, nil for none.
func (h *Hub) lease(i *iface, key string, value []byte) {
	*i = iface{got: i.got}
	if value == nil {
		return
	}
	l, err := decodeLease(key, value)
	if err == nil && l.Released == 0 {
		i.want = digestOf(ConfirmationOf(l).Encode())
		i.content, err = encode(l, h.cfg.MTU)
		i.said, i.node = len(i.content), l.Node.String()
	}
	if err != nil {
		*i = iface{got: i.got}
		h.cfg.Log.Error("lease can't be read, its node is not told of it", "record", leaseRecords+key, "err", err)
	}
}

func decodeLease(key string, value []byte) (*coe.Lease, error) {
	l := &coe.Lease{}
	err := json.Unmarshal(value, l)
	switch {
	case err != nil:
		return nil, err
	case RecordName(l.Key()) != key:
		return nil, fmt.Errorf("it is that of %s", RecordName(l.Key()))
	case !l.Node.IsValid():
		return nil, errors.New("it names no node")
	}
	return l, nil
}

// settle completes what is told of an interface after a batch, and adds what that
// changes to changes.
func (h *Hub) settle(changes []stream.Change, key string, old iface, revision int64) []stream.Change {
	i := h.interfaces[key]
	if i.node != "" {
		i.content = confirm(i.content[:i.said], i.confirmed())
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

// since notes since when an interface is confirmed.
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

// Confirmed tells whether the backend is known to have an interface as its lease is
// now, since which revision, and when this process learned of that.
func (h *Hub) Confirmed(key coe.LeaseKey) (at time.Time, revision int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[RecordName(key)]
	if i == nil || !i.confirmed() {
		return time.Time{}, 0, false
	}
	return i.at, i.revision, true
}

// Settle is stream.Log's.
func (h *Hub) Settle(ctx context.Context, current func(context.Context) (string, error)) {
	h.streams.Settle(ctx, current)
}

// Known reports whether the Hub has read all records once. Before that, Tree, Count
// and Confirmed miss what the datastore holds.
func (h *Hub) Known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known
}

// Count is how many interfaces are confirmed.
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

// Keys implements stream.Source: the nodes that are told of anything.
func (h *Hub) Keys() []string { return h.streams.Streams() }

// Open implements stream.Source: the key is the address of a node.
func (h *Hub) Open(key, after string) (stream.Subscription, bool) {
	node, err := netip.ParseAddr(key)
	if err != nil {
		return nil, false
	}
	return h.streams.Open(node.String(), after), true
}

// Tree writes the container coe-agent:interfaces as JSON; nil while it is empty.
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
