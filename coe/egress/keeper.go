package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Journal keeps the records.
type Journal interface {
	// Load returns every record.
	Load(ctx context.Context) (map[string][]byte, error)
	// Commit makes all changes or none, durably. After an error the changes may have been made.
	Commit(ctx context.Context, puts map[string][]byte, deletes []string) error
	// MaxOps is the maximum number of puts and deletes in one Commit.
	MaxOps() int
}

// Config configures a Keeper.
type Config struct {
	Journal Journal
	Store   *state.Store
	// Port is the TCP port on which agents answer.
	Port uint16
	// Unsupported says why the network has no egress addresses; empty if it has.
	Unsupported string
	// Refuse returns why an address cannot be an egress address; nil if it can.
	Refuse func(netip.Addr) *coe.Refusal
	// InForce reports whether the network has an EgressIP as it is, on every host. It must not block: the other EgressIPs
	// would wait.
	InForce func(*coe.EgressIP) bool
	// Ask asks the agent of a node.
	Ask func(context.Context, Question) Answer
	// OnSettled is called when Settled becomes true.
	OnSettled func()
	Metrics   *Metrics
	Log       *slog.Logger
}

// Keeper keeps the records of EgressIPs. The leader runs one. It does nothing while there are none, and is woken by
// changes.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	// The fields below belong to Run, or to Load before it.
	set      Set
	records  map[string][]byte
	damaged  []string
	since    map[string]time.Time // see facts
	problems []coe.Problem
	// stale is set after a commit that failed: the journal can have other records. compared is when it was compared last.
	stale    bool
	compared time.Time

	mu      sync.Mutex
	peers   map[netip.Addr]*peer
	settled bool // see Settled
}

// New returns a Keeper. Load must be called first.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), peers: map[netip.Addr]*peer{}}
}

// Load puts the EgressIPs that leaders before have accepted into the store.
func (k *Keeper) Load(ctx context.Context) error {
	records, err := k.cfg.Journal.Load(ctx)
	if err != nil {
		return fmt.Errorf("load egress addresses: %w", err)
	}
	k.records, k.stale, k.compared = records, false, time.Now()
	k.set, k.damaged = Decode(records)
	for _, name := range unreadable(records) {
		if !slices.Contains(k.damaged, name) {
			k.cfg.Log.Warn("a record of an EgressIP is damaged; its copy is used, and replaces it", "egressip", name)
		}
	}
	k.problems = nil
	for _, name := range k.damaged {
		k.cfg.Log.Error("cannot read the record of an EgressIP; its pods do not leave until it is accepted again", "egressip", name)
		k.problems = append(k.problems, coe.Problem{
			Kind: coe.EgressKind, UID: name, Name: name, Reason: coe.RecordDamaged,
			Message: "both copies of its record are unusable: it will be accepted again after the EgressIPs are listed, and nothing is removed before",
		})
	}
	k.mu.Lock()
	k.settled = len(k.damaged) == 0
	k.mu.Unlock()
	k.cfg.Metrics.hold(k.set.EgressIPs, k.isDead)
	k.publish()
	return nil
}

// Settled reports whether an EgressIP that is not in the store does not exist. Until then no EgressIP may be removed
// from the network.
func (k *Keeper) Settled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.settled
}

// Wake has the Keeper look at everything again.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run keeps the records until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	asking := newAsker(k)
	defer asking.wait()
	for ctx.Err() == nil {
		again, err := k.step(ctx)
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Error("could not record egress addresses; retrying", "err", err)
			again = time.Second
		}
		asking.ask(ctx, k.set.Candidates, again)
		timer := time.NewTimer(again)
		if again == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step makes the next step of each EgressIP. again is when to look again without being woken; 0 for never.
func (k *Keeper) step(ctx context.Context) (again time.Duration, err error) {
	if k.stale { // the Set stays: another program may have changed the records
		records, err := k.cfg.Journal.Load(ctx)
		if err != nil {
			return 0, fmt.Errorf("load egress addresses: %w", err)
		}
		k.records, k.stale = records, false
	}
	k.compare(ctx)
	k.cfg.Metrics.hold(k.set.EgressIPs, k.isDead)
	specs, listed := k.cfg.Store.EgressSpecs()
	if len(specs)+len(k.set.EgressIPs)+len(k.records)+len(k.problems) == 0 {
		return 0, nil
	}
	if !k.cfg.Store.Complete() || !listed && len(k.set.EgressIPs) == 0 {
		return k.again(false), nil
	}
	if k.cfg.Unsupported != "" {
		if err := k.commit(ctx, Set{}, true); err != nil {
			return 0, err
		}
		k.refuseAll(specs)
		return 0, nil
	}
	d := decide(k.set, k.facts(specs, listed))
	d.Candidates, k.since = k.candidates(d), d.lasting
	if err := k.commit(ctx, d.Set, listed); err != nil {
		return 0, err
	}
	k.cfg.Metrics.hold(k.set.EgressIPs, k.isDead)
	if listed && !k.Settled() {
		k.mu.Lock()
		k.settled = true
		k.mu.Unlock()
		k.cfg.OnSettled()
	}
	if !slices.Equal(k.problems, d.problems) {
		k.problems = d.problems
		k.publish()
	}
	return k.again(d.waits), nil
}

const (
	// compareEvery is how often the journal is compared with what the Keeper has written, and compareTimeout bounds that: the
	// replacement of a dead node must not wait.
	compareEvery   = 15 * time.Second
	compareTimeout = 500 * time.Millisecond
)

// compare notes the records that another program has changed, so that the next commit writes them again. The Keeper is
// the only writer.
func (k *Keeper) compare(ctx context.Context) {
	if len(k.set.EgressIPs) == 0 || time.Since(k.compared) < compareEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	records, err := k.cfg.Journal.Load(ctx)
	k.compared = time.Now()
	switch {
	case err != nil:
		k.cfg.Log.Warn("could not compare the records of EgressIPs; trying again", "err", err, "in", compareEvery)
	case !maps.EqualFunc(records, k.records, bytes.Equal):
		k.cfg.Log.Warn("another program has changed records of EgressIPs; they are written again")
		k.records = records
	}
}

// again returns when to look again.
func (k *Keeper) again(waits bool) time.Duration {
	switch {
	case k.set.Candidates == nil:
		return 0
	case waits:
		return pace
	}
	return interval
}

// facts returns what a decision depends on.
func (k *Keeper) facts(specs []*coe.EgressSpec, listed bool) *facts {
	view := k.cfg.Store.Cluster()
	f := &facts{
		now: time.Now(), specs: specs, listed: listed, nodes: view.Nodes, peers: map[netip.Addr]*peer{}, refuse: k.cfg.Refuse,
		numbered: func(node netip.Addr) bool { return view.Numbers[node] != nil && view.Numbers[node].Number != 0 },
		inForce:  k.cfg.InForce,
		since:    k.since, noteSlow: k.noteSlow,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for node, p := range k.peers {
		same := *p
		same.unfit, same.slow = maps.Clone(p.unfit), maps.Clone(p.slow)
		f.peers[node] = &same
	}
	return f
}

// noteSlow notes that a node has not prepared an address in time.
func (k *Keeper) noteSlow(node, addr netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.peers[node]; p != nil {
		p.slow = with(p.slow, addr, time.Now())
	}
}

// with adds an address to a map, which may be nil.
func with(m map[netip.Addr]time.Time, addr netip.Addr, at time.Time) map[netip.Addr]time.Time {
	if m == nil {
		m = map[netip.Addr]time.Time{}
	}
	m[addr] = at
	return m
}

// candidates returns the nodes to ask: nil while there are no EgressIPs.
func (k *Keeper) candidates(d *decision) *Candidates {
	if len(d.EgressIPs) == 0 {
		return nil
	}
	c := &Candidates{Port: k.cfg.Port}
	if k.set.Candidates != nil {
		c.Secret = k.set.Candidates.Secret
	} else {
		c.Secret = []byte(rand.Text())
	}
	for node := range d.nodes {
		if d.eligible(node) {
			c.Nodes = append(c.Nodes, node)
		}
	}
	slices.SortFunc(c.Nodes, netip.Addr.Compare)
	return c
}

// commit records a Set, if it differs, and puts it into the store. Damaged records stay until the EgressIPs were listed.
func (k *Keeper) commit(ctx context.Context, s Set, listed bool) error {
	want := s.encode()
	for _, name := range k.damaged {
		for _, record := range []string{name, copyPrefix + name} {
			if value := k.records[record]; value != nil && want[record] == nil && !listed {
				want[record] = value
			}
		}
	}
	puts, deletes := map[string][]byte{}, []string{}
	for name, value := range want {
		if !bytes.Equal(k.records[name], value) {
			puts[name] = value
		}
	}
	for name := range k.records {
		if want[name] == nil {
			deletes = append(deletes, name)
		}
	}
	if len(puts)+len(deletes) == 0 && maps.EqualFunc(k.set.encode(), s.encode(), bytes.Equal) {
		return nil
	}
	if err := k.write(ctx, puts, deletes); err != nil {
		k.stale = true // the changes may have been made: then the next call finds them in the records, and only follows
		return err
	}
	k.noteMoves(s)
	k.set, k.records = s, want
	k.publish()
	return nil
}

// write makes changes in as many transactions as the journal needs.
func (k *Keeper) write(ctx context.Context, puts map[string][]byte, deletes []string) error {
	slices.Sort(deletes)
	names, most := slices.Sorted(maps.Keys(puts)), k.cfg.Journal.MaxOps()
	for len(names)+len(deletes) > 0 {
		part, gone := map[string][]byte{}, deletes[:min(most, len(deletes))]
		deletes = deletes[len(gone):]
		for len(names) > 0 && len(part)+len(gone) < most {
			part[names[0]] = puts[names[0]]
			names = names[1:]
		}
		if err := k.cfg.Journal.Commit(ctx, part, gone); err != nil {
			return err
		}
	}
	return nil
}

// noteMoves logs and counts the EgressIPs whose pods leave by another node in a new Set.
func (k *Keeper) noteMoves(s Set) {
	for _, e := range s.EgressIPs {
		before := find(k.set, e.Name)
		if before != nil && before.Host() == e.Host() {
			k.warnOfPackets(before, e)
			continue
		}
		k.cfg.Log.Info("pods of an EgressIP leave by another node", "egressip", e.Name, "address", e.Address, "by", holder(e))
		if before != nil && before.Host().IsValid() && e.Host().IsValid() {
			k.cfg.Metrics.moved(k.isDead(before.Host()))
		}
	}
}

// warnOfPackets logs that an address moves although packets still come in at its former node.
func (k *Keeper) warnOfPackets(before, now *coe.EgressIP) {
	if before.Owner == 0 || before.Owner == before.Active || now.Owner != before.Active {
		return
	}
	former := before.Hosts[before.Owner-1]
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.peers[former].quiet(time.Now(), ownerPort(before), settle) {
		k.cfg.Log.Warn("the address of an EgressIP moves, and packets still leave by its former node; their answers are lost", "egressip", now.Name, "node", former)
	}
}

func (k *Keeper) isDead(node netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.peers[node].dead(time.Now())
}

func find(s Set, name string) *coe.EgressIP {
	for _, e := range s.EgressIPs {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// refuseAll reports each EgressIP as not enforced.
func (k *Keeper) refuseAll(specs []*coe.EgressSpec) {
	var problems []coe.Problem
	for _, s := range specs {
		problems = append(problems, coe.Problem{Kind: coe.EgressKind, UID: s.UID, Name: s.Name, Reason: coe.NotEnforced, Message: k.cfg.Unsupported})
	}
	if !slices.Equal(k.problems, problems) {
		k.problems = problems
		k.publish()
	}
}

func (k *Keeper) publish() {
	set, problems := k.set, k.problems
	k.cfg.Store.Update(func(tx *state.Tx) { tx.SetEgress(set.EgressIPs, problems) })
}

// asker asks nodes, each at most once at a time.
type asker struct {
	k       *Keeper
	running sync.WaitGroup
	last    map[netip.Addr]time.Time
	busy    map[netip.Addr]bool // guarded by k.mu
}

func newAsker(k *Keeper) *asker {
	return &asker{k: k, last: map[netip.Addr]time.Time{}, busy: map[netip.Addr]bool{}}
}

func (a *asker) wait() { a.running.Wait() }

// ask asks all nodes with a part that were not asked for a time, and forgets others.
func (a *asker) ask(ctx context.Context, c *Candidates, every time.Duration) {
	nodes, giving := a.k.set.Nodes(), a.k.set.giving()
	a.k.mu.Lock()
	defer a.k.mu.Unlock()
	maps.DeleteFunc(a.k.peers, func(node netip.Addr, _ *peer) bool { return !slices.Contains(nodes, node) })
	for _, node := range nodes {
		p := a.k.peers[node]
		if p == nil {
			p = &peer{}
			a.k.peers[node] = p
		}
		if a.busy[node] || time.Since(a.last[node]) < every-every/10 {
			continue
		}
		a.busy[node], a.last[node] = true, time.Now()
		if p.asked.IsZero() {
			p.asked = time.Now()
		}
		q := Question{Node: node, Port: c.Port, Key: c.key(node), Hangs: p.hangs, Count: giving[node]}
		a.running.Go(func() {
			asked := time.Now()
			a.note(q, asked, a.k.cfg.Ask(ctx, q))
		})
	}
}

// note follows the answer to a question. It wakes the Keeper if the answer has changed.
func (a *asker) note(q Question, asked time.Time, answer Answer) {
	now := time.Now()
	a.k.mu.Lock()
	delete(a.busy, q.Node)
	p := a.k.peers[q.Node]
	changed := false
	if p != nil {
		p.misses++
		if answer.Heard {
			p.heard, p.misses, p.hangs = now, 0, answer.Hangs
		}
		if answer.Answered {
			changed = p.answered.IsZero() || p.version != answer.Version || p.applied != answer.Applied || !slices.Equal(p.missing, answer.Missing)
			p.answered, p.version, p.applied, p.missing = now, answer.Version, answer.Applied, answer.Missing
			if q.Count {
				p.received = p.counts(asked, now, answer.Received)
			} else {
				p.received = nil
			}
			for _, addr := range answer.Unfit {
				changed = changed || !p.isUnfit(now, addr)
				p.unfit = with(p.unfit, addr, now)
			}
		}
	}
	a.k.mu.Unlock()
	if changed {
		a.k.Wake()
	}
}
