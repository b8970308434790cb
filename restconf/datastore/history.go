package datastore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A restore from a backup brings back all that etcd holds, the identity too, and counts
// revisions again from the backup's on. So each opening of the datastore gives a random
// name to the history of revisions that begins then. It stands under two keys, one in each
// prefix that is followed, so that followers learn of it in the order of revisions.
const (
	// HistoryRecord is the name of the history among all records of all prefixes.
	HistoryRecord = "history"
	historyID     = "!history" // among the ids of units
)

// ErrRolledBack says that etcd was restored from a backup while this process was using
// it. The data in memory are of a history that has ended: the process must restart.
var ErrRolledBack = errors.New("the datastore was restored from a backup while it was in use: restart all bridges")

// beginHistory names the history that begins when this process opens etcd. If etcd is full it
// refuses the name, and the previous history goes on.
func (d *Datastore) beginHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	name := strings.ToLower(rand.Text()[:identityLength])
	_, err := d.client.Txn(ctx).Then(clientv3.OpPut(recordsPrefix+HistoryRecord, name), clientv3.OpPut(configPrefix+historyID, name)).Commit()
	if err != nil {
		d.log.Error("history of the datastore is not named: after a restore, followers may miss changes", "err", err)
	}
}

// History reads the name of the present history of the revisions from etcd. It is empty if
// the history was never given a name.
func (d *Datastore) History(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	resp, err := d.client.Get(ctx, recordsPrefix+HistoryRecord)
	if err != nil {
		return "", classify("ask for the history of the datastore", err)
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	return string(resp.Kvs[0].Value), nil
}

// verifyEvery is how often an external etcd is asked for its revision. Its client hides
// from a watch that the servers went away, and a watch from a revision that etcd has not
// reached receives nothing.
const verifyEvery = 5 * time.Second

// keepVerifying looks for a restore under this process until ctx ends.
func (d *Datastore) keepVerifying(ctx context.Context) {
	tick := time.NewTicker(verifyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if errors.Is(d.Ping(ctx), ErrRolledBack) {
			return
		}
	}
}

// verifyRevision ends the mirror where etcd is at a revision that is below one that the
// mirror had reached before etcd was asked.
func (d *Datastore) verifyRevision(reached, revision int64) error {
	if revision >= reached {
		return nil
	}
	d.log.Error("etcd was restored from a backup while this process was using it", "reached", reached, "revision", revision)
	d.mirror.end(ErrRolledBack)
	return fmt.Errorf("revision %d was reached, and etcd is at %d: %w", reached, revision, ErrRolledBack)
}
