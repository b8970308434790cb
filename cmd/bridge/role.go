package bridge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/vips"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// campaignAgain is how long a replica waits after a campaign, or its start as a leader,
// has failed.
const campaignAgain = time.Second

// side is a backend, and the loop that knows how far it is.
type side struct {
	loop    *reconcile.Loop
	backend reconcile.Backend
	release func() // frees the backend
}

func (s side) close() {
	s.loop.Close()
	s.release()
}

// role is what a replica does with the backends: it leads, or is a standby.
type role struct {
	side                          // of the backend that serves
	filled   []side               // of the others
	byNode   []*reconcile.Loop    // whose backends have the gateways of nodes
	registry *prometheus.Registry // of the metrics that end with the role

	// Only a leader has these:
	assigner  *ipam.Assigner
	claims    *reconcile.Claims
	confirmer *agentstream.Confirmer
	exposer   *agentstream.Exposer
	keeper    *egress.Keeper
	force     *force
	gone      *goneNodes
}

// leads reports whether the replica leads.
func (r *role) leads() bool { return r.claims != nil }

func (r *role) close() {
	for _, s := range r.sides() {
		s.close()
	}
}

// sides lists all sides, the one that serves first.
func (r *role) sides() []side { return append([]side{r.side}, r.filled...) }

func (r *role) loops() []*reconcile.Loop {
	var all []*reconcile.Loop
	for _, s := range r.sides() {
		all = append(all, s.loop)
	}
	return all
}

// noteGateways notes the loop if its backend has the gateways of nodes.
func (r *role) noteGateways(l *reconcile.Loop, s mapping.Settings) {
	if s.Limits.NodeGateways {
		r.byNode = append(r.byNode, l)
	}
}

// markGateways marks the scope of nodes where they have gateways. It must be called before the pods of a new block are
// marked, which wait for its gateway.
func (r *role) markGateways() {
	for _, l := range r.byNode {
		l.Mark(netvirt.Cluster)
	}
}

// errReadOnly is the error for a write of a replica that does not lead.
var errReadOnly = errors.New("this replica does not lead, and writes nothing")

// newStandby returns the role of a replica that does not lead: its loop reads the backend
// when a client asks for the status, and never writes.
func (b *Bridge) newStandby() (*role, error) {
	readOnly := fence{datastore: b.data.Identity(), held: func(context.Context) error { return errReadOnly }}
	backend, err := newBackend(b.cfg.Backend, readOnly, b.log)
	if err != nil {
		return nil, err
	}
	r := &role{side: side{backend: backend, release: backend.Close}, registry: prometheus.NewRegistry()}
	// The results of a standby are reported to clients, and not measured.
	return r, b.openLoops(r, readOnly, reconcile.NewMetrics(prometheus.NewRegistry()))
}

// openLoops gives a role the loop of its backend, and the loops of the others with their
// backends. It closes the role if that fails.
func (b *Bridge) openLoops(r *role, fence fence, metrics *reconcile.Metrics) error {
	cfg := b.cfg.Reconcile
	cfg.Claims = r.claims
	filled := cfg
	if r.leads() {
		cfg.Listener = progress{b, r}
	}
	if b.ports != nil {
		cfg.Pacer = b.ports
	}
	settings := b.settingsOf(r)
	r.loop = reconcile.New(cfg, b.cfg.Backend.Name, r.backend, b.source(r, settings), metrics, b.log)
	r.noteGateways(r.loop, settings)
	for _, other := range b.cfg.Filled {
		backend, err := newBackend(other, fence, b.log)
		if err != nil {
			r.close()
			return err
		}
		settings := b.settings(other, backend)
		loop := reconcile.New(filled, other.Name, backend, b.source(r, settings), metrics, b.log)
		r.noteGateways(loop, settings)
		r.filled = append(r.filled, side{loop, backend, backend.Close})
	}
	return nil
}

// source is what a backend is made to agree with. Its Want is for one goroutine.
type source struct {
	*Bridge
	settings mapping.Settings
	mapper   *mapping.Mapper
	assigner *ipam.Assigner // nil in a standby
	keeper   *egress.Keeper // nil in a standby
}

var _ reconcile.Source = source{}

func (b *Bridge) source(r *role, s mapping.Settings) source {
	return source{b, s, mapping.NewMapper(b.store, s), r.assigner, r.keeper}
}

// settings returns the settings of the mapping for a backend.
func (b *Bridge) settings(cfg BackendConfig, backend reconcile.Backend) mapping.Settings {
	s := b.cfg.Mapping
	s.Limits = limits(cfg, backend.Kinds())
	nodes := b.nodes(backend.Kinds())
	s.NodePorts, s.HostPorts, s.ManagementPorts = nodes.ServedPorts(), nodes.ServedHostPorts(), nodes.ManagementPorts()
	s.NodeAddresses = nodes.Network.IsValid() && !nodes.ManagementPorts()
	s.NodesIPv6 = nodes.HasIPv6()
	s.External = netvirt.NewPrefixList(nodes.External...)
	return s
}

// settingsOf returns the settings of the mapping for the backend that serves.
func (b *Bridge) settingsOf(r *role) mapping.Settings {
	return b.settings(b.cfg.Backend, r.backend)
}

// Want implements reconcile.Source.
func (s source) Want(scope netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	parts, problems := s.mapper.Scope(scope)
	if scope == netvirt.Cluster {
		all := s.allPools()
		problems = slices.Concat(problems, all.problems, ranges.SmallPools(all.pools, s.takers(s.settings)))
	}
	return parts, problems
}

// Scopes implements reconcile.Source.
func (s source) Scopes() []netvirt.Scope { return s.scopes() }

// Complete implements reconcile.Source. Until all policies are known, Want has no interfaces of pods,
// and those that the backend has must stay.
func (s source) Complete() bool {
	return s.store.Complete() && (s.settings.Limits.NoACLs || s.store.PoliciesComplete()) &&
		(s.assigner == nil || s.assigner.InUseKnown() && s.keeper.Settled())
}

// Revision implements reconcile.Source.
func (s source) Revision() int64 { return s.store.Revision() }

// CaughtUp implements reconcile.Source.
func (s source) CaughtUp() bool { return s.store.Notified() && s.store.Revision() >= s.data.Revision() }

// runRoles makes this replica a standby until it is elected, then the leader until
// another replica is elected, and so on until ctx is done.
func (b *Bridge) runRoles(ctx context.Context) error {
	for ctx.Err() == nil {
		leadership, err := b.standBy(ctx)
		if err != nil {
			return err
		}
		if leadership == nil {
			return nil // ctx is done
		}
		err = b.lead(ctx, leadership)
		switch {
		case errors.Is(err, datastore.ErrUnavailable):
			b.log.Warn("start to lead", "err", err)
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

// standBy keeps the leader's choices in the store until this replica is elected; the
// leadership is nil when ctx is done.
func (b *Bridge) standBy(ctx context.Context) (*datastore.Leadership, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follow := []func(context.Context) error{b.followFacts, b.followVIPs, b.followEgress}
	followed := make(chan error, len(follow))
	for _, do := range follow {
		go func() { followed <- do(ctx) }()
	}
	leadership := b.campaign(ctx)
	cancel()
	var err error
	for range follow {
		err = errors.Join(err, <-followed)
	}
	if err != nil && leadership == nil {
		return nil, err
	}
	return leadership, nil
}

// campaign waits until this replica is elected; nil when ctx is done.
func (b *Bridge) campaign(ctx context.Context) *datastore.Leadership {
	waiting := time.AfterFunc(time.Second, func() { b.log.Info("another replica leads; this one is a standby until it is elected") })
	defer waiting.Stop()
	for ctx.Err() == nil {
		leadership, err := b.data.Campaign(ctx)
		if err == nil {
			return leadership
		}
		if ctx.Err() != nil {
			break
		}
		b.log.Warn("campaign for leadership", "err", err)
		wait(ctx, campaignAgain)
	}
	return nil
}

// followFacts keeps the choices of the leader in the store, until ctx is done.
func (b *Bridge) followFacts(ctx context.Context) error {
	facts := journal.NewFacts(b.store)
	err := b.data.FollowRecords(ctx, chosen, func(batch datastore.RecordBatch) error {
		if err := facts.Apply(batch.Snapshot, batch.Put, batch.Delete); err != nil {
			b.log.Error("follow the leader's choices", "err", err)
		}
		if batch.Snapshot {
			b.recalled.happen()
			b.settled.happen()
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// followVIPs keeps the service addresses that the leader has claimed in the store, until
// ctx is done.
func (b *Bridge) followVIPs(ctx context.Context) error {
	facts := vips.NewFacts(b.store)
	err := b.data.FollowRecords(ctx, claimedVIPs, func(batch datastore.RecordBatch) error {
		if err := facts.Apply(batch.Snapshot, batch.Put, batch.Delete); err != nil {
			b.log.Error("follow the addresses of services", "err", err)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// assume makes r the role of this replica, and closes the one before.
func (b *Bridge) assume(r *role) { b.role.Swap(r).close() }
