package agentstream

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// The time a Confirmer collects changes, and its delay after a failed write.
const (
	gather     = 10 * time.Millisecond
	retryAfter = time.Second
)

// A Network is published when nothing was confirmed for settleQuiet, or settleMost after the
// first confirmation. Agents then clear their switches, and the network's controller may
// lose results that it computes while a switch is disconnected.
const (
	settleQuiet = 10 * time.Second
	settleMost  = time.Minute
)

// maxOps and maxBytes limit the records of one write, so that its cost is bounded. etcd refuses a
// request of more than 1.5 MiB.
const (
	maxOps   = 1000
	maxBytes = 1 << 20
)

// Journal stores the confirmations: the records "confirmed".
type Journal interface {
	// Load returns every record.
	Load(ctx context.Context) (map[string][]byte, error)
	// Commit makes all changes or none, durably. After an error the changes may have
	// been made.
	Commit(ctx context.Context, puts map[string][]byte, deletes []string) error
	// MaxOps is the maximum number of puts and deletes in one Commit.
	MaxOps() int
}

// Confirmer keeps the records of confirmed interfaces. The leader runs one, and marks every
// pod once it has read the backend: until then the records of an earlier leader count.
// Nothing waits for a Confirmer: pods to check wait in a set, and are written together.
type Confirmer struct {
	store   *state.Store
	journal Journal
	backend ConfirmedBackend
	log     *slog.Logger
	wake    chan struct{}

	mu     sync.Mutex
	marked map[string]bool // UIDs of pods

	// The fields below belong to Run. records are the records in the journal by pod UID,
	// network is its record of the Network, and pending is a Network to publish.
	records map[string][]kept
	network digest
	pending pendingNetwork
}

// pendingNetwork is a Network that is not yet published.
type pendingNetwork struct {
	network Network
	begun   time.Time // time of the first confirmation from it; zero before
	last    time.Time // time of the last confirmation
}

// due returns the time at which to publish it.
func (s *pendingNetwork) due() time.Time {
	at := s.last.Add(settleQuiet)
	if most := s.begun.Add(settleMost); most.Before(at) {
		at = most
	}
	return at
}

// ConfirmedBackend is the backend as a Confirmer queries it.
type ConfirmedBackend struct {
	// Has reports whether the backend has exactly the interface of a lease, and the network
	// works for it as far as the backend knows.
	Has func(*coe.Lease) bool
	// Network returns the current Network; zero if the backend does not report it.
	Network func() Network
	// Noted, if not nil, is called for each pod that was checked, when its records are written. It
	// reports whether all interfaces of the pod are confirmed.
	Noted func(podUID string, confirmed bool)
}

// kept is a record in the journal.
type kept struct {
	name  string
	value digest
}

// NewConfirmer returns a Confirmer.
func NewConfirmer(store *state.Store, journal Journal, backend ConfirmedBackend, log *slog.Logger) *Confirmer {
	return &Confirmer{
		store: store, journal: journal, backend: backend, log: log,
		wake: make(chan struct{}, 1), marked: map[string]bool{},
	}
}

// Mark schedules a check of the interfaces of pods, after a change of their leases or of
// their state in the backend.
func (c *Confirmer) Mark(pods ...string) {
	c.mu.Lock()
	for _, uid := range pods {
		c.marked[uid] = true
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run keeps the records until ctx is done. It repeats failed writes.
func (c *Confirmer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.keep(ctx)
		if ctx.Err() != nil {
			return
		}
		c.log.Error("could not write confirmations; retrying", "err", err)
		pause(ctx, retryAfter)
	}
}

// keep loads the records, and keeps them until an error.
func (c *Confirmer) keep(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			pause(ctx, gather)
		case <-settled.C:
		}
		if err := c.write(ctx, c.take()); err != nil {
			return err
		}
		if err := c.publishNetwork(ctx); err != nil {
			return err
		}
		if !c.pending.begun.IsZero() {
			settled.Reset(time.Until(c.pending.due()))
		}
	}
}

// load reads the records, and marks pods with a record but no lease: these records no longer
// count. The other pods are marked once the backend was read.
func (c *Confirmer) load(ctx context.Context) error {
	records, err := c.journal.Load(ctx)
	if err != nil {
		return fmt.Errorf("load confirmations: %w", err)
	}
	c.records = map[string][]kept{}
	c.network = digestOf(records[NetworkRecord])
	delete(records, NetworkRecord)
	for name, value := range records {
		c.note(name, digestOf(value))
	}
	for uid := range c.records {
		if len(c.store.LeasesOf(uid)) == 0 {
			c.Mark(uid)
		}
	}
	return nil
}

func (c *Confirmer) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := slices.Sorted(maps.Keys(c.marked))
	c.marked = map[string]bool{} // a cleared map takes as long to walk as when it was full
	return pods
}

// write updates the records of pods. After an error it marks them again.
func (c *Confirmer) write(ctx context.Context, pods []string) error {
	puts := map[string][]byte{}
	var deletes []string
	confirmed := false
	for _, uid := range pods {
		want := c.wanted(uid)
		confirmed = confirmed || len(want) > 0
		for name, value := range want {
			if !slices.Contains(c.records[uid], kept{name, digestOf(value)}) {
				puts[name] = value
			}
		}
		for _, k := range c.records[uid] {
			if want[k.name] == nil {
				deletes = append(deletes, k.name)
			}
		}
	}
	c.noteNetwork(confirmed, len(puts) > 0)
	for _, part := range split(puts, deletes, min(c.journal.MaxOps(), maxOps)) {
		if err := c.journal.Commit(ctx, part.puts, part.deletes); err != nil {
			c.Mark(pods...)
			return fmt.Errorf("write confirmations: %w", err)
		}
		for name, value := range part.puts {
			c.note(name, digestOf(value))
		}
		for _, name := range part.deletes {
			c.note(name, digest{})
		}
	}
	if c.backend.Noted != nil {
		for _, uid := range pods {
			c.backend.Noted(uid, c.hasAll(uid))
		}
	}
	return nil
}

// hasAll reports whether a pod has interfaces, and a record of each.
func (c *Confirmer) hasAll(uid string) bool {
	interfaces := 0
	for _, l := range c.store.LeasesOf(uid) {
		if l.Released == 0 {
			interfaces++
		}
	}
	return interfaces > 0 && len(c.records[uid]) >= interfaces
}

// noteNetwork determines whether and when to publish the backend's Network. confirmed is
// whether an interface is confirmed, changed whether a confirmation is new.
func (c *Confirmer) noteNetwork(confirmed, changed bool) {
	now, network := time.Now(), c.backend.Network()
	if network == (Network{}) || digestOf(network.Encode()) == c.network {
		c.pending = pendingNetwork{}
		return
	}
	if c.pending.network != network {
		c.pending = pendingNetwork{network: network}
	}
	if confirmed && c.pending.begun.IsZero() {
		c.pending.begun, c.pending.last = now, now
	}
	if changed {
		c.pending.last = now
	}
}

// publishNetwork writes the record of the Network when it is due.
func (c *Confirmer) publishNetwork(ctx context.Context) error {
	if c.pending.begun.IsZero() || time.Now().Before(c.pending.due()) {
		return nil
	}
	value := c.pending.network.Encode()
	if err := c.journal.Commit(ctx, map[string][]byte{NetworkRecord: value}, nil); err != nil {
		return fmt.Errorf("write the identity of the network: %w", err)
	}
	c.network, c.pending = digestOf(value), pendingNetwork{}
	return nil
}

// wanted returns the records that a pod should have. The pod itself may be unknown: after a
// start its network exists, possibly before Kubernetes has been listed.
func (c *Confirmer) wanted(uid string) map[string][]byte {
	want := map[string][]byte{}
	for _, l := range c.store.LeasesOf(uid) {
		if l.Released == 0 && c.backend.Has(l) {
			want[RecordName(l.Key())] = ConfirmationOf(l).Encode()
		}
	}
	return want
}

// note updates the local copy of a record; the zero digest deletes it.
func (c *Confirmer) note(name string, d digest) {
	uid, _, _ := strings.Cut(name, "/")
	records := slices.DeleteFunc(c.records[uid], func(k kept) bool { return k.name == name })
	if d != (digest{}) {
		records = append(records, kept{name, d})
	}
	if c.records[uid] = records; len(records) == 0 {
		delete(c.records, uid)
	}
}

// commit is the content of one Commit.
type commit struct {
	puts    map[string][]byte
	deletes []string
}

// split divides changes into commits of at most most records. The records of a commit have at most
// maxBytes bytes, unless it is a single one.
func split(puts map[string][]byte, deletes []string, most int) []commit {
	var parts []commit
	bytes := 0 // in the last part
	for _, name := range slices.Sorted(maps.Keys(puts)) {
		size := len(name) + len(puts[name])
		if len(parts) == 0 || len(parts[len(parts)-1].puts) == most || bytes+size > maxBytes {
			parts, bytes = append(parts, commit{puts: map[string][]byte{}}), 0
		}
		parts[len(parts)-1].puts[name] = puts[name]
		bytes += size
	}
	for names := range slices.Chunk(deletes, most) {
		parts = append(parts, commit{deletes: names})
	}
	return parts
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
