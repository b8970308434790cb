package ovn

import (
	"log/slog"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	testdb "github.com/coe-bridge/coe-bridge/test/ovsdb"
)

// TestReadsAsLibovsdb: what is read of a real database is what libovsdb reads of
// it, of every table and column.
func TestReadsAsLibovsdb(t *testing.T) {
	server := testdb.Start(t)
	b, err := New(Config{Endpoints: server.Endpoint(), Owner: testCodec.owner}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	seen := map[string]bool{}
	for seed := range uint64(5) {
		model := randomModel(seed, 40)
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, model)))
		require.NoError(t, b.with(t.Context(), func(s *session) error {
			requireReadAlike(t, s, seen)
			return nil
		}))
	}
	require.Len(t, seen, len(tables), "a table has no row in this test")
}

// requireReadAlike has a session and its libovsdb client read the same, and notes
// the tables that have rows.
func requireReadAlike(t *testing.T, s *session, seen map[string]bool) {
	t.Helper()
	rows, links := map[string]row{}, map[string][]link{}
	require.NoError(t, s.readAll(t.Context(), testCodec, visitor{
		row: func(of *table, r row) bool {
			rows[of.name+" "+of.uuidOf(r)] = r
			return true
		},
		link: func(l link) { links[l.parent] = append(links[l.parent], l) },
		read: func(*table) {},
	}))
	for _, of := range tables {
		results, err := s.call(t.Context(), ovsdb.Operation{Op: ovsdb.OperationSelect, Table: of.name})
		require.NoError(t, err)
		for _, theirs := range results[0].Rows {
			uuid := theirs["_uuid"].(ovsdb.UUID).GoUUID
			ours := rows[of.name+" "+uuid]
			seen[of.name] = true
			require.NotNil(t, ours, "%s %s", of.name, uuid)
			requireAsLibovsdb(t, of, theirs, ours, links[uuid])
			delete(rows, of.name+" "+uuid)
		}
	}
	require.Empty(t, rows)
}
