package datastore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Records are the leader's own memory under one prefix: names to bytes. Only who
// leads can change them.
type Records struct {
	leader *Leadership
	prefix string
	read   atomic.Pointer[AllRecords] // what the first Load returns; nil: Load reads
}

// Records opens the records under prefix, for example "leases", for as long as l
// lasts.
func (l *Leadership) Records(prefix string) *Records {
	return &Records{leader: l, prefix: recordsPrefix + prefix + "/"}
}

// MaxOps is how many puts and deletes one Commit takes.
func (r *Records) MaxOps() int { return r.leader.d.cfg.MaxTxnOps }

// Load reads all records, as they are at one revision.
func (r *Records) Load(ctx context.Context) (map[string][]byte, error) {
	if read := r.read.Swap(nil); read != nil {
		return read.under(r.prefix), nil
	}
	records := map[string][]byte{}
	_, err := r.leader.d.scan(ctx, r.prefix, func(kv *mvccpb.KeyValue) {
		records[strings.TrimPrefix(string(kv.Key), r.prefix)] = kv.Value
	})
	if err != nil {
		return nil, fmt.Errorf("load records: %w", err)
	}
	return records, nil
}

// Commit makes all puts and deletes durable, or none. It returns ErrDeposed, and
// has written nothing, when the leadership has gone to another process; it is lost
// then, whatever the lease says.
func (r *Records) Commit(ctx context.Context, puts map[string][]byte, deletes []string) error {
	ops := make([]clientv3.Op, 0, len(puts)+len(deletes))
	size := 0
	for name, value := range puts {
		ops = append(ops, clientv3.OpPut(r.prefix+name, string(value)))
		size += len(name) + len(value)
	}
	for _, name := range deletes {
		ops = append(ops, clientv3.OpDelete(r.prefix+name))
	}
	d := r.leader.d
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	_, made, err := d.txn(ctx, size, 0, []clientv3.Cmp{r.leader.holds()}, ops)
	switch {
	case err == nil && !made:
		r.leader.refused.Store(true)
		r.leader.session.Orphan()
		return fmt.Errorf("commit records: %w", ErrDeposed)
	case err == nil:
		return nil
	}
	if limit := limitError(err, len(ops), size); limit != nil {
		return fmt.Errorf("commit records: %w", limit)
	}
	return classify("commit records", err)
}

// holds compares the election key: it exists, and is the one of this epoch.
func (l *Leadership) holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.Epoch)
}
