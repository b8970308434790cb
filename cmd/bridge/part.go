package bridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

const (
	// campaignAgain is how long a replica that could not ask for the leadership, or
	// could not take it up, waits.
	campaignAgain = time.Second
	// resignTimeout is how long a replica that stops tries to tell the others.
	resignTimeout = 2 * time.Second
)

// side is a backend, and the loop that knows how far it is.
type side struct {
	loop    *reconcile.Loop
	backend closer
}

func (s side) close() {
	s.loop.Close()
	s.backend.Close()
}

// part is what a replica does with the backends: it leads, or looks on.
type part struct {
	side                          // of the backend that serves
	filled   []side               // of the others
	registry *prometheus.Registry // of the metrics that end with the part

	// Of a leader alone:
	assigner  *ipam.Assigner
	claims    *reconcile.Claims
	confirmer *agentstream.Confirmer
}

// leads tells whether the replica leads.
func (p *part) leads() bool { return p.claims != nil }

func (p *part) close() {
	for _, s := range p.sides() {
		s.close()
	}
}

// sides are all, the one that serves first.
func (p *part) sides() []side { return append([]side{p.side}, p.filled...) }

func (p *part) loops() []*reconcile.Loop {
	var all []*reconcile.Loop
	for _, s := range p.sides() {
		all = append(all, s.loop)
	}
	return all
}

// newOnlooker is the part of a replica that does not lead: its loop reads the
// backend when somebody asks, and never writes.
func (b *Bridge) newOnlooker() (*part, error) {
	looks := fence{datastore: b.data.Identity()}
	backend, err := newBackend(b.cfg.Backend, looks, b.log)
	if err != nil {
		return nil, err
	}
	p := &part{side: side{backend: backend}, registry: prometheus.NewRegistry()}
	// What an onlooker finds is told to those who ask, not measured.
	return p, b.openLoops(p, looks, reconcile.NewMetrics(prometheus.NewRegistry()))
}

// openLoops gives a part the loop of its backend, and those of the others with these. It
// closes the part where it fails.
func (b *Bridge) openLoops(p *part, fence fence, metrics *reconcile.Metrics) error {
	source := b.source(p)
	source.Reached = func(anew []netvirt.Scope, changes []netvirt.Change) { b.reached(p, anew, changes) }
	source.Realised = func(interfaces []string) { b.realised(p, interfaces) }
	source.Mapped = b.mapped
	p.loop = reconcile.New(b.cfg.Reconcile, b.cfg.Backend.Name, p.backend, source, metrics, b.log)
	for _, cfg := range b.cfg.Filled {
		backend, err := newBackend(cfg, fence, b.log)
		if err != nil {
			p.close()
			return err
		}
		loop := reconcile.New(b.cfg.Reconcile, cfg.Name, backend, b.source(p), metrics, b.log)
		p.filled = append(p.filled, side{loop, backend})
	}
	return nil
}

// source is what a backend of a part is made to agree with.
func (b *Bridge) source(p *part) reconcile.Source {
	return reconcile.Source{
		Want:     b.mapper(),
		Complete: func() bool { return b.store.Complete() && (!p.leads() || p.assigner.InUseKnown()) },
		Scopes:   b.scopes,
		Revision: b.store.Revision,
		Heard:    func() bool { return b.store.Revision() >= b.data.Revision() },
	}
}

// takePart looks on until this replica is elected, then leads until another one
// is, and so on until ctx is done.
func (b *Bridge) takePart(ctx context.Context) error {
	for ctx.Err() == nil {
		leadership, err := b.lookOn(ctx)
		if err != nil {
			return err
		}
		if leadership == nil {
			return nil // ctx is done
		}
		err = b.lead(ctx, leadership)
		switch {
		case errors.Is(err, datastore.ErrUnavailable):
			b.log.Warn("take up the leadership", "err", err)
			wait(ctx, campaignAgain)
		case err != nil:
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// lookOn keeps the store's facts as the leader chooses them, until this replica
// leads; nil when ctx is done.
func (b *Bridge) lookOn(ctx context.Context) (*datastore.Leadership, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan error, 2)
	go func() { followed <- b.followFacts(ctx) }()
	go func() { followed <- b.followVIPs(ctx) }()
	leadership := b.campaign(ctx)
	cancel()
	if err := errors.Join(<-followed, <-followed); err != nil && leadership == nil {
		return nil, err
	}
	return leadership, nil
}

// campaign waits until this replica leads; nil when ctx is done.
func (b *Bridge) campaign(ctx context.Context) *datastore.Leadership {
	waiting := time.AfterFunc(time.Second, func() { b.log.Info("another bridge leads; this one looks on until it is elected") })
	defer waiting.Stop()
	for ctx.Err() == nil {
		leadership, err := b.data.Campaign(ctx)
		if err == nil {
			return leadership
		}
		if ctx.Err() != nil {
			break
		}
		b.log.Warn("ask for the leadership", "err", err)
		wait(ctx, campaignAgain)
	}
	return nil
}

// followFacts tells the store what another replica chooses, until ctx is done.
func (b *Bridge) followFacts(ctx context.Context) error {
	facts := ipam.NewFacts(b.store, func(elan string) (string, error) {
		_, namespace, err := netvirt.ParseELANName(elan)
		return namespace, err
	})
	err := b.data.FollowRecords(ctx, chosen, func(batch datastore.RecordBatch) error {
		if err := facts.Apply(batch.Snapshot, batch.Put, batch.Delete); err != nil {
			b.log.Error("follow what the leader chooses", "err", err)
		}
		if batch.Snapshot {
			b.recalled.Store(true)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// followVIPs tells the store which addresses of services another replica claims,
// until ctx is done.
func (b *Bridge) followVIPs(ctx context.Context) error {
	facts := ipam.NewVIPFacts(b.store)
	err := b.data.FollowRecords(ctx, vips, func(batch datastore.RecordBatch) error {
		if err := facts.Apply(batch.Snapshot, batch.Put, batch.Delete); err != nil {
			b.log.Error("follow which addresses services have", "err", err)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lead chooses addresses and makes the backend agree, until ctx is done or the
// leadership is lost.
func (b *Bridge) lead(ctx context.Context, l *datastore.Leadership) error {
	defer b.resign(l)
	p, err := b.newLeader(ctx, l)
	if err != nil {
		return err
	}
	b.log.Info("this bridge leads", "epoch", l.Epoch)
	b.take(p)
	b.repool()
	b.markAll(p)
	g := newGroup(ctx)
	g.run("choose addresses", func(ctx context.Context) error { p.claims.Run(ctx); return nil })
	for _, l := range p.loops() {
		g.run("reconcile", l.Run)
	}
	g.run("confirm", func(ctx context.Context) error { p.confirmer.Run(ctx); return nil })
	if b.cluster != nil {
		g.run("report to Kubernetes", b.report)
	}
	g.run("lead", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-l.Lost:
			b.log.Warn("this bridge leads no more", "epoch", l.Epoch, "why", l.WhyLost())
		}
		return nil
	})
	if err := g.wait(); err != nil {
		return err
	}
	onlooker, err := b.newOnlooker()
	if err != nil {
		return err
	}
	b.take(onlooker)
	return nil
}

// heardPoll is how often it is looked whether the store has followed.
const heardPoll = time.Millisecond

// catchUp sees to it that nothing counts as gone that a leader before this one knew
// of, and this replica does not know of yet. What RESTCONF clients wrote is waited
// for. Kubernetes is asked for all that there is; until it has answered, and be it
// that it can't be reached for hours, nothing is taken for gone.
func (b *Bridge) catchUp(ctx context.Context) error {
	revision, err := b.data.CatchUp(ctx)
	if err != nil {
		return err
	}
	poll := time.NewTicker(heardPoll)
	defer poll.Stop()
	for b.store.Revision() < revision {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
	if b.cluster != nil && b.data.Shared() {
		b.cluster.source.Renew()
	}
	return nil
}

// newLeader is the part of a replica that leads, with what was chosen before.
func (b *Bridge) newLeader(ctx context.Context, l *datastore.Leadership) (*part, error) {
	leads := fence{b.data.Identity(), strconv.FormatInt(l.Epoch, 10), l.Held}
	opened, err := newBackend(b.cfg.Backend, leads, b.log)
	if err != nil {
		return nil, err
	}
	backend := readEarly(ctx, opened)
	if err := b.catchUp(ctx); err != nil {
		backend.Close()
		return nil, err
	}
	p := &part{side: side{backend: backend}, registry: prometheus.NewRegistry()}
	cfg := ipamConfig(b.cfg.Mapping, b.cfg.Nodes.of(b.cfg.Mapping, opened.Kinds()), b.cfg.ReuseDelay)
	cfg.InUse = func(ctx context.Context) ([]ipam.InUse, []ipam.NodeInUse, error) { return inUse(ctx, backend) }
	cfg.VIPs = l.Records(vips)
	cfg.Confirmed = func(ctx context.Context) ([]coe.LeaseKey, error) { return confirmedKeys(ctx, l.Records(confirmed)) }
	p.assigner = ipam.New(cfg, b.store, l.Records(chosen), b.log)
	if err := p.assigner.Load(ctx); err != nil {
		backend.Close()
		return nil, err
	}
	b.recalled.Store(true)
	if err := b.openLoops(p, leads, reconcile.NewMetrics(p.registry)); err != nil {
		return nil, err
	}
	p.confirmer = agentstream.NewConfirmer(b.store, l.Records(confirmed), agentstream.ConfirmedBackend{Has: p.has, Network: p.network}, b.log)
	p.claims = reconcile.NewClaims(b.newClaimer(p, l), b.log, p.loops()...)
	return p, nil
}

// claimer is an Assigner that marks every scope once its Sync knows what is in use: from
// then on, absent objects are removed. The caller of Sync marks the synced namespaces.
type claimer struct {
	*ipam.Assigner
	// repool sets the pools, where nodes have changed.
	repool  func()
	markAll func(except []string)
	// noteComplete writes agentstream.CompleteRecord; nil when that is done.
	noteComplete func(context.Context) error
	log          *slog.Logger
}

func (b *Bridge) newClaimer(p *part, l *datastore.Leadership) *claimer {
	prefix, name, _ := strings.Cut(agentstream.CompleteRecord, "/")
	return &claimer{
		Assigner: p.assigner,
		repool:   b.repoolWhenDue,
		markAll:  func(except []string) { b.markAll(p, except...) },
		noteComplete: func(ctx context.Context) error {
			return l.Records(prefix).Commit(ctx, map[string][]byte{name: []byte("true")}, nil)
		},
		log: b.log,
	}
}

// Sync implements reconcile.Claimer.
func (c *claimer) Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error) {
	c.repool()
	known := c.InUseKnown()
	affected, again, err = c.Assigner.Sync(ctx, namespaces)
	if !known && c.InUseKnown() {
		c.markAll(namespaces)
	}
	if c.noteComplete != nil && c.InUseKnown() {
		if failed := c.noteComplete(ctx); failed != nil {
			c.log.Warn("agents of nodes that were told of no pod wait", "err", failed)
			return affected, min(cmp.Or(again, time.Second), time.Second), err // it is tried again
		}
		c.noteComplete = nil
	}
	return affected, again, err
}

// markAll has a leader look at every scope, some namespaces excepted.
func (b *Bridge) markAll(p *part, except ...string) {
	skip := map[netvirt.Scope]bool{}
	for _, ns := range except {
		skip[netvirt.Scope(ns)] = true
	}
	scopes := slices.DeleteFunc(b.scopes(), func(s netvirt.Scope) bool { return skip[s] })
	p.claims.Mark(append([]netvirt.Scope{netvirt.Cluster}, scopes...)...)
}

// take makes p this replica's part, in place of the one that it had.
func (b *Bridge) take(p *part) { b.part.Swap(p).close() }

// resign gives the leadership up, if it is not lost already.
func (b *Bridge) resign(l *datastore.Leadership) {
	ctx, cancel := context.WithTimeout(context.Background(), resignTimeout)
	defer cancel()
	if err := l.Resign(ctx); err != nil {
		b.log.Debug("resign the leadership", "err", err)
	}
}
