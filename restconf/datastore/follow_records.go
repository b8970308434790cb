package datastore

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RecordBatch is what one revision changed of records, by their names below the
// prefix that is followed.
type RecordBatch struct {
	Revision int64
	// Snapshot: Put is every record that there is at Revision, and what is not in
	// it is gone.
	Snapshot bool
	Put      map[string][]byte
	Delete   []string
}

// FollowRecords calls fn with a snapshot of the records under prefix, those that
// Leadership.Records has under it, and then with every change, in the order of
// revisions, each once. An empty prefix stands for all records of all prefixes,
// which have their prefix in their names: "chosen/…". Leader and standby replicas can
// follow.
//
// While etcd is away it waits, and goes on where it was. Where etcd has dropped
// the history that is needed for that, another snapshot comes. It returns fn's
// first error, ctx's when ctx ends, or ErrClosed.
func (d *Datastore) FollowRecords(ctx context.Context, prefix string, fn func(RecordBatch) error) error {
	f := &recordFollower{d: d, prefix: recordsPrefix, fn: fn}
	if prefix != "" {
		f.prefix += prefix + "/"
	}
	return f.run(ctx)
}

// recordFollower is the place that one FollowRecords has reached.
type recordFollower struct {
	d        *Datastore
	prefix   string
	fn       func(RecordBatch) error
	revision int64 // 0: a snapshot is due
	refused  error // of fn
}

// run follows until FollowRecords is to return, and returns what.
func (f *recordFollower) run(ctx context.Context) error {
	for {
		err := f.follow(ctx)
		switch {
		case f.refused != nil:
			return f.refused
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, rpctypes.ErrCompacted):
			f.revision = 0
			continue
		}
		select {
		case <-f.d.mirror.closed:
			return f.d.mirror.why
		case <-ctx.Done():
		case <-time.After(retryAfter):
			f.d.log.Warn("watch of the records broke", "revision", f.revision, "err", err)
		}
	}
}

// follow goes on from the follower's revision until something breaks, and returns
// what.
func (f *recordFollower) follow(ctx context.Context) error {
	if f.revision == 0 {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	return f.d.watchFrom(ctx, f.prefix, f.revision+1, func(events []*clientv3.Event) error {
		for revision, changes := range byRevision(events) {
			if err := f.tell(f.batch(revision, changes)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *recordFollower) list(ctx context.Context) error {
	b := RecordBatch{Snapshot: true, Put: map[string][]byte{}}
	revision, err := f.d.scan(ctx, f.prefix, func(kv *mvccpb.KeyValue) { b.Put[f.name(kv)] = kv.Value })
	if err != nil {
		return err
	}
	b.Revision = revision
	return f.tell(b)
}

func (f *recordFollower) batch(revision int64, changes []*clientv3.Event) RecordBatch {
	b := RecordBatch{Revision: revision, Put: make(map[string][]byte, len(changes))}
	for _, e := range changes {
		if e.Type == mvccpb.Event_DELETE {
			b.Delete = append(b.Delete, f.name(e.Kv))
		} else {
			b.Put[f.name(e.Kv)] = e.Kv.Value
		}
	}
	return b
}

func (f *recordFollower) name(kv *mvccpb.KeyValue) string {
	return strings.TrimPrefix(string(kv.Key), f.prefix)
}

func (f *recordFollower) tell(b RecordBatch) error {
	f.revision = b.Revision
	f.refused = f.fn(b)
	return f.refused
}
