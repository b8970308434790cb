package tree

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// busy is a transaction beside which somebody writes as soon as it has read.
type busy struct {
	*datastore.Tx
	write func()
}

func (b busy) Get(node *yang.Node, key ...string) *datastore.Unit {
	u := b.Tx.Get(node, key...)
	b.write()
	return u
}

// The time of an entry is not older than the entry that the transaction relies on. Else
// If-Unmodified-Since would let through what another client has written.
func TestTimesAreNotOlderThanTheirEntries(t *testing.T) {
	tree := newTree(t)
	top := tree.schema.Module("pod").Child("coe")
	pods := top.Child("pod", "pods")
	write := func(uid string) {
		entry := &yang.Data{Node: pods, Children: []*yang.Data{{Node: pods.Keys[0], Value: uid}}}
		at := StepsTo(top).Child(StepOf(entry))
		_, err := tree.Write(t.Context(), Caller{}, []Edit{{Op: Replace, At: at, Data: []*yang.Data{entry}}}, Condition{}, false)
		require.NoError(t, err)
	}
	write(uid1)
	at := StepsTo(top).Child(Step{pods, []string{uid1}})
	err := tree.store.Update(t.Context(), func(tx *datastore.Tx) error {
		version, revision := tree.versionAt(at, busy{tx, func() { // times are whole seconds
			before := tree.store.Changed(top).Time
			require.Eventually(t, func() bool {
				write(uid2)
				return tree.store.Changed(top).Time.After(before)
			}, patience.Patience, 50*time.Millisecond)
		}})
		require.Equal(t, tree.store.Changed(top).Time, version.Modified)
		require.Equal(t, tree.store.Get(pods, uid1).ModRevision, revision)
		return nil
	})
	require.NoError(t, err)
}
