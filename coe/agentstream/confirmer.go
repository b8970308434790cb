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
)

// How long a Confirmer gathers what to write, and how long it waits after a write
// that failed.
const (
	gather     = 10 * time.Millisecond
	retryAfter = time.Second
)

// A Network is told when nothing more was confirmed for settleQuiet, and settleMost after the
// first in any case: agents have their switches forget then, and what the network's controller
// works out while a switch is away may never come there.
const (
	settleQuiet = 10 * time.Second
	settleMost  = time.Minute
)

// maxOps is how many records a Confirmer writes at once, so that what it takes to
// write many does not grow with them.
const maxOps = 1000

// Journal is where confirmations are kept: the records "confirmed".
type Journal interface {
	// Load returns every record.
	Load(ctx context.Context) (map[string][]byte, error)
	// Commit makes all the changes or none, durably. An error may mean that they
	// were made all the same.
	Commit(ctx context.Context, puts map[string][]byte, deletes []string) error
	// MaxOps is how many puts and deletes one Commit may have.
	MaxOps() int
}

// Confirmer keeps the records of what the backend is known to have. The leader runs
// one, and marks every pod once it has read the backend: until then the records that
// another leader has left count. It is not on anybody's way: what is to be looked at
// waits in a set of pods, and is written together.
type Confirmer struct {
	store   *coe.Store
	journal Journal
	backend ConfirmedBackend
	log     *slog.Logger
	wake    chan struct{}

	mu     sync.Mutex
	marked map[string]bool // uids of pods

	// Only Run uses what follows. records are what the journal has, by pod uid, and network
	// what it has of the Network; settles is about another Network.
	records map[string][]kept
	network digest
	settles settling
}

// settling is about a Network that was not told yet.
type settling struct {
	network Network
	begun   time.Time // when something that was made from it was confirmed; zero before that
	heard   time.Time // when something was confirmed last
}

// due is when it is to be told.
func (s *settling) due() time.Time {
	at := s.heard.Add(settleQuiet)
	if most := s.begun.Add(settleMost); most.Before(at) {
		at = most
	}
	return at
}

// ConfirmedBackend is what a Confirmer asks.
type ConfirmedBackend struct {
	// Has tells whether the backend has a lease's interface just as the lease says, and the
	// network has made it work, as far as the backend can know.
	Has func(*coe.Lease) bool
	// Network is what the network is made from now; zero where the backend does not tell.
	Network func() Network
}

// kept is a record that the journal has.
type kept struct {
	name  string
	value digest
}

// NewConfirmer returns a Confirmer.
func NewConfirmer(store *coe.Store, journal Journal, backend ConfirmedBackend, log *slog.Logger) *Confirmer {
	return &Confirmer{
		store: store, journal: journal, backend: backend, log: log,
		wake: make(chan struct{}, 1), marked: map[string]bool{},
	}
}

// Mark has the interfaces of pods looked at soon, after their leases or what the
// backend has of them has changed.
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

// Run keeps the records until ctx is done. What can't be written is tried again.
func (c *Confirmer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.keep(ctx)
		if ctx.Err() != nil {
			return
		}
		c.log.Error("keep what the backend is known to have", "err", err)
		pause(ctx, retryAfter)
	}
}

// keep loads the records and keeps them until something fails.
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
		if err := c.tellNetwork(ctx); err != nil {
			return err
		}
		if !c.settles.begun.IsZero() {
			settled.Reset(time.Until(c.settles.due()))
		}
	}
}

// load reads the records, and marks the pods that have one and nothing chosen: it
// does not count any more. Whether the others count is seen when they are marked,
// once it is known what the backend has.
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
	clear(c.marked)
	return pods
}

// write makes the records of pods what they are to be. After an error they are marked
// again.
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
	c.settle(confirmed, len(puts) > 0)
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
	return nil
}

// settle takes note of whether the backend's Network is to be told, and when, as something is
// confirmed, or is anew.
func (c *Confirmer) settle(confirmed, anew bool) {
	now, network := time.Now(), c.backend.Network()
	if network == (Network{}) || digestOf(network.Encode()) == c.network {
		c.settles = settling{}
		return
	}
	if c.settles.network != network {
		c.settles = settling{network: network}
	}
	if confirmed && c.settles.begun.IsZero() {
		c.settles.begun, c.settles.heard = now, now
	}
	if anew {
		c.settles.heard = now
	}
}

// tellNetwork writes the record of the Network when it is time.
func (c *Confirmer) tellNetwork(ctx context.Context) error {
	if c.settles.begun.IsZero() || time.Now().Before(c.settles.due()) {
		return nil
	}
	value := c.settles.network.Encode()
	if err := c.journal.Commit(ctx, map[string][]byte{NetworkRecord: value}, nil); err != nil {
		return fmt.Errorf("write what the network is made from: %w", err)
	}
	c.network, c.settles = digestOf(value), settling{}
	return nil
}

// wanted are the records that a pod is to have. It need not be known to be there: after
// a start Kubernetes may not have been asked yet, and the network stands.
func (c *Confirmer) wanted(uid string) map[string][]byte {
	want := map[string][]byte{}
	for _, l := range c.store.LeasesOf(uid) {
		if l.Released == 0 && c.backend.Has(l) {
			want[RecordName(l.Key())] = ConfirmationOf(l).Encode()
		}
	}
	return want
}

// note remembers what the journal has under a name; the zero digest for nothing.
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

// commit is what goes into one Commit.
type commit struct {
	puts    map[string][]byte
	deletes []string
}

// split shares changes out over as few commits as there have to be.
func split(puts map[string][]byte, deletes []string, most int) []commit {
	var parts []commit
	for names := range slices.Chunk(slices.Sorted(maps.Keys(puts)), most) {
		part := commit{puts: map[string][]byte{}}
		for _, name := range names {
			part.puts[name] = puts[name]
		}
		parts = append(parts, part)
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
