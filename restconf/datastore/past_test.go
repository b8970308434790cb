package datastore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// turnSize is the size of the records that churn puts in a turn, in one transaction.
	turnSize = 512 << 10
	// usedSize and fileSize bound a database whose records come and go: what it uses at times, and its file always. The file grows
	// by 16 MiB at a time.
	usedSize = 24 << 20
	fileSize = 48 << 20
)

// churn lets records come and go, in some transactions with many records.
func churn(t *testing.T, r *Records, turns int) {
	t.Helper()
	const many = 64
	value := bytes.Repeat([]byte("x"), turnSize/many)
	for turn := range turns {
		puts := map[string][]byte{}
		var names []string
		for i := range many {
			names = append(names, fmt.Sprintf("%d-%d", turn, i))
			puts[names[i]] = value
		}
		insist(t, r, puts, nil)
		insist(t, r, nil, names)
	}
}

// insist commits, again if etcd has given up, as it does after seven seconds.
func insist(t *testing.T, r *Records, puts map[string][]byte, deletes []string) {
	t.Helper()
	err := ErrUnavailable
	require.Eventually(t, func() bool {
		err = r.Commit(t.Context(), puts, deletes)
		return !errors.Is(err, ErrUnavailable)
	}, patience.Patience, time.Millisecond)
	require.NoError(t, err)
}

// heldSegments counts the files of the log that have requests since the last snapshot.
func heldSegments(t *testing.T, dir string) (held int) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
	require.NoError(t, err)
	for _, s := range segments {
		if f, err := fileutil.TryLockFile(s, os.O_WRONLY, fileutil.PrivateFileMode); err == nil {
			require.NoError(t, f.Close())
		} else {
			require.ErrorIs(t, err, fileutil.ErrLocked)
			held++
		}
	}
	return held
}

// TestPast: what records held before does not fill the database, although etcd has few revisions. A follower that has missed
// revisions gets a snapshot, and nothing that was acknowledged is lost.
func TestPast(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
	require.NoError(t, err)
	leader, err := d.Campaign(t.Context())
	require.NoError(t, err)
	records := leader.Records("chosen")
	commit(t, records, map[string]string{"kept": "1"})
	put(t, d, s.pods, "kept", `1`)

	l := &ledger{t: t}
	blocked, waits := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- d.FollowRecords(t.Context(), "chosen", func(b RecordBatch) error {
			if l.apply(b); l.snapshots == 1 && len(l.state) == 1 {
				close(waits)
				<-blocked
			}
			if l.state["last"] != "" {
				return errSeen
			}
			return nil
		})
	}()
	<-waits
	backend := d.server.etcd.Server.Backend()
	for range 8 { // 64 MiB
		for churn(t, records, 16); backend.SizeInUse() > usedSize; churn(t, records, 1) {
			require.Less(t, backend.Size(), int64(fileSize))
		}
	}
	require.Less(t, backend.Size(), int64(fileSize))
	close(blocked)
	commit(t, records, map[string]string{"last": "1"})
	require.ErrorIs(t, <-ended, errSeen)
	require.Equal(t, map[string]string{"kept": "1", "last": "1"}, l.state)
	require.Equal(t, 2, l.snapshots)
	require.Less(t, d.server.revision(), int64(snapshotCount), "etcd bounds the log by the number of requests")
	require.Eventually(t, func() bool { return heldSegments(t, dir) <= 2 }, patience.Patience, 10*time.Millisecond, "the others may go")
	require.NoError(t, leader.Resign(t.Context()))
	require.NoError(t, d.Close())

	d = open(t, Config{Schema: s.schema, Dir: dir})
	require.NotNil(t, d.Get(s.pods, "kept"))
	loaded, err := lead(t, d).Records("chosen").Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"kept": []byte("1"), "last": []byte("1")}, loaded)
}
