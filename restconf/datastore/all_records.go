package datastore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// AllRecords are the records of all prefixes, as they were at one revision. Several readers share them.
type AllRecords struct {
	leader   *Leadership
	revision int64
	records  []*mvccpb.KeyValue // by key
}

// ReadRecords reads the records of all prefixes.
func (l *Leadership) ReadRecords(ctx context.Context) (*AllRecords, error) {
	all := &AllRecords{leader: l}
	var err error
	all.revision, err = l.d.scan(ctx, recordsPrefix, func(kv *mvccpb.KeyValue) { all.records = append(all.records, kv) })
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	return all, nil
}

// Records is Records of the leadership, but the first Load returns what was read. The records must not be changed before.
func (a *AllRecords) Records(prefix string) *Records {
	r := a.leader.Records(prefix)
	r.read.Store(a)
	return r
}

// under returns the records below a prefix of keys, by the rest of their keys.
func (a *AllRecords) under(prefix string) map[string][]byte {
	from, _ := slices.BinarySearchFunc(a.records, []byte(prefix), func(kv *mvccpb.KeyValue, prefix []byte) int {
		return bytes.Compare(kv.Key, prefix)
	})
	to := from
	for to < len(a.records) && bytes.HasPrefix(a.records[to].Key, []byte(prefix)) {
		to++
	}
	under := make(map[string][]byte, to-from)
	for _, kv := range a.records[from:to] {
		under[string(kv.Key[len(prefix):])] = kv.Value
	}
	return under
}

// Follow is FollowRecords of all prefixes. The first snapshot is what was read.
func (a *AllRecords) Follow(ctx context.Context, fn func(RecordBatch) error) error {
	f := &recordFollower{d: a.leader.d, prefix: recordsPrefix, fn: fn}
	if err := f.tell(RecordBatch{Revision: a.revision, Snapshot: true, Put: a.under(recordsPrefix)}); err != nil {
		return err
	}
	return f.run(ctx)
}
