package datastore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

const (
	// reserve stays free on the disk of the embedded etcd, which ends the process where
	// it finds no room: the next segment of its log, and what the database grows by.
	reserve = 128 << 20
	// reserveGrowth is how much more than its bytes a transaction may take: in the log,
	// in the database, and in copies of the database's pages.
	reserveGrowth = 4

	// Where there is ample room, it is looked up once for all that is written in lookFor,
	// as long as that is little beside it.
	ample   = 8 * reserve
	lookFor = 50 * time.Millisecond

	reclaimTimeout = time.Minute
	// reclaimAgain is how long nothing is reclaimed after that was of no use.
	reclaimAgain = time.Minute
)

// room is what an embedded etcd has left. An external one sees to that itself.
type room struct {
	mu    sync.Mutex // held while the database's past is dropped
	until time.Time  // until when that is of no use

	low sync.Mutex // for what follows
	// isLow says that the disk had not enough room when it was looked at last; left is
	// what it had then, less what may have been written since.
	isLow  bool
	left   int64
	looked time.Time
}

// isAmple tells whether there is ample room for bytes more, as far as was looked lately,
// and counts them.
func (r *room) isAmple(bytes int64) bool {
	r.low.Lock()
	defer r.low.Unlock()
	r.left -= bytes
	return r.left >= ample && time.Since(r.looked) < lookFor
}

// txn makes one transaction of about that size in bytes. It returns the revision that it
// made, and whether the comparisons held.
func (d *Datastore) txn(ctx context.Context, size int, compares []clientv3.Cmp, ops []clientv3.Op) (int64, bool, error) {
	if err := d.hasRoom(int64(size)); err != nil {
		return 0, false, err
	}
	revision, made, err := d.send(ctx, compares, ops)
	if errors.Is(err, rpctypes.ErrNoSpace) && d.reclaim(ctx) {
		return d.send(ctx, compares, ops)
	}
	return revision, made, err
}

// send is one call to etcd. For an operation by itself it has a cheaper one.
func (d *Datastore) send(ctx context.Context, compares []clientv3.Cmp, ops []clientv3.Op) (revision int64, made bool, err error) {
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

// hasRoom refuses a transaction for which the disk has no room. It is looked up again
// and again: others write to the disk too.
func (d *Datastore) hasRoom(size int64) error {
	if d.server == nil || d.room.isAmple(reserveGrowth*size) {
		return nil
	}
	free, err := d.server.free()
	if err != nil {
		return fmt.Errorf("%w: look at its disk: %w", ErrUnavailable, err)
	}
	need := reserve + reserveGrowth*size
	d.noteLow(free < need, free, need)
	if free < need {
		return fmt.Errorf("%w: the disk of %s has %d MiB free, and a write needs %d: make room on it", ErrUnavailable, d.cfg.Dir, free>>20, need>>20)
	}
	return nil
}

// noteLow notes what room the disk has, and logs it when that is too little, and when
// it is enough again.
func (d *Datastore) noteLow(isLow bool, free, need int64) {
	d.room.low.Lock()
	defer d.room.low.Unlock()
	switch {
	case isLow && !d.room.isLow:
		d.log.Error("the datastore's disk is full: nothing is written until it has room", "dir", d.cfg.Dir, "free", free, "need", need)
	case !isLow && d.room.isLow:
		d.log.Info("the datastore's disk has room again", "dir", d.cfg.Dir, "free", free)
	}
	d.room.isLow, d.room.left, d.room.looked = isLow, free, time.Now()
}

// free is how many bytes the disk has left.
func (e *embedded) free() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(e.dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// reclaim gives a database that has reached its quota the room that its past takes, and
// tells whether there is enough now. One goroutine does, the others needn't wait.
func (d *Datastore) reclaim(ctx context.Context) bool {
	if d.server == nil || !d.room.mu.TryLock() {
		return false
	}
	defer d.room.mu.Unlock()
	if time.Now().Before(d.room.until) {
		return false
	}
	// Who asked may go: others need it too.
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
		d.room.until = time.Now().Add(reclaimAgain)
		d.log.Error("the datastore is full, and dropping its past makes no room", "size", size, "quota", d.cfg.Quota, "err", err)
		return false
	}
	d.log.Info("the datastore was full; its past is dropped", "size", size, "quota", d.cfg.Quota)
	return true
}

// dropPast forgets all revisions but the last, and returns how large the database is
// then.
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
		err = errors.New("the disk has no room for a smaller copy of the database")
	}
	if err == nil {
		err = backend.Defrag()
	}
	return backend.Size(), err
}
