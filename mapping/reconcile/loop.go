package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config has the bounds of a loop, and what works with it. The zero value of a field takes
// its default.
type Config struct {
	// Resync is the interval at which the backend is read again, to repair what external
	// writers changed. Default 5 minutes.
	Resync time.Duration
	// Timeout is the deadline of a Write of up to 2,000 changes; a larger one has as
	// much again for each further 2,000. Default 15 s.
	Timeout time.Duration
	// Listener is notified of progress; nil for none.
	Listener Listener
	// Claims hands scopes on to the loop. Their state is part of the loop's Status. nil
	// for a loop whose scopes are marked by others.
	Claims *Claims
	// Pacer says how long the backend rests after a Write; nil for not at all.
	Pacer Pacer
}

// changesPerTimeout is how many changes a Write may have for each Timeout.
const changesPerTimeout = 2000

// readLimit is the deadline of a Read, which is of everything. A backend ends it earlier if its server does not answer.
const readLimit = 10 * time.Minute

func (c Config) withDefaults() Config {
	c.Resync = cmp.Or(c.Resync, 5*time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	return c
}

// Source computes what the loop makes a backend agree with.
type Source interface {
	// Want computes the model of one scope from what is known now. Parts that stay the
	// same from one call to the next need not be compared.
	Want(scope netvirt.Scope) (netvirt.Parts, []coe.Problem)
	// Scopes lists the scopes that have a model.
	Scopes() []netvirt.Scope
	// Complete reports whether what is absent from Want is known to be gone. Until then
	// the loop creates objects, and neither changes nor removes any. When the source
	// becomes complete, every scope must be marked.
	Complete() bool
	// Revision returns the revision of the datastore that Want reflects.
	Revision() int64
	// CaughtUp reports whether every acknowledged change of the datastore, and every change that Want and Complete reflect, has
	// been marked.
	CaughtUp() bool
}

// Pacer knows how long the network takes to follow a Write.
type Pacer interface {
	// Rest returns how long after a Write the next one should begin. Changes that come in the meantime are written together.
	Rest() time.Duration
}

// Listener is notified of the progress of a loop that runs.
type Listener interface {
	// Mapped is called after each mapping of a scope, with what cannot be mapped or is
	// rejected by the backend.
	Mapped(scope netvirt.Scope, problems []coe.Problem)
	// Programmed is called when a batch agrees with the backend. pods are the pods with
	// changed interfaces. scopes are the scopes that agree for the first time since the
	// backend was read: any of their pods may have changed before. The first call comes after
	// the first Observe.
	Programmed(scopes []netvirt.Scope, pods []string)
	// Observed is called when the network has confirmed interfaces of these pods, or has
	// lost them, if the backend is an Observer. nil, after the first look, means all pods.
	Observed(pods []string)
}

// Loop makes a backend agree with a source. New creates a Loop, Run starts it, and Mark notifies
// it of changes.
type Loop struct {
	cfg      Config
	backend  Backend
	observer Observer // nil if the backend is not an Observer
	source   Source
	log      *slog.Logger
	metrics  *metrics
	worker   *worker

	mu sync.RWMutex
	// have is the model that the backend has, by scope. It is the last known one while known is
	// false.
	have  map[netvirt.Scope]netvirt.Parts
	known bool
	// rejected are changes that the backend will not take.
	rejected map[netvirt.Key]rejection
	scopes   map[netvirt.Scope]*scopeStatus
	peer     PeerStatus
	// uncertain are the scopes that were not compared since absence means gone, or since the backend was read. The value
	// is whether they are marked for that.
	uncertain map[netvirt.Scope]bool
	// looking is closed when the Look in progress ends, which began at lookSince; nil if none is.
	// None starts before lookAgain. compared is when the last one began that has compared all.
	looking                        chan struct{}
	lookSince, lookAgain, compared time.Time
	closed                         chan struct{}
	// epoch counts how often known became false. A write that began in an earlier epoch does
	// not make a scope in sync.
	epoch uint64

	written  chan struct{} // holds one value after a change of have, until the network is looked at
	observed atomic.Bool   // the network was looked at
	looks    atomic.Uint64 // counts the ended looks at the network
	counts   lackCounts
}

// New returns a loop. name is the name of the backend, for status and logs.
func New(cfg Config, name string, backend Backend, source Source, m *Metrics, log *slog.Logger) *Loop {
	l := &Loop{
		cfg:      cfg.withDefaults(),
		backend:  backend,
		source:   source,
		log:      log.With("backend", name),
		metrics:  m.of(name),
		rejected: map[netvirt.Key]rejection{},
		scopes:   map[netvirt.Scope]*scopeStatus{},
		peer:     PeerStatus{Name: name},
		closed:   make(chan struct{}),
		written:  make(chan struct{}, 1),

		uncertain: map[netvirt.Scope]bool{},
	}
	l.observer, _ = backend.(Observer)
	l.worker = newWorker(l.process)
	l.worker.rested = func(took time.Duration) { l.metrics.rest.Add(took.Seconds()) }
	m.observe(l)
	return l
}

// Mark schedules a comparison of the scopes with the backend.
func (l *Loop) Mark(scopes ...netvirt.Scope) { l.worker.mark(scopes...) }

// Run works until ctx is done. It reads the backend, then writes the differences. It reads
// again after each failure, when the backend reports an external change, and at an interval.
func (l *Loop) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.watch(ctx) })
	wg.Go(func() { l.tick(ctx) })
	wg.Go(func() { l.observe(ctx) })
	l.Mark(netvirt.Cluster) // the backend is read while the source fills up
	if l.source.Complete() {
		l.markAll()
	}
	l.worker.run(ctx)
	return ctx.Err()
}

// watch re-reads when the backend reports an external change.
func (l *Loop) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.backend.Watch(ctx, func() { l.reread("the backend changed") })
		if err != nil && ctx.Err() == nil {
			l.log.Warn("watch backend", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(maxBackoff):
		}
	}
}

// tick re-reads at the resync interval.
func (l *Loop) tick(ctx context.Context) {
	ticker := time.NewTicker(l.cfg.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.reread("resync")
		}
	}
}

func (l *Loop) reread(why string) {
	l.log.Debug("read backend again", "reason", why)
	l.forget()
	l.markAll()
}

// forget makes the model of the backend unknown, so that it is read again.
func (l *Loop) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = false
	l.epoch++
}

// markAll marks the cluster's scope first, because other scopes refer to it.
func (l *Loop) markAll() { l.Mark(append([]netvirt.Scope{netvirt.Cluster}, l.source.Scopes()...)...) }

// errChanged makes a batch start again, because the base of its comparison has changed.
var errChanged = errors.New("an external writer changed the backend at the same time")

// process compares and writes a batch of scopes.
func (l *Loop) process(ctx context.Context, scopes []netvirt.Scope) error {
	complete := l.source.Complete()
	revision := l.source.Revision()
	epoch, changes, late, err := l.sync(ctx, scopes, complete, revision)
	switch {
	case errors.Is(err, errChanged), ctx.Err() != nil:
	case err != nil:
		l.failed(scopes, err)
	default:
		l.worker.repeat(slices.Collect(maps.Keys(late))...) // they are behind until all changes are made
		scopes = slices.DeleteFunc(slices.Clone(scopes), func(s netvirt.Scope) bool { return late[s] })
		first := l.firstTime(scopes, epoch)
		l.programmed(scopes, revision, complete)
		if l.cfg.Listener != nil && l.Observed() {
			l.cfg.Listener.Programmed(first, l.podsOf(changes))
		}
	}
	return err
}

// sync makes the backend agree with scopes. It returns the changes, the epoch of the model
// with which the scopes were compared, and the scopes with changes that the backend has deferred.
func (l *Loop) sync(ctx context.Context, scopes []netvirt.Scope, complete bool, revision int64) (uint64, []netvirt.Change, map[netvirt.Scope]bool, error) {
	epoch, err := l.read(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	l.metrics.batch.Observe(float64(len(scopes)))
	l.markUncertain(scopes, complete)
	var changes []netvirt.Change
	wanted := make(map[netvirt.Scope]netvirt.Parts, len(scopes))
	for _, s := range scopes {
		want, problems := l.want(s)
		wanted[s] = want
		some, held := l.diff(s, want, complete)
		changes = append(changes, some...)
		problems = slices.Concat(problems, held)
		l.mapped(s, revision, want, problems)
		if l.cfg.Listener != nil {
			l.cfg.Listener.Mapped(s, problems)
		}
	}
	changes = l.joined(changes)
	netvirt.Sort(changes)
	changes, late, err := l.write(ctx, changes)
	if err != nil {
		return epoch, nil, nil, err
	}
	noted := changes
	if complete {
		maps.DeleteFunc(wanted, func(s netvirt.Scope, _ netvirt.Parts) bool { return late[s] })
		err = l.agrees(epoch, wanted)
		noted = slices.DeleteFunc(slices.Clone(changes), func(c netvirt.Change) bool { return !late[c.Scope()] && !leavesCluster(c) })
	}
	if err == nil {
		err = l.wrote(epoch, noted)
	}
	if len(changes) > 0 {
		l.stir() // observe finds in have what was written
	}
	return epoch, changes, late, err
}

// read reads the backend if its model is unknown, and returns the epoch of the model.
func (l *Loop) read(ctx context.Context) (uint64, error) {
	l.mu.RLock()
	known, epoch := l.known, l.epoch
	l.mu.RUnlock()
	if known {
		return epoch, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	begun := time.Now()
	have, err := readByScope(ctx, l.backend)
	l.metrics.observe("read", begun, err)
	if err != nil {
		return 0, fmt.Errorf("read backend: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return 0, errChanged
	}
	l.have, l.known = have, true
	for s := range l.have {
		l.uncertain[s] = false
	}
	l.stir() // it may have a write that the loop had not noted
	return epoch, nil
}

// markUncertain marks the uncertain scopes that are not in the batch, when absence means gone. So leftovers of an earlier
// run are compared too.
func (l *Loop) markUncertain(batch []netvirt.Scope, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !complete {
		return
	}
	for s, isMarked := range l.uncertain {
		if !isMarked && !slices.Contains(batch, s) {
			l.uncertain[s] = true
			l.Mark(s)
		}
	}
}

// want is the model that the backend should have of a scope: the objects of its kinds, without
// those that it rejected.
func (l *Loop) want(s netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	want, problems := l.source.Want(s)
	want = want.Select(l.backend.Kinds())
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := l.refused(s, want)
	if len(refused) == 0 {
		return want, problems
	}
	whole := want.Model()
	problems = append(problems, l.setAside(s, whole, refused)...)
	return whole.Parts(), problems
}

// diff returns the changes that make the backend's part of a scope equal to the wanted one.
// While the sources are not complete, it returns only changes that create objects. An interface
// that moves to another pod would be changed, so it has to wait. A new interface with ACLs waits too:
// the backend may have entries and members of former policies. New objects that refer
// to such an interface, directly or not, wait with it. The problems name the pods that wait.
func (l *Loop) diff(s netvirt.Scope, want netvirt.Parts, complete bool) ([]netvirt.Change, []coe.Problem) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	changes := netvirt.DiffParts(l.have[s], want)
	if complete {
		return changes, nil
	}
	held := map[netvirt.Key]bool{}
	for _, c := range changes {
		acl, _ := c.New.(netvirt.InterfaceACL)
		joins := netvirt.Interface{Name: acl.Interface}.Key()
		switch {
		case acl.SecurityGroups != "" && l.have[s].Get(joins) == nil:
			held[joins] = true
		case c.Old != nil && c.Key().Kind == netvirt.KindInterface:
			held[c.Key()] = true
		}
	}
	changes = slices.DeleteFunc(changes, func(c netvirt.Change) bool {
		return c.Old != nil || held[c.Key()] || needs(c.New, held, want)
	})
	return changes, waiting(s, want, held)
}

// waiting returns a problem for each pod with an interface that is held.
func waiting(s netvirt.Scope, want netvirt.Parts, held map[netvirt.Key]bool) (problems []coe.Problem) {
	for k := range held {
		if i, found := want.Get(k).(netvirt.Interface); found {
			problems = append(problems, coe.Problem{
				Namespace: string(s), Kind: "pod", UID: i.PodUID, Name: i.Pod, Reason: coe.Waiting,
				Message: fmt.Sprintf("interface %s waits until the bridge has listed everything: the backend may have rules of former policies, or a former pod, and nothing is changed before", i.Name),
			})
		}
	}
	slices.SortFunc(problems, func(a, b coe.Problem) int { return cmp.Compare(a.Message, b.Message) })
	return problems
}

// needs reports whether an object refers, directly or not, to an object that is held.
func needs(o netvirt.Object, held map[netvirt.Key]bool, model netvirt.Parts) bool {
	return slices.ContainsFunc(o.Refs(), func(ref netvirt.Key) bool {
		other := model.Get(ref)
		return held[ref] || other != nil && needs(other, held, model)
	})
}

// write makes the changes. The backend gets all of them in one call. The changes are ordered by
// kind, and a group of objects with common rows has objects of several kinds. If the changes were
// split, the backend would write each group several times. It returns what the backend has made of them, and the
// scopes with changes that the backend has deferred.
func (l *Loop) write(ctx context.Context, changes []netvirt.Change) (made []netvirt.Change, late map[netvirt.Scope]bool, err error) {
	if len(changes) == 0 {
		return nil, nil, nil
	}
	timeout := l.cfg.Timeout * time.Duration(1+len(changes)/changesPerTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun := time.Now()
	err = l.backend.Write(ctx, changes)
	var deferred *netvirt.DeferredError
	if errors.As(err, &deferred) {
		changes, late = without(changes, deferred)
		err = nil
	}
	l.metrics.observe("write", begun, err)
	if err != nil {
		l.reject(changes, err)
		l.forget()
		return nil, nil, fmt.Errorf("write to backend: %w", err)
	}
	l.metrics.changed(changes)
	l.accepted(changes)
	if l.cfg.Pacer != nil {
		l.worker.pause = l.cfg.Pacer.Rest()
	}
	return changes, late, nil
}
