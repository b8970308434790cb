package datastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

const (
	// reserve stays free on the disk of the embedded etcd, which ends the process if the
	// disk is full: for the next segment of its log, and for the database to grow.
	reserve = 128 << 20
	// reserveGrowth is how much more than its bytes a transaction may take: in the log,
	// in the database, and in copies of the database's pages.
	reserveGrowth = 4

	// If there is ample space, the disk is checked once for all that is written in lookFor,
	// as long as that is little in comparison.
	ample   = 8 * reserve
	lookFor = 50 * time.Millisecond

	reclaimTimeout = time.Minute
	// reclaimAgain is the pause after a compaction that was of no use.
	reclaimAgain = time.Minute
)

// diskSpace is the free disk space of an embedded etcd. An external one checks its own.
type diskSpace struct {
	mu    sync.Mutex // held while the database is compacted
	until time.Time  // compaction is of no use until then

	low sync.Mutex // for what follows
	// isLow is set if the disk had too little free space at the last check; left is what it
	// had then, less what may have been written since.
	isLow  bool
	left   int64
	looked time.Time
}

// isAmple reports whether there was ample space for so many bytes more at the last check,
// if that was lately, and counts the bytes.
func (r *diskSpace) isAmple(bytes int64) bool {
	r.low.Lock()
	defer r.low.Unlock()
	r.left -= bytes
	return r.left >= ample && time.Since(r.looked) < lookFor
}

// txn makes one transaction of about that size in bytes. It returns the revision that it
// made, and whether the comparisons held. since is a revision before it; 0 if it may be made
// twice.
func (d *Datastore) txn(ctx context.Context, size int, since int64, compares []clientv3.Cmp, ops []clientv3.Op) (int64, bool, error) {
	if err := d.hasSpace(int64(size)); err != nil {
		return 0, false, err
	}
	revision, made, err := d.send(ctx, compares, ops)
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		return revision, made, err
	}
	if since > 0 {
		// etcd refuses the transaction with which the database reaches its quota, and yet makes it.
		if revision, failed := d.made(ctx, since, ops); failed != nil || revision > 0 {
			return revision, failed == nil, failed
		}
	}
	if !d.reclaim(ctx) {
		return 0, false, err
	}
	return d.send(ctx, compares, ops)
}

// made returns the revision after since that has put what the operations put, in one transaction; 0 if there is none.
func (d *Datastore) made(ctx context.Context, since int64, ops []clientv3.Op) (revision int64, err error) {
	puts := slices.DeleteFunc(slices.Clone(ops), func(op clientv3.Op) bool { return !op.IsPut() })
	var reads []clientv3.Op
	for _, op := range puts {
		reads = append(reads, clientv3.OpGet(string(op.KeyBytes())))
	}
	resp, err := d.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return 0, err
	}
	for i, op := range puts {
		has := resp.Responses[i].GetResponseRange().Kvs
		if len(has) == 0 || !bytes.Equal(has[0].Value, op.ValueBytes()) || has[0].ModRevision <= since || revision > 0 && has[0].ModRevision != revision {
			return 0, nil
		}
		revision = has[0].ModRevision
	}
	return revision, nil
}

// send is one call to etcd. For an operation by itself it has a cheaper one.
func (d *Datastore) send(ctx context.Context, compares []clientv3.Cmp, ops []clientv3.Op) (revision int64, made bool, err error) {
	if d.server != nil {
		d.server.past.note(ops, d.server.etcd.Server.Backend().SizeInUse())
	}
	if len(compares) == 0 && len(ops) == 1 && ops[0].IsPut() {
		resp, err := d.client.Do(ctx, ops[0])
		if err != nil {
			return 0, false, err
		}
		return resp.Put().Header.Revision, true, nil
	}
	resp, err := d.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return 0, false, err
	}
	return resp.Header.Revision, resp.Succeeded, nil
}

// hasSpace refuses a transaction for which the disk has too little free space. The disk is
// checked repeatedly: others write to it too.
func (d *Datastore) hasSpace(size int64) error {
	if d.server == nil || d.disk.isAmple(reserveGrowth*size) {
		return nil
	}
	free, err := d.server.free()
	if err != nil {
		return fmt.Errorf("%w: look at its disk: %w", ErrUnavailable, err)
	}
	need := reserve + reserveGrowth*size
	d.noteLow(free < need, free, need)
	if free < need {
		return fmt.Errorf("%w: the disk of %s has %d MiB free, and a write needs %d: free disk space", ErrUnavailable, d.cfg.Dir, free>>20, need>>20)
	}
	return nil
}

// noteLow notes the free space of the disk, and logs when it is too little, and when it is
// enough again.
func (d *Datastore) noteLow(isLow bool, free, need int64) {
	d.disk.low.Lock()
	defer d.disk.low.Unlock()
	switch {
	case isLow && !d.disk.isLow:
		d.log.Error("the datastore's disk is full: nothing is written until it has free space", "dir", d.cfg.Dir, "free", free, "need", need)
	case !isLow && d.disk.isLow:
		d.log.Info("the datastore's disk has free space again", "dir", d.cfg.Dir, "free", free)
	}
	d.disk.isLow, d.disk.left, d.disk.looked = isLow, free, time.Now()
}

// free is how many bytes the disk has left.
func (e *embedded) free() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(e.dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// reclaim compacts a database that has reached its quota, and reports whether there is
// enough space now. One goroutine does it; the others do not wait.
func (d *Datastore) reclaim(ctx context.Context) bool {
	if d.server == nil || !d.disk.mu.TryLock() {
		return false
	}
	defer d.disk.mu.Unlock()
	if time.Now().Before(d.disk.until) {
		return false
	}
	// The caller may go: others need the space too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reclaimTimeout)
	defer cancel()
	size, err := d.server.dropPast(ctx, d.client)
	if err == nil && size > d.cfg.Quota/10*9 {
		err = ErrFull
	}
	if err == nil {
		_, err = d.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	}
	if err != nil {
		d.disk.until = time.Now().Add(reclaimAgain)
		d.log.Error("the datastore is full, and dropping its past frees no space", "size", size, "quota", d.cfg.Quota, "err", err)
		return false
	}
	d.log.Info("the datastore was full; its past is dropped", "size", size, "quota", d.cfg.Quota)
	return true
}

// dropPast compacts all revisions but the last, and returns the size of the database after
// that.
func (e *embedded) dropPast(ctx context.Context, client *clientv3.Client) (int64, error) {
	backend := e.etcd.Server.Backend()
	now, err := client.Get(ctx, root, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return 0, err
	}
	free, err := e.free()
	if err == nil && free < backend.SizeInUse()+reserve {
		err = errors.New("the disk has too little free space for a smaller copy of the database")
	}
	if err == nil {
		err = backend.Defrag()
	}
	return backend.Size(), err
}
