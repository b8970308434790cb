package tree

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	uid1 = "11111111-1111-4111-8111-111111111111"
	uid2 = "22222222-2222-4222-8222-222222222222"
	uid3 = "33333333-3333-4333-8333-333333333333"
)

func newTree(t *testing.T) *Tree {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	tree, err := New(Config{Schema: schema, Datastore: store})
	require.NoError(t, err)
	return tree
}

// One copy of an entry is kept for many edits. The edits stay as they are: there may be
// another attempt.
func TestEditsKeepOneCopy(t *testing.T) {
	tree := newTree(t)
	coe := StepsTo(tree.schema.Module("pod").Child("coe"))
	pods := coe.Node().Child("pod", "pods")
	pod := func(uid string) Target { return coe.Child(Step{pods, []string{uid}}) }
	below := func(at Target, name string, keys ...string) Target {
		return at.Child(Step{at.Node().Child("pod", name), keys})
	}
	edit := func(op Op, at Target, body string) Edit {
		e := Edit{Op: op, At: at}
		if body != "" {
			parent := at
			if op != Create {
				parent = at.Parent()
			}
			var err error
			e.Data, err = tree.schema.DecodeJSON([]byte(body), parent.Schema(), "", yang.Strict)
			require.NoError(t, err)
		}
		return e
	}
	edits := []Edit{
		edit(Create, coe, `{"pod:pods":[{"uid":"`+uid1+`","name":"x","interface":[{"uid":"`+uid3+`"}]}]}`),
		edit(Create, coe, `{"pod:pods":[{"uid":"`+uid2+`"}]}`),
		edit(Replace, below(pod(uid1), "name"), `{"pod:name":"y"}`),
		edit(Delete, below(pod(uid1), "interface", uid3), ""),
		edit(Merge, pod(uid1), `{"pod:pods":[{"uid":"`+uid1+`","network-NS":"web"}]}`),
		edit(Delete, pod(uid2), ""),
	}
	for range 2 {
		_, err := tree.store.Write(t.Context(), func(tx *datastore.Tx) error {
			a := newAttempt(tree, tx)
			_, err := a.run(t.Context(), Caller{}, edits, Condition{})
			require.NoError(t, err)
			require.Len(t, a.written, 3, "the container's own document and two entries")
			entry, err := a.load(pod(uid1))
			require.NoError(t, err)
			require.Same(t, a.byPath[pod(uid1).Path()].data, entry)
			require.JSONEq(t, `{"uid":"`+uid1+`","name":"y","network-NS":"web"}`, string(tx.Get(entry.Node, uid1).Raw))
			var kept bytes.Buffer
			yang.EncodeObject(&kept, entry)
			require.Equal(t, string(tx.Get(entry.Node, uid1).Raw), kept.String())
			gone, err := a.load(pod(uid2))
			require.NoError(t, err)
			require.Nil(t, gone)
			return errDryRun
		})
		require.ErrorIs(t, err, errDryRun)
	}
}
