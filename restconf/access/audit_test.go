package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var written = Record{
	Who: Identity{Name: "ann", Role: Writer, By: ByPassword}, From: "192.0.2.1:40000", Method: "PUT", Path: "/rests/data/a:b=%2F\n",
	Status: 201, Revision: 7,
}

func TestAuditRecords(t *testing.T) {
	var out bytes.Buffer
	b := newBed(t, Config{UsersFile: file(t, line(t, "ann", "writer", "one")), AuditLog: "-", AuditOutput: &out})
	b.Audit().Record(written)
	b.Audit().Record(Record{Who: Identity{Name: "bob", Role: Reader, By: ByCertificate}, From: "@", Method: "DELETE", Path: "/", Status: 403})
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 3, "a line each")
	var first, second map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &second))
	require.NotEmpty(t, first["time"])
	delete(first, "time")
	delete(second, "time")
	require.Equal(t, map[string]any{
		"msg": "write", "user": "ann", "role": "writer", "by": "password", "from": "192.0.2.1:40000",
		"method": "PUT", "path": "/rests/data/a:b=%2F\n", "status": 201.0, "revision": 7.0,
	}, first)
	require.Equal(t, map[string]any{
		"msg": "write", "user": "bob", "role": "reader", "by": "certificate", "from": "@", "method": "DELETE", "path": "/", "status": 403.0,
	}, second)
	var none *Audit
	none.Record(written)
}

// Rotation loses no record, whether it renames the file or truncates it.
func TestAuditLogIsRotated(t *testing.T) {
	path := t.TempDir() + "/audit.log"
	b := newBed(t, Config{UsersFile: file(t, line(t, "ann", "writer", "one")), AuditLog: path})
	record := func(n int) {
		r := written
		r.Revision = int64(n)
		b.Audit().Record(r)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { record(i + 1) })
	}
	require.NoError(t, os.Rename(path, path+".1"))
	all.Wait()
	b.eventually(func() bool { _, err := os.Stat(path); return err == nil }, "it is created again")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	b.eventually(func() bool {
		record(101)
		return len(revisions(t, path)) > 0
	}, "what comes is in the new one")
	found := map[int64]bool{}
	for _, p := range []string{path, path + ".1"} {
		for _, r := range revisions(t, p) {
			found[r] = true
		}
	}
	require.Len(t, found, 101)

	require.NoError(t, os.Truncate(path, 0)) // copytruncate
	record(102)
	require.Equal(t, []int64{102}, revisions(t, path))
}

func revisions(t *testing.T, path string) (all []int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var r struct{ Revision int64 }
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		all = append(all, r.Revision)
	}
	return all
}

// full is a disk that is full for a while: it takes the beginning of a line.
type full struct {
	bytes.Buffer
	is bool
}

func (f *full) Write(p []byte) (int, error) {
	if f.is {
		n, _ := f.Buffer.Write(p[:10])
		return n, fmt.Errorf("write audit.log: %w", os.ErrInvalid)
	}
	return f.Buffer.Write(p)
}

// A record that can't be written is counted, and said once; the next is whole.
func TestAuditLogThatIsFull(t *testing.T) {
	out := &full{is: true}
	b := newBed(t, Config{UsersFile: file(t, line(t, "ann", "writer", "one")), AuditLog: "-", AuditOutput: out})
	b.Audit().Record(written)
	b.Audit().Record(written)
	require.Equal(t, 2.0, b.metric("coe_bridge_audit_failures_total", ""))
	require.Equal(t, 1, strings.Count(b.log.String(), "can't be recorded"))
	out.is = false
	b.Audit().Record(written)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.True(t, json.Valid([]byte(lines[len(lines)-1])))
}
