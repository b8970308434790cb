package ovn

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// operations collects the operations of one transaction. Changes of one set are
// coalesced, and a column that holds links is changed by mutation alone.
type operations struct {
	inserts, updates, deletes []ovsdb.Operation
	mutations                 map[parent]map[string]*members
}

type parent struct {
	table *table
	uuid  string
}

// members are the rows that come into a column and go from it.
type members struct {
	in, out []string
}

func newOperations() *operations {
	return &operations{mutations: map[parent]map[string]*members{}}
}

// become adds what turns the rows that are there into those that are wanted.
func (o *operations) become(have, want rowSet) error {
	for _, uuid := range sortedKeys(want.rows) {
		r := want.rows[uuid]
		t := tableOf(r)
		old, found := have.rows[uuid]
		if found && sameRow(old, r) {
			continue
		}
		wire, err := t.wire(r, found)
		if err != nil {
			return err
		}
		if found {
			o.updates = append(o.updates, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: t.name, Where: is(uuid), Row: wire})
		} else {
			o.inserts = append(o.inserts, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: t.name, UUID: uuid, Row: wire})
		}
	}
	for _, uuid := range sortedKeys(have.rows) {
		// Rows of other tables go with the last link to them.
		if t := tableOf(have.rows[uuid]); want.rows[uuid] == nil && t.root {
			o.deletes = append(o.deletes, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: t.name, Where: is(uuid)})
		}
	}
	o.becomeLinks(have, want)
	return nil
}

func (o *operations) becomeLinks(have, want rowSet) {
	for l := range want.links {
		if _, found := have.links[l]; !found {
			m := o.members(l)
			m.in = append(m.in, l.child)
		}
	}
	for l := range have.links {
		if _, found := want.links[l]; !found {
			m := o.members(l)
			m.out = append(m.out, l.child)
		}
	}
}

func (o *operations) members(l link) *members {
	p := parent{l.table, l.parent}
	if o.mutations[p] == nil {
		o.mutations[p] = map[string]*members{}
	}
	m := o.mutations[p][l.column]
	if m == nil {
		m = &members{}
		o.mutations[p][l.column] = m
	}
	return m
}

// list is the transaction: parents before the links that are put into them, and
// deletions after the links that are taken out.
func (o *operations) list() []ovsdb.Operation {
	all := slices.Concat(o.inserts, o.updates)
	parents := make([]parent, 0, len(o.mutations))
	for p := range o.mutations {
		parents = append(parents, p)
	}
	slices.SortFunc(parents, func(a, b parent) int {
		return cmp.Or(strings.Compare(a.table.name, b.table.name), strings.Compare(a.uuid, b.uuid))
	})
	for _, p := range parents {
		all = append(all, o.mutate(p))
	}
	return append(all, o.deletes...)
}

func (o *operations) mutate(p parent) ovsdb.Operation {
	op := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: p.table.name, Where: is(p.uuid)}
	columns := o.mutations[p]
	for _, column := range sortedKeys(columns) {
		m := columns[column]
		for _, change := range []struct {
			mutator ovsdb.Mutator
			uuids   []string
		}{{ovsdb.MutateOperationDelete, m.out}, {ovsdb.MutateOperationInsert, m.in}} {
			if len(change.uuids) > 0 {
				op.Mutations = append(op.Mutations, *ovsdb.NewMutation(column, change.mutator, uuidSet(change.uuids)))
			}
		}
	}
	return op
}

// is selects a row by its UUID.
func is(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

func uuidSet(uuids []string) ovsdb.OvsSet {
	slices.Sort(uuids)
	set := ovsdb.OvsSet{GoSet: make([]any, len(uuids))}
	for i, uuid := range uuids {
		set.GoSet[i] = ovsdb.UUID{GoUUID: uuid}
	}
	return set
}
