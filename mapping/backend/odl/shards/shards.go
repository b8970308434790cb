// Package shards keeps the parts of the datastore of a cluster of OpenDaylights (its shards) working. The members elect a leader of each shard, and only that
// commits transactions. After a member was separated from the others, a shard can get a leader that neither commits nor aborts a transaction, and no
// later one. Then the cluster programs no new port. The package lets another member lead such a shard (decision 113).
//
// The package reads what the members say of their shards over JMX (Jolokia, which OpenDaylight's RESTCONF brings with it), and calls the RPC
// make-leader-local of module cluster-admin. It knows nothing of what is in the datastore.
package shards

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

const (
	// answerTimeout bounds the answer of a member about its shards: a frozen one answers nothing, and the others wait for it.
	answerTimeout = 3 * time.Second
	// moveTimeout bounds the move of a shard. A leader that is stuck gives its shard up after ten seconds.
	moveTimeout = 30 * time.Second
	// refusedLooks is after how many looks in a row the log says that no member says something of its shards. A member that starts answers before it does.
	refusedLooks = 12
	// maxDoublings limits how many times the wait doubles when moves of a shard are in vain.
	maxDoublings = 4
)

// Config configures a Keeper.
type Config struct {
	// Client sends the requests.
	Client *controller.Client
	// URLs are the members of the cluster.
	URLs []string
	// Poll is the interval of the looks at the shards. It is a fifth of that while transactions wait.
	Poll time.Duration
	// StuckAfter is how long transactions of a shard must wait, without one that is committed, until another member leads it.
	StuckAfter time.Duration
}

// Keeper lets another member lead a shard that is stuck. Use may be called concurrently with Keep.
type Keeper struct {
	cfg     Config
	log     *slog.Logger
	current atomic.Pointer[controller.Session] // the last one, perhaps ended; nil if there was none
	waiting map[string]waiting                 // by replica at which transactions wait
	refused int                                // how many looks in a row no member has said something of its shards, though one has answered
}

// waiting is how long transactions of a shard wait at a replica.
type waiting struct {
	committed int       // as the replica has it
	since     time.Time // when that was seen first, or when the last move began
	leads     bool      // the last look has seen that it leads
	tries     int       // how many moves were in vain
}

// New returns a Keeper that has seen no shard.
func New(cfg Config, log *slog.Logger) *Keeper {
	return &Keeper{cfg: cfg, log: log, waiting: map[string]waiting{}}
}

// Use sets the session that says how RPCs of the members are called. Without one nothing is looked at.
func (k *Keeper) Use(s *controller.Session) { k.current.Store(s) }

// Keep looks at the shards, and moves those that are stuck, until ctx ends. There must be one Keep of a Keeper at a time.
func (k *Keeper) Keep(ctx context.Context) {
	next := time.NewTimer(k.cfg.Poll)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if s := k.current.Load(); s != nil {
			k.look(ctx, s)
		}
		if len(k.waiting) == 0 {
			next.Reset(k.cfg.Poll)
		} else {
			next.Reset(k.cfg.Poll / 5)
		}
	}
}

// look looks at the shards once. It moves those that are stuck at the same time: each takes some seconds.
func (k *Keeper) look(ctx context.Context, s *controller.Session) {
	members := k.read(ctx)
	var moves sync.WaitGroup
	defer moves.Wait()
	for _, id := range k.stuck(members, time.Now()) {
		moves.Go(func() { k.move(ctx, s, id, members) })
	}
}

// read reads what each member says of its replicas, in the order of the URLs; nil of a member that says nothing.
func (k *Keeper) read(ctx context.Context) []Replicas {
	members := make([]Replicas, len(k.cfg.URLs))
	failures := make([]error, len(k.cfg.URLs))
	var reads sync.WaitGroup
	for i, url := range k.cfg.URLs {
		reads.Go(func() { members[i], failures[i] = Read(ctx, k.cfg.Client, url) })
	}
	reads.Wait()
	says := func(all Replicas) bool { return all != nil }
	switch {
	case slices.ContainsFunc(members, says):
		k.refused = 0
	case slices.ContainsFunc(failures, isAnswer):
		if k.refused++; k.refused == refusedLooks {
			k.log.Warn("no member of OpenDaylight's cluster says something of its shards; after a fault a shard can commit nothing until its leader is restarted",
				"err", errors.Join(failures...))
		}
	}
	return members
}

// stuck returns the replicas that lead shards of which no transaction was committed for Config.StuckAfter, though some wait. The time goes on while a replica
// does not lead: one that leads again can still have such a transaction. stuck forgets replicas at which none waits.
func (k *Keeper) stuck(members []Replicas, now time.Time) (due []string) {
	for _, all := range members {
		for id, r := range all {
			if r.Waiting == 0 {
				delete(k.waiting, id)
				continue
			}
			w, known := k.waiting[id]
			if !known || r.Committed != w.committed {
				w = waiting{committed: r.Committed, since: now}
			}
			led := w.leads
			w.leads = r.Role == Leads
			if led && w.leads && now.Sub(w.since) >= k.cfg.StuckAfter<<min(max(w.tries-1, 0), maxDoublings) {
				due = append(due, id)
				w.since = now
				w.tries++
			}
			k.waiting[id] = w
		}
	}
	slices.Sort(due)
	return due
}

// move lets the first member that follows the leader of a shard, and is able to, lead it.
func (k *Keeper) move(ctx context.Context, s *controller.Session, leader string, members []Replicas) {
	of := shardOf(leader)
	log := k.log.With("shard", of.name, "datastore", of.store, "leader", leader)
	failure := errors.New("no other member follows its leader")
	for i, all := range members {
		if !all.follow(leader) {
			continue
		}
		err := MakeLeader(ctx, s, k.cfg.URLs[i], leader)
		if err == nil {
			log.Warn("OpenDaylight committed no transaction of a shard, and another member leads it now", "by", k.cfg.URLs[i])
			return
		}
		failure = err
	}
	if ctx.Err() == nil {
		log.Warn("OpenDaylight commits no transaction of a shard, and no other member could be made its leader; if this goes on, restart the member that leads it", "err", failure)
	}
}

// MakeLeader lets the member at a URL lead the shard of a replica. The session is one with a member of the same cluster.
func MakeLeader(ctx context.Context, s *controller.Session, url, replica string) error {
	type input struct {
		Name  string `json:"shard-name"`
		Store string `json:"data-store-type"`
	}
	of := shardOf(replica)
	q, err := s.Operation(url, "cluster-admin:make-leader-local", input{of.name, of.store})
	if err != nil {
		return err
	}
	q.Timeout, q.Apart = moveTimeout, true
	return s.Send(ctx, q, nil)
}
