package bridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

const (
	// inForceTimeout is how long hosts may need to follow a move of an egress address. A host that is gone never does.
	inForceTimeout = 5 * time.Second
	// askInForceTimeout bounds a question to the backend. It is long: the backend gives up its connection after an error.
	// inForcePace is the pause before the next question, and inForceAgain that after an error.
	askInForceTimeout = 15 * time.Second
	inForcePace       = 50 * time.Millisecond
	inForceAgain      = time.Second
)

// newKeeper returns the Keeper of egress addresses of a leader.
func (b *Bridge) newKeeper(r *role, l *datastore.Leadership, backend closer) *egress.Keeper {
	hosts, _ := backend.(hostsFollow)
	r.force = newForce(func(name string) (netvirt.EgressIP, bool) {
		o, ok := r.loop.Has(netvirt.Cluster, netvirt.EgressIP{Name: name}.Key()).(netvirt.EgressIP)
		return o, ok
	}, hosts, b.log)
	return egress.New(egress.Config{
		Journal: l.Records(egress.Records), Store: b.store, Port: b.cfg.EgressPort, Unsupported: b.noEgress(backend.Kinds()),
		Refuse: r.assigner.RefuseEgress, InForce: r.force.has, Ask: egress.Ask,
		OnSettled: func() { b.markAll(r.claims) }, Metrics: egress.NewMetrics(r.registry), Log: b.log,
	})
}

// noEgress returns why a backend of these kinds has no egress addresses; empty if it has.
func (b *Bridge) noEgress(kinds netvirt.KindSet) string {
	switch {
	case b.cfg.Kubernetes.EgressLabel == "":
		return "egress addresses are off (--egress-ips)"
	case b.cfg.Mapping.Separates(), !b.nodes(kinds).ManagementPorts(), !kinds.Has(netvirt.KindEgressIP):
		return "egress addresses need the backend OVN with --isolation none and --node-network; the pods leave with the addresses of nodes"
	}
	return ""
}

// hostsFollow is a backend that knows what its hosts have.
type hostsFollow interface {
	RequestInForce(ctx context.Context) (number int, err error)
	// InForce reports whether the backend itself and all its hosts follow a request.
	InForce(ctx context.Context, number int) (backend, hosts bool, err error)
}

// force knows whether moves of egress addresses are in force. run asks the backend, with one request for all moves that
// wait, so neither many moves nor a backend that hangs delay the replacement of a dead node.
type force struct {
	written func(name string) (netvirt.EgressIP, bool) // what the backend has of an EgressIP
	hosts   hostsFollow                                // nil if the backend has no hosts
	log     *slog.Logger
	wake    chan struct{}

	mu       sync.Mutex
	requests map[string]request // by name of the EgressIP
	// next is the number of the next round of questions, from 1. The backend has followed what was written before the round
	// computed, and hosts what was written before the round done.
	next, computed, done uint64
}

// request is a move that the backend has taken, and that waits for hosts.
type request struct {
	host  netip.Addr
	round uint64    // that must be done
	since time.Time // when only hosts were missing; zero before
	asked time.Time // last
}

func newForce(written func(string) (netvirt.EgressIP, bool), hosts hostsFollow, log *slog.Logger) *force {
	return &force{written: written, hosts: hosts, log: log, wake: make(chan struct{}, 1), requests: map[string]request{}, next: 1}
}

// has reports whether the network has an EgressIP as it is, on every host that answers in time. It has no deadline while the
// backend has not taken the move, or has not computed what hosts must do.
func (f *force) has(e *coe.EgressIP) bool {
	there, ok := f.written(e.Name)
	there.Active = min(there.Active, uint8(len(there.Hosts)))
	is := ok && there.Active == e.Active && there.Hosts[e.Active-1].Node == e.Host()
	if is && f.hosts == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !is {
		delete(f.requests, e.Name)
		return false
	}
	r, found := f.requests[e.Name]
	if now := time.Now(); !found || r.host != e.Host() || now.Sub(r.asked) > inForceTimeout {
		r = request{host: e.Host(), round: f.next}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if r.asked = time.Now(); r.since.IsZero() && r.round <= f.computed {
		r.since = r.asked
	}
	f.requests[e.Name] = r
	late := !r.since.IsZero() && time.Since(r.since) >= inForceTimeout
	if r.round > f.done && !late {
		return false
	}
	if r.round > f.done {
		f.log.Warn("a host has not confirmed in time that the pods of an EgressIP leave by another node", "egressip", e.Name)
	}
	delete(f.requests, e.Name)
	return true
}

// run asks the backend whether hosts follow, until ctx is done.
func (f *force) run(ctx context.Context) {
	for ctx.Err() == nil {
		round, waits := f.begin()
		if !waits {
			select {
			case <-ctx.Done():
			case <-f.wake:
			}
			continue
		}
		if err := f.follow(ctx, round); err != nil {
			f.log.Debug("hosts do not follow a move of an egress address", "err", err)
			wait(ctx, inForceAgain)
			continue
		}
		f.mu.Lock()
		f.done = round
		f.mu.Unlock()
	}
}

// begin begins a round, if a request waits for one.
func (f *force) begin() (round uint64, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		waits = waits || r.round > f.done && time.Since(r.asked) < inForceTimeout
	}
	if waits {
		f.next++
	}
	return f.next - 1, waits
}

// follow waits until the backend has computed what was written before, and a time for all hosts.
func (f *force) follow(ctx context.Context, round uint64) error {
	ctx, cancel := context.WithTimeout(ctx, askInForceTimeout)
	defer cancel()
	number, err := f.hosts.RequestInForce(ctx)
	for begun := time.Now(); err == nil && time.Since(begun) < inForceTimeout; wait(ctx, inForcePace) {
		computed, hosts, failed := f.hosts.InForce(ctx, number)
		if err = failed; computed {
			f.mu.Lock()
			f.computed = round
			f.mu.Unlock()
		}
		if hosts {
			return nil
		}
	}
	return cmp.Or(err, errors.New("northd or a host does not follow"))
}

// followEgress keeps the EgressIPs that the leader has accepted in the store, until ctx is done.
func (b *Bridge) followEgress(ctx context.Context) error {
	records := map[string][]byte{}
	err := b.data.FollowRecords(ctx, egress.Records, func(batch datastore.RecordBatch) error {
		if batch.Snapshot {
			clear(records)
		}
		for name, value := range batch.Put {
			records[name] = value
		}
		for _, name := range batch.Delete {
			delete(records, name)
		}
		set, _ := egress.Decode(records)
		b.store.Update(func(tx *state.Tx) { tx.SetEgress(set.EgressIPs, nil) })
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
