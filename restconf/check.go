package restconf

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// finish checks what the edit makes of the tree, before it is made.
func (e *edit) finish() error {
	for _, doc := range e.written {
		if e.tx.Get(doc.at.node(), doc.at.last().keys...) == nil { // it was deleted after that
			continue
		}
		if err := e.checkDocument(doc); err != nil {
			return err
		}
	}
	for top := range e.tops {
		if check := e.server.checks[top]; check != nil {
			if err := e.checkAll(top, check); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDocument validates what takes a whole document to see, and runs the
// entry's own check.
func (e *edit) checkDocument(doc *document) error {
	at := doc.at.parent().path()
	if err := e.server.cfg.Schema.Validate(doc.data, at, e.holds); err != nil {
		return err
	}
	if check := e.server.entryChecks[doc.at.node()]; check != nil {
		return asRefusal(check(doc.data), doc.at.path())
	}
	return nil
}

// holds tells whether a leafref of that value has its target. Of targets that are
// no unit's key none is ever missed.
func (e *edit) holds(key *yang.Node, value string) bool {
	list := datastore.UnitNode(key)
	if len(list.Keys) != 1 || list.Keys[0] != key {
		return true
	}
	return e.tx.Get(list, value) != nil
}

// checkAll runs a container's check over all its entries as they will be. The
// container's own unit is written with it, and read, as with every write to a
// checked container: so its revision stands for all entries, and of two writes
// side by side the second looks again.
func (e *edit) checkAll(top *yang.Node, check func([]*yang.Data) error) error {
	own := e.tx.Get(top)
	var entries []*yang.Data
	for _, u := range e.tx.Tree(top) {
		if u.Node == top {
			continue
		}
		entry, err := u.Parse()
		if err != nil {
			continue // it was damaged in the datastore; what is written now was judged before
		}
		entries = append(entries, entry)
	}
	if own != nil {
		e.tx.Put(top, nil, own.Raw)
	}
	return asRefusal(check(entries), stepsTo(top).path())
}

// asRefusal makes a check's error one about data. Its paths are below path, which
// is that of what was checked.
func asRefusal(err error, path string) error {
	if err == nil {
		return nil
	}
	if _, ok := asErrors(err); !ok {
		err = &yang.Error{Type: "application", Tag: "invalid-value", Message: err.Error()}
	}
	return mapErrors(err, func(e *yang.Error) { e.Path = strings.TrimSuffix(path+"/"+e.Path, "/") })
}
