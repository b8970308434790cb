package tree

import (
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// finish checks the tree as it is to be, before the transaction is made.
func (a *attempt) finish() error {
	for _, doc := range a.written {
		if a.tx.Get(doc.at.Node(), doc.at.Last().Keys...) == nil { // deleted by a later edit
			continue
		}
		if err := a.checkDocument(doc); err != nil {
			return err
		}
	}
	for top := range a.tops {
		if check := a.tree.checks[top]; check != nil {
			if err := a.checkAll(top, check); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDocument validates a whole document, and runs the entry's own check.
func (a *attempt) checkDocument(doc *document) error {
	if err := a.tree.refuseComputed(doc.at.Last()); err != nil {
		return err
	}
	at := doc.at.Parent().Path()
	if err := a.tree.schema.Validate(doc.data, at, a.holds); err != nil {
		return err
	}
	if check := a.tree.entryChecks[doc.at.Node()]; check != nil {
		return asRefusal(check(doc.data), doc.at.Path())
	}
	return nil
}

// holds reports whether the target of a leafref with that value exists. A target that is
// not the key of a unit always does.
func (a *attempt) holds(key *yang.Node, value string) bool {
	list := datastore.UnitNode(key)
	if len(list.Keys) != 1 || list.Keys[0] != key {
		return true
	}
	return a.tx.Get(list, value) != nil
}

// checkAll runs a container's check over all its entries as they will be. It reads and
// writes the container's own unit, as every write to a checked container does. So the
// revision of that unit stands for all entries, and the second of two concurrent writes is
// attempted again.
func (a *attempt) checkAll(top *yang.Node, check func([]*yang.Data) error) error {
	own := a.tx.Get(top)
	var entries []*yang.Data
	for _, u := range a.tx.Tree(top) {
		if u.Node == top {
			continue
		}
		entry, err := u.Parse()
		if err != nil {
			continue // damaged in the datastore; the entries of this write were validated
		}
		entries = append(entries, entry)
	}
	if own != nil {
		a.tx.Put(top, nil, own.Raw)
	}
	return asRefusal(check(entries), StepsTo(top).Path())
}
