package datastore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// smallDisk is a file system of that size, of a test's own.
func smallDisk(t *testing.T, size int64) string {
	t.Helper()
	if testing.Short() {
		t.Skip("mounts a file system, as root; make test runs it")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)), "run it as root")
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// fillDisk leaves so many bytes free, and returns what gives the rest back.
func fillDisk(t *testing.T, dir string, leave int64) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for size := int64(0); ; {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &fs))
		more := int64(fs.Bavail)*fs.Bsize - leave
		if more <= 0 {
			break
		}
		switch err := unix.Fallocate(int(f.Fd()), 0, size, more); {
		case err == nil:
			size += more
		case !errors.Is(err, unix.ENOSPC): // of which others were faster
			require.NoError(t, err)
		}
	}
	return func() { require.NoError(t, os.Remove(f.Name())) }
}

// If other programs fill the disk, writes fail with the reason, before etcd runs out of
// space. Reads go on. Writes go on as soon as there is free disk space, without a restart.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, 448<<20)
	s := newShapes()
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
	require.NoError(t, err)
	leadership, err := d.Campaign(t.Context())
	require.NoError(t, err)
	records := leadership.Records("leases")
	n := 0
	for range 3 {
		for range 20 {
			require.NoError(t, d.Update(t.Context(), one(s, n, 1<<10)))
			n++
		}
		empty := fillDisk(t, dir, reserve-1<<20)
		revision := d.Revision()
		err := d.Update(t.Context(), one(s, n, 1<<10))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "MiB free, and a write needs 128: free disk space")
		require.ErrorIs(t, records.Commit(t.Context(), map[string][]byte{"a": nil}, nil), ErrUnavailable)
		require.Equal(t, revision, d.Revision())
		require.Len(t, d.Tree(s.coe), n)
		require.NoError(t, d.Ping(t.Context()))
		empty()
		require.NoError(t, records.Commit(t.Context(), map[string][]byte{"a": nil}, nil))
	}
	require.NoError(t, leadership.Resign(t.Context()))
	fillDisk(t, dir, reserve/8)
	require.NoError(t, d.Close(), "it ends in order where there is little room")
	d = open(t, Config{Schema: s.schema, Dir: dir})
	require.Len(t, d.Tree(s.coe), n)
}

// A disk that is filled to the last byte at any moment under load loses no acknowledged
// write. If etcd was at work, the process may end. It starts again by itself as soon as
// there is free disk space.
func TestDiskFilledUnderLoad(t *testing.T) {
	dir := smallDisk(t, 448<<20)
	s := newShapes()
	for round := range 6 {
		_, lines := child(t, writerDir, dir)
		acknowledged := ""
		for range 50 {
			require.True(t, lines.Scan())
			acknowledged = lines.Text()
		}
		empty := fillDisk(t, dir, 0)
		for lines.Scan() { // until a write is refused, or etcd ends the process
			acknowledged = lines.Text()
		}
		t.Logf("round %d: the last acknowledged is %s", round, acknowledged)
		empty()
		d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
		require.NoError(t, err)
		var last int
		_, err = fmt.Sscan(strings.TrimSpace(acknowledged), &last)
		require.NoError(t, err)
		for i := range last + 1 {
			require.NotNil(t, d.Get(s.pods, fmt.Sprint(i)), "%d was acknowledged", i)
		}
		require.NoError(t, d.Update(t.Context(), one(s, last, 1<<10)))
		require.NoError(t, d.Close())
	}
}
