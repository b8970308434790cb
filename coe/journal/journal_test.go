package journal_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// steps is a Journal of one change in a Commit. It notes them.
type steps struct {
	written []string
	fail    string // the record whose Commit fails
}

func (s *steps) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (s *steps) MaxOps() int                                     { return 1 }

func (s *steps) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	for key := range puts {
		deletes = append(deletes, key)
	}
	s.written = append(s.written, deletes...)
	if len(deletes) != 1 || deletes[0] == s.fail {
		return errors.New("the datastore is away")
	}
	return nil
}

// TestWriteHasOrder: a record is written after the records that it needs, and deleted before them.
func TestWriteHasOrder(t *testing.T) {
	w := journal.NewWrite()
	require.True(t, w.Empty())
	w.Remove(journal.RankDeleteInstance, "elan/old", nil)
	w.Remove(journal.RankDeleteLease, "lease/old/i", nil)
	w.Put(journal.RankLease, "lease/new/i", 1, nil)
	w.Put(journal.RankBlock, "block/new/10.0.0.0/24", 1, nil)
	w.Put(journal.RankInstance, "elan/new", 1, nil)
	require.True(t, w.Deletes())
	require.True(t, w.Has("elan/new"))
	require.False(t, w.Has("elan/other"))
	s := &steps{}
	require.NoError(t, w.Commit(t.Context(), s))
	require.Equal(t, []string{"elan/new", "block/new/10.0.0.0/24", "lease/new/i", "lease/old/i", "elan/old"}, s.written)

	s = &steps{fail: "lease/new/i"}
	require.ErrorContains(t, w.Commit(t.Context(), s), "write 1 records to the journal: the datastore is away")
	require.Equal(t, "lease/new/i", s.written[len(s.written)-1], "nothing is written after a failure")

	w.Put(journal.RankBlock, "block/other/10.0.1.0/24", func() {}, nil)
	s = &steps{}
	require.ErrorContains(t, w.Commit(t.Context(), s), `encode record "block/other/10.0.1.0/24"`)
	require.Equal(t, []string{"elan/new", "block/new/10.0.0.0/24"}, s.written, "nothing is written after a record that has no JSON form")
}

// TestFactsSetDamagedRecordsAside: a damaged record is a problem until it is replaced or deleted, and the other records are facts.
func TestFactsSetDamagedRecordsAside(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.1")
	whole := `{"node":"192.0.2.1","number":7}`
	for name, c := range map[string]struct{ key, value, why string }{
		"no JSON":         {"node/192.0.2.2", `{`, "unexpected EOF"},
		"incomplete":      {"elan/a", `{}`, "it is incomplete"},
		"a copy":          {"node/192.0.2.2", whole, `it is a copy of record "node/192.0.2.1"`},
		"an unknown kind": {"moon/a", `{}`, "delete it if none did"},
		"no kind":         {"moon", `{}`, "delete it if none did"},
	} {
		t.Run(name, func(t *testing.T) {
			store := state.NewStore(nil, coe.RESTCONF)
			f := journal.NewFacts(store)
			require.ErrorContains(t, f.Apply(true, map[string][]byte{c.key: []byte(c.value), journal.NodeRecord(node): []byte(whole)}, nil), c.key)
			require.EqualValues(t, 7, store.Cluster().Numbers[node].Number)
			require.Len(t, store.Cluster().Damaged, 1)
			require.Contains(t, store.Cluster().Damaged[0].Message, c.why)

			require.NoError(t, f.Apply(false, nil, []string{c.key}))
			require.Empty(t, store.Cluster().Damaged)
			require.NoError(t, f.Apply(true, nil, nil))
			require.Empty(t, store.Cluster().Numbers)
		})
	}
}
