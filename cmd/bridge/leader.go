package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/mapping/service"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// The prefixes of the leader's records: its choices, the interfaces that the backend has
// confirmed, and the addresses of each namespace's services. agentstream.ExposedRecords and egress.Records are two more.
const (
	chosen      = "chosen"
	confirmed   = "confirmed"
	claimedVIPs = "vips"
)

// resignTimeout bounds the resignation of a replica that stops.
const resignTimeout = 2 * time.Second

// lead chooses addresses and makes the backends agree, until ctx is done or the
// leadership is lost.
func (b *Bridge) lead(ctx context.Context, l *datastore.Leadership) error {
	defer b.resign(l)
	r, err := b.newLeader(ctx, l)
	if err != nil {
		return err
	}
	b.log.Info("this bridge leads", "epoch", l.Epoch)
	b.assume(r)
	b.repool()
	b.markAll(r.claims)
	g := newGroup(ctx)
	g.run("choose addresses", func(ctx context.Context) error { r.claims.Run(ctx, r.loops()...); return nil })
	for _, l := range r.loops() {
		g.run("reconcile", l.Run)
	}
	g.run("forget deleted nodes", func(ctx context.Context) error { b.forgetGone(ctx, r.gone); return nil })
	g.run("confirm", func(ctx context.Context) error { r.confirmer.Run(ctx); return nil })
	g.run("expose node ports", func(ctx context.Context) error { r.exposer.Run(ctx); return nil })
	g.run("keep egress addresses", func(ctx context.Context) error { r.keeper.Run(ctx); return nil })
	g.run("follow moves of egress addresses", func(ctx context.Context) error { r.force.run(ctx); return nil })
	if b.cluster != nil {
		g.run("report to Kubernetes", b.report)
	}
	if b.cluster != nil && b.cluster.egress != nil {
		g.run("report egress addresses", func(ctx context.Context) error { b.cluster.egress.Run(ctx); return nil })
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
	standby, err := b.newStandby()
	if err != nil {
		return err
	}
	b.assume(standby)
	return nil
}

// newLeader returns the role of a leader, with the choices of the leaders before it.
func (b *Bridge) newLeader(ctx context.Context, l *datastore.Leadership) (*role, error) {
	leads := fence{b.data.Identity(), strconv.FormatInt(l.Epoch, 10), l.Held}
	opened, err := newBackend(b.cfg.Backend, leads, b.log)
	if err != nil {
		return nil, err
	}
	backend, stop := reconcile.Prefetch(ctx, opened, b.settled.happen)
	release := func() {
		stop()
		opened.Close()
	}
	if err := b.catchUp(ctx); err != nil {
		release()
		return nil, err
	}
	all, err := b.readRecords(ctx, l)
	if err != nil {
		release()
		return nil, err
	}
	nodes := b.nodes(opened.Kinds())
	if len(b.cfg.Nodes.NoMasquerade) > 0 && len(nodes.NoMasquerade) == 0 {
		b.log.Warn("--no-masquerade has no effect: it needs management ports of nodes, and --isolation none")
	}
	r := &role{side: side{backend: backend, release: release}, registry: prometheus.NewRegistry(), gone: newGoneNodes()}
	cfg := ipam.Config{
		Isolated: b.cfg.Mapping.Isolated(), NodeBlocks: b.settingsOf(r).Limits.NodeGateways, ReuseDelay: b.cfg.ReuseDelay, Nodes: nodes,
	}
	cfg.InUse = func(ctx context.Context) ([]inuse.Interface, []inuse.Node, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		model, err := backend.Read(ctx)
		if err != nil {
			return nil, nil, err
		}
		interfaces, nodes := inuse.InModel(model)
		return interfaces, nodes, nil
	}
	cfg.Repool, cfg.Forget = b.repoolWhenDue, r.gone.note
	cfg.VIPs = all.Records(claimedVIPs)
	before := all.Records(confirmed)
	cfg.Confirmed = func(ctx context.Context) ([]coe.LeaseKey, error) { return confirmedKeys(ctx, before) }
	r.assigner = ipam.New(cfg, b.store, all.Records(chosen), b.log)
	if err := r.assigner.Load(ctx); err != nil {
		release()
		return nil, err
	}
	r.keeper = b.newKeeper(r, l, opened)
	if err := r.keeper.Load(ctx); err != nil {
		release()
		return nil, err
	}
	b.recalled.happen()
	r.exposer = b.newExposer(r, l)
	r.claims = b.newClaims(r, l)
	if err := b.openLoops(r, leads, reconcile.NewMetrics(r.registry)); err != nil {
		return nil, err
	}
	confirms := agentstream.ConfirmedBackend{
		Has:     r.loop.Confirms,
		Network: func() agentstream.Network { return agentstream.Network{Identity: r.loop.Identity()} },
	}
	if b.cluster != nil {
		confirms.Noted = b.cluster.reporter.Confirmed
	}
	r.confirmer = agentstream.NewConfirmer(b.store, all.Records(confirmed), confirms, b.log)
	return r, nil
}

// catchUp waits until this replica knows all that the leader before it knew, so that
// nothing of that counts as gone. Kubernetes is listed again: until the API server has
// answered, even if that takes hours, nothing from it counts as gone.
func (b *Bridge) catchUp(ctx context.Context) error {
	revision, err := b.data.CatchUp(ctx)
	if err != nil {
		return err
	}
	if err := b.store.WaitRevision(ctx, revision); err != nil {
		return nil // ctx is done
	}
	if b.cluster != nil && b.data.Shared() {
		b.cluster.source.Relist()
	}
	return nil
}

// confirmedKeys lists the interfaces that the backend was known to have.
func confirmedKeys(ctx context.Context, records *datastore.Records) ([]coe.LeaseKey, error) {
	all, err := records.Load(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]coe.LeaseKey, 0, len(all))
	for name := range all {
		if key, ok := agentstream.KeyOf(name); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// claimer is an Assigner that marks every scope once its Sync knows what is in use: from
// then on, absent objects are removed. The caller of Sync marks the synced namespaces.
type claimer struct {
	*ipam.Assigner
	// expose publishes the node ports of namespaces. It follows their claims.
	expose  func(namespaces ...string)
	markAll func(except []string)
	// noteComplete writes agentstream.CompleteRecord; nil when that is done.
	noteComplete func(context.Context) error
	log          *slog.Logger
}

// newExposer returns the Exposer of a leader.
func (b *Bridge) newExposer(r *role, l *datastore.Leadership) *agentstream.Exposer {
	settings := b.settingsOf(r)
	return agentstream.NewExposer(l.Records(agentstream.ExposedRecords), agentstream.ExposedSource{
		HasServices: b.store.HasServices,
		Ports: func(namespace string) []coe.ExposedPort {
			return service.ExposedPorts(b.store.View(namespace), settings.ServiceSettings())
		},
		Complete: func() bool { return b.store.Complete() && r.assigner.InUseKnown() },
	}, b.log)
}

// newClaims returns the Claims of a leader.
func (b *Bridge) newClaims(r *role, l *datastore.Leadership) *reconcile.Claims {
	prefix, name, _ := strings.Cut(agentstream.CompleteRecord, "/")
	c := &claimer{
		Assigner: r.assigner,
		expose:   r.exposer.Mark,
		noteComplete: func(ctx context.Context) error {
			return l.Records(prefix).Commit(ctx, map[string][]byte{name: []byte(b.data.Identity())}, nil)
		},
		log: b.log,
	}
	claims := reconcile.NewClaims(c, b.log)
	c.markAll = func(except []string) { b.markAll(claims, except...) }
	return claims
}

// Sync implements reconcile.Claimer.
func (c *claimer) Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error) {
	known := c.InUseKnown()
	affected, again, err = c.Assigner.Sync(ctx, namespaces)
	c.expose(namespaces...)
	if !known && c.InUseKnown() {
		c.markAll(namespaces)
	}
	if c.noteComplete != nil && c.InUseKnown() {
		if failed := c.noteComplete(ctx); failed != nil {
			c.log.Warn("agents get no snapshot until the sources are recorded as listed", "err", failed)
			return affected, min(cmp.Or(again, time.Second), time.Second), err // it is tried again
		}
		c.noteComplete = nil
	}
	return affected, again, err
}

// markAll marks every scope, except for some namespaces.
func (b *Bridge) markAll(claims *reconcile.Claims, except ...string) {
	skip := map[netvirt.Scope]bool{}
	for _, ns := range except {
		skip[netvirt.Scope(ns)] = true
	}
	scopes := slices.DeleteFunc(b.scopes(), func(s netvirt.Scope) bool { return skip[s] })
	claims.Mark(append([]netvirt.Scope{netvirt.Cluster}, scopes...)...)
}

// progress passes the progress of a leader's loop on: pods to the confirmer, and problems to
// the reporter.
type progress struct {
	b *Bridge
	r *role
}

var _ reconcile.Listener = progress{}

// Mapped implements reconcile.Listener.
func (p progress) Mapped(s netvirt.Scope, problems []coe.Problem) {
	if p.b.cluster != nil {
		p.b.cluster.reporter.Problems(string(s), problems)
	}
}

// Programmed implements reconcile.Listener.
func (p progress) Programmed(scopes []netvirt.Scope, pods []string) {
	marked := map[string]bool{}
	for _, uid := range pods {
		marked[uid] = true
	}
	for _, s := range scopes {
		if s != netvirt.Cluster {
			p.b.podsOf(string(s), marked)
		}
	}
	p.r.confirmer.Mark(slices.Collect(maps.Keys(marked))...)
	p.r.keeper.Wake() // a move may be in force
}

// Observed implements reconcile.Listener.
func (p progress) Observed(pods []string) {
	if pods == nil {
		marked := map[string]bool{}
		for _, namespace := range p.b.store.Namespaces() {
			p.b.podsOf(namespace, marked)
		}
		pods = slices.Collect(maps.Keys(marked))
	}
	p.r.confirmer.Mark(pods...)
}

// podsOf adds the pods of a namespace that have leases.
func (b *Bridge) podsOf(namespace string, pods map[string]bool) {
	for _, l := range b.store.View(namespace).Leases {
		pods[l.PodUID] = true
	}
}

// resign gives up the leadership, if it is not lost already.
func (b *Bridge) resign(l *datastore.Leadership) {
	ctx, cancel := context.WithTimeout(context.Background(), resignTimeout)
	defer cancel()
	if err := l.Resign(ctx); err != nil {
		b.log.Debug("resign the leadership", "err", err)
	}
}
