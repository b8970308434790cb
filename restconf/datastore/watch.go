package datastore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageSize is the number of keys of a page. For each page etcd counts all keys that follow.
	pageSize   = 20_000
	retryAfter = 200 * time.Millisecond
)

// watch feeds the mirror until ctx ends. A broken watch resumes where it was; one
// whose next revision etcd no longer has starts again from a list.
func (d *Datastore) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := d.watchOnce(ctx)
		if errors.Is(err, rpctypes.ErrCompacted) {
			err = d.relist(ctx)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		d.log.Warn("watch of the datastore broke", "revision", d.mirror.revision(), "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// watchOnce follows etcd from the mirror's revision until the watch ends, and
// returns why.
func (d *Datastore) watchOnce(ctx context.Context) error {
	return d.watchFrom(ctx, configPrefix, d.mirror.revision()+1, func(events []*clientv3.Event) error {
		for revision, changes := range byRevision(events) {
			b := Batch{Revision: revision}
			for _, e := range changes {
				d.addEvent(&b, e)
			}
			d.mirror.apply(b)
		}
		return nil
	})
}

// watchFrom calls fn with what changes under prefix from a revision on, until the
// watch ends or fn fails, and returns why.
func (d *Datastore) watchFrom(ctx context.Context, prefix string, revision int64, fn func([]*clientv3.Event) error) error {
	if d.server != nil {
		return d.server.watchFrom(ctx, prefix, revision, fn)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range d.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		if err := fn(resp.Events); err != nil {
			return err
		}
	}
	return errors.New("watch etcd: the stream ended")
}

// byRevision divides events by their revisions. etcd never splits a revision
// between two answers.
func byRevision(events []*clientv3.Event) iter.Seq2[int64, []*clientv3.Event] {
	return func(yield func(int64, []*clientv3.Event) bool) {
		for len(events) > 0 {
			revision := events[0].Kv.ModRevision
			n := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != revision })
			if n < 0 {
				n = len(events)
			}
			if !yield(revision, events[:n]) {
				return
			}
			events = events[n:]
		}
	}
}

func (d *Datastore) addEvent(b *Batch, e *clientv3.Event) {
	if idOf(e.Kv) == historyID {
		b.History = string(e.Kv.Value)
		return
	}
	if top := d.layout.marked(idOf(e.Kv)); top != nil {
		b.marks = append(b.marks, markOf(top, e.Kv))
		return
	}
	u := d.unit(e.Kv)
	switch {
	case u == nil:
	case e.Type == mvccpb.Event_DELETE:
		b.Delete = append(b.Delete, u)
	default:
		d.judge(u)
		b.Put = append(b.Put, u)
	}
}

// unit is the unit that kv holds, or nil for a key that this schema doesn't know:
// a later release may have written it, and it is left alone.
func (d *Datastore) unit(kv *mvccpb.KeyValue) *Unit {
	id := idOf(kv)
	node, key, ok := d.layout.parse(id)
	if !ok {
		d.log.Warn("key of the datastore is unknown to this release", "key", string(kv.Key))
		return nil
	}
	return &Unit{Node: node, Key: key, Raw: kv.Value, ModRevision: kv.ModRevision, id: id}
}

// judge notes and logs that a unit that was put is damaged. A unit that was deleted has no
// value to judge.
func (d *Datastore) judge(u *Unit) {
	if d.cfg.Valid != nil && !d.cfg.Valid(u.Raw) {
		u.Raw, u.Damaged = u.bare(), true
		d.log.Error("key of the datastore holds no entry: it is read as an empty entry; write or delete the entry", "key", configPrefix+u.id)
	}
}

func idOf(kv *mvccpb.KeyValue) string { return strings.TrimPrefix(string(kv.Key), configPrefix) }

// relist makes the mirror equal to etcd as it is now.
func (d *Datastore) relist(ctx context.Context) error {
	var units []*Unit
	var marks []mark
	var history string
	rev, err := d.scan(ctx, configPrefix, func(kv *mvccpb.KeyValue) {
		if idOf(kv) == historyID {
			history = string(kv.Value)
		} else if top := d.layout.marked(idOf(kv)); top != nil {
			marks = append(marks, markOf(top, kv))
		} else if u := d.unit(kv); u != nil {
			d.judge(u)
			units = append(units, u)
		}
	})
	if err != nil {
		return err
	}
	d.mirror.replace(units, marks, history, rev)
	return nil
}

// scan calls fn with every key under prefix, in order, all at the one revision
// that it returns.
func (d *Datastore) scan(ctx context.Context, prefix string, fn func(*mvccpb.KeyValue)) (int64, error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	var rev int64
	for from := prefix; ; {
		resp, err := d.page(ctx, from, end, rev)
		if err != nil {
			return 0, classify("list "+prefix, err)
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			fn(kv)
		}
		if !resp.More {
			return rev, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

func (d *Datastore) page(ctx context.Context, from, end string, rev int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	return d.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(rev), clientv3.WithLimit(pageSize))
}
