package odl

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/operational"
)

// aclservice has listeners of its own for access lists and for interfaces. If it reads of an
// interface before it knows a list of the interface, the rules of this list are missing on the
// interface; if it reads that a list was deleted before it has removed the rules from an
// interface, they stay. So writes of interfaces wait until it knows all new lists, and deletions
// of lists wait until no interface has them.

// idPools is the list with the pool that has a tag for each list that aclservice knows.
var idPools = codec.List{Module: "id-manager", Container: "id-pools", Name: "id-pool"}

const tagPool = "ACL-TAG-POOL"

// awaitKnown waits until aclservice knows new lists.
func (w *write) awaitKnown(ctx context.Context, all []*codec.Operation) error {
	return w.await(ctx, len(all), func() (left int, err error) {
		known, err := w.tagged(ctx)
		for _, o := range all {
			if !known[o.Key()] && !w.isRefused(o) {
				left++
			}
		}
		return left, err
	})
}

// createLists creates access lists. Aclservice gives an interface the rules of a list when it gets the list, or when the list gets a
// rule. So if interfaces name a list that does not exist, because an external writer has deleted it, createLists creates it without
// rules, and adds them when aclservice knows it.
func (w *write) createLists(ctx context.Context, all []*codec.Operation) error {
	create := make([]*codec.Operation, len(all))
	var named []*codec.Operation
	w.mu.Lock()
	for i, o := range all {
		if create[i] = o; !w.mirror.Named(o) {
			continue
		}
		empty, full := *o, *o
		empty.Entry, full.There = codec.WithoutRules(o.Entry), true
		create[i], named = &empty, append(named, &full)
	}
	w.mu.Unlock()
	if err := w.createAll(ctx, codec.AccessLists, create); err != nil {
		return err
	}
	if err := w.awaitKnown(ctx, create); err != nil {
		return err
	}
	return w.change(ctx, codec.AccessLists, named)
}

// tagged returns the lists that have a tag.
func (w *write) tagged(ctx context.Context) (map[string]bool, error) {
	known := map[string]bool{}
	err := w.Get(ctx, &idPools, tagPool, func(body io.Reader) error {
		var answer map[string][]struct {
			Entries []struct {
				Key string `json:"id-key"`
			} `json:"id-entries"`
		}
		if err := json.UnmarshalRead(body, &answer); err != nil {
			return err
		}
		for _, pools := range answer {
			for _, pool := range pools {
				for _, e := range pool.Entries {
					known[e.Key] = true
				}
			}
		}
		return nil
	})
	if w.Missing(err) || controller.IsRefusal(err) {
		return known, nil
	}
	return known, err
}

// withoutUsed postpones the deletions of lists that an interface still has.
func (w *write) withoutUsed(ctx context.Context, all []*codec.Operation) ([]*codec.Operation, error) {
	if len(all) == 0 {
		return nil, nil
	}
	used, err := operational.UsedLists(ctx, w.Session)
	return w.postponeSome(all, renewWait, func(o *codec.Operation) bool { return used[o.Key()] }), err
}

// beforeSecured turns port security off in an entry without the leaf that will turn it on: Oxygen's
// aclservice fails at an interface that gets the leaf in an update.
func (w *write) beforeSecured(ctx context.Context, wanted, there codec.Entry) error {
	e, ok := wanted.(*codec.IETFInterface)
	if !ok || !*e.Secured || there.(*codec.IETFInterface).Secured != nil {
		return nil
	}
	open := *e
	off := false
	open.Secured, open.Groups = &off, nil
	if err := w.Put(ctx, &w.Lists[codec.Interfaces], &open); !controller.IsRefusal(err) {
		return err
	}
	return nil // the refusal is found again, and recorded, with the whole entry
}
