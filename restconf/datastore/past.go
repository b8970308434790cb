package datastore

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// A compaction begins when the database has grown by leastPast, or by one part in pastShare of its
	// size if that is more: it reads the whole database.
	leastPast = 4 << 20
	pastShare = 4
	// The last compaction is made pastRests after the database has grown. A start counts as growth,
	// because a former run may have left old revisions.
	pastRests = time.Minute
	// A snapshot is made when the requests in the log have this size, or snapshotCount requests are in it.
	logSize = 8 << 20
)

// past bounds what an embedded etcd keeps of the past: old revisions, which are in the database and in
// the index in memory, and the log of requests. The bounds of etcd are numbers of revisions and of
// requests, and one of them can have thousands of records. Only watches that have not received a
// revision yet need it.
type past struct {
	grown  chan struct{} // holds one value when a compaction is due
	logged chan struct{} // holds one value when a snapshot is due

	mu sync.Mutex
	// least is the smallest size of the database since the last compaction began, so about its size
	// after that compaction.
	least int64
	// requests and bytes are in the log since the last snapshot.
	requests, bytes int
}

func newPast() *past {
	return &past{grown: make(chan struct{}, 1), logged: make(chan struct{}, 1)}
}

// note notes a request, and the size of the database before it.
func (p *past) note(ops []clientv3.Op, inUse int64) {
	bytes := 0
	for _, op := range ops {
		bytes += len(op.KeyBytes()) + len(op.ValueBytes())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.bytes += bytes
	if p.bytes >= logSize {
		notify(p.logged)
	}
	if p.bytes >= logSize || p.requests > snapshotCount { // etcd makes a snapshot itself after snapshotCount
		p.requests, p.bytes = 0, 0
	}
	if p.least == 0 || inUse < p.least {
		p.least = inUse
	}
	if inUse-p.least >= max(leastPast, p.least/pastShare) {
		p.least = inUse
		notify(p.grown)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// boundPast makes compactions and snapshots when they are due, until ctx ends. A compaction keeps the
// revisions since the one before it, so that watches that lag a little can go on.
func (d *Datastore) boundPast(ctx context.Context) {
	p, kept := d.server.past, d.server.revision()
	rests := time.NewTimer(pastRests)
	defer rests.Stop()
	var snapshotAgain <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.logged:
			if !d.server.snapshot(ctx) {
				snapshotAgain = time.After(pastRests)
			}
			continue
		case <-snapshotAgain:
			notify(p.logged)
			continue
		case <-p.grown:
			rests.Reset(pastRests)
		case <-rests.C:
		}
		now := d.server.revision()
		if err := d.compact(ctx, kept); err != nil && ctx.Err() == nil {
			d.log.Warn("drop old revisions of the datastore; trying again in a minute", "revision", kept, "err", err)
			rests.Reset(pastRests)
			continue
		}
		kept = now
	}
}

// compact drops what only revisions before this one have. It does not wait until that is done: etcd
// goes on after a restart.
func (d *Datastore) compact(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	_, err := d.client.Compact(ctx, revision)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // reclaim was first, or nothing was written
	}
	return err
}
