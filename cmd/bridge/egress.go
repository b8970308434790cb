package bridge

import (
	"context"
	"log/slog"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

const (
	// inForceTimeout is how long hosts may need to follow a move of an egress address. A host that is gone never does.
	inForceTimeout = 5 * time.Second
	// askInForceTimeout bounds a question to the backend.
	askInForceTimeout = time.Second
)

// newKeeper returns the Keeper of egress addresses of a leader.
func (b *Bridge) newKeeper(r *role, l *datastore.Leadership, backend closer) *egress.Keeper {
	unsupported := ""
	if b.cfg.Kubernetes.EgressLabel == "" {
		unsupported = "egress addresses are off (--egress-ips)"
	} else if !b.nodes(backend.Kinds()).ManagementPorts() || !backend.Kinds().Has(netvirt.KindEgressIP) {
		unsupported = "egress addresses need the backend OVN with --isolation none and --node-network; the pods leave with the addresses of nodes"
	}
	force := &force{role: r, requests: map[string]request{}, log: b.log}
	force.hosts, _ = backend.(hostsFollow)
	return egress.New(egress.Config{
		Journal: l.Records(egress.Records), Store: b.store, Port: b.cfg.EgressPort, Unsupported: unsupported,
		Refuse: r.assigner.RefuseEgress, InForce: force.has, Ask: egress.Ask,
		OnSettled: func() { b.markAll(r.claims) }, Log: b.log,
	})
}

// hostsFollow is a backend that knows what its hosts have.
type hostsFollow interface {
	RequestInForce(ctx context.Context) (number int, err error)
	InForce(ctx context.Context, number int) (bool, error)
}

// force knows whether moves of egress addresses are in force.
type force struct {
	role     *role
	hosts    hostsFollow        // nil if the backend has no hosts
	requests map[string]request // by name of the EgressIP
	log      *slog.Logger
}

// request is a request to the backend for a move.
type request struct {
	host   string
	number int // 0 until the backend has taken the request
	since  time.Time
}

// has reports whether the network has an EgressIP as it is, on every host that answers in time.
func (f *force) has(ctx context.Context, e *coe.EgressIP) bool {
	there, ok := f.role.loop.Has(netvirt.Cluster, netvirt.EgressIP{Name: e.Name}.Key()).(netvirt.EgressIP)
	there.Active = min(there.Active, uint8(len(there.Hosts)))
	is := ok && there.Active == e.Active && there.Hosts[e.Active-1].Node == e.Host()
	if is && f.hosts == nil {
		return true
	}
	r := f.requests[e.Name]
	if host := e.Host().String(); r.host != host || time.Since(r.since) > 2*inForceTimeout {
		r = request{host: host, since: time.Now()}
	}
	in, err := false, error(nil)
	if is {
		in, err = f.follow(ctx, &r)
	}
	f.requests[e.Name] = r
	if !in && time.Since(r.since) < inForceTimeout {
		return false
	}
	if !in {
		f.log.Warn("a host has not confirmed in time that the pods of an EgressIP leave by another node", "egressip", e.Name, "err", err)
	}
	delete(f.requests, e.Name)
	return true
}

// follow reports whether all hosts follow.
func (f *force) follow(ctx context.Context, r *request) (in bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askInForceTimeout)
	defer cancel()
	if r.number == 0 {
		if r.number, err = f.hosts.RequestInForce(ctx); err != nil {
			return false, err
		}
	}
	return f.hosts.InForce(ctx, r.number)
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
		b.store.Update(func(tx *coe.Tx) { tx.SetEgress(set.EgressIPs, nil) })
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
