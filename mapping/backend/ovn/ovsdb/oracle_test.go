package ovsdb_test

import (
	"log/slog"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	testdb "github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestReadsAsLibovsdb: of a real database, a Conn reads the same rows as libovsdb, in
// every table and column.
func TestReadsAsLibovsdb(t *testing.T) {
	server := testdb.Start(t)
	var backends []*ovn.Backend // of both layouts
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		b, err := ovn.New(ovn.Config{Endpoints: server.Endpoint(), Layout: layout}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		t.Cleanup(b.Close)
		backends = append(backends, b)
	}
	conn, err := ovsdb.Dial(t.Context(), server.Endpoint(), ovsdb.TestDatabase.Name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	oracle := connect(t, server.Endpoint())
	seen := map[string]bool{}
	for seed := range uint64(5) {
		w, b := backendtest.NewWorld(seed), backends[seed%2]
		for range 40 {
			w.Step()
		}
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, w.ModelFor(b))))
		for _, table := range ovsdb.TestDatabase.Tables {
			requireReadAlike(t, conn, oracle, table, seen)
		}
	}
	require.Len(t, seen, len(ovsdb.TestDatabase.Tables), "a table has no row in this test")
}

func connect(t *testing.T, endpoint string) client.Client {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	require.NoError(t, err)
	c, err := client.NewOVSDBClient(model, client.WithEndpoint(endpoint))
	require.NoError(t, err)
	require.NoError(t, c.Connect(t.Context()))
	t.Cleanup(c.Close)
	return c
}

// requireReadAlike reads a table both ways and compares the rows. It adds the table to
// seen if it has a row.
func requireReadAlike(t *testing.T, conn *ovsdb.Conn, oracle client.Client, table *ovsdb.Table, seen map[string]bool) {
	t.Helper()
	rows, links := map[string]ovsdb.Row{}, map[string][]ovsdb.Link{}
	call, err := conn.Send(t.Context(), []ovsdb.Operation{ovsdb.NewSelect(table, nil)}, &ovsdb.Visitor{
		Row: func(r ovsdb.Row) bool {
			rows[r.UUID()] = r
			return true
		},
		Link: func(l ovsdb.Link) { links[l.Parent] = append(links[l.Parent], l) },
	})
	require.NoError(t, err)
	_, err = conn.Wait(t.Context(), call)
	require.NoError(t, err)
	results, err := oracle.Transact(t.Context(), libovsdb.Operation{Op: libovsdb.OperationSelect, Table: table.Name})
	require.NoError(t, err)
	for _, theirs := range results[0].Rows {
		uuid := theirs["_uuid"].(libovsdb.UUID).GoUUID
		require.Contains(t, rows, uuid, table.Name)
		ovsdb.RequireAsLibovsdb(t, table, theirs, rows[uuid], links[uuid])
		delete(rows, uuid)
		seen[table.Name] = true
	}
	require.Empty(t, rows)
}
