package ovn

import (
	"cmp"
	"slices"
	"strings"
)

// operations collects the operations of one transaction. Changes of one set are
// coalesced, and a column that holds links is changed by mutation alone.
type operations struct {
	inserts, updates, deletes []operation
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
func (o *operations) become(have, want *rowSet) {
	for _, r := range want.rows {
		t := tableOf(r)
		switch old := have.get(t.uuidOf(r)); {
		case old == nil:
			o.inserts = append(o.inserts, newInsert(t, r))
		case !sameRow(old, r):
			o.updates = append(o.updates, newUpdate(t, r))
		}
	}
	for _, r := range have.rows {
		// Rows of other tables go with the last link to them.
		if t := tableOf(r); t.root && want.get(t.uuidOf(r)) == nil {
			o.deletes = append(o.deletes, newDelete(t, t.uuidOf(r)))
		}
	}
	o.becomeLinks(have, want)
}

func (o *operations) becomeLinks(have, want *rowSet) {
	for _, l := range want.links {
		if !slices.Contains(have.links, l) {
			m := o.members(l)
			m.in = append(m.in, l.child)
		}
	}
	for _, l := range have.links {
		if !slices.Contains(want.links, l) {
			m := o.members(l)
			m.out = append(m.out, l.child)
		}
	}
}

func (o *operations) members(l link) *members {
	p := parent{l.column.table, l.parent}
	if o.mutations[p] == nil {
		o.mutations[p] = map[string]*members{}
	}
	m := o.mutations[p][l.column.name]
	if m == nil {
		m = &members{}
		o.mutations[p][l.column.name] = m
	}
	return m
}

// list is the transaction: parents before the links that are put into them, and
// deletions after the links that are taken out.
func (o *operations) list() []operation {
	all := slices.Concat(o.inserts, o.updates)
	parents := make([]parent, 0, len(o.mutations))
	for p := range o.mutations {
		parents = append(parents, p)
	}
	slices.SortFunc(parents, func(a, b parent) int {
		return cmp.Or(strings.Compare(a.table.name, b.table.name), strings.Compare(a.uuid, b.uuid))
	})
	for _, p := range parents {
		all = append(all, newMutation(p.table, p.uuid, o.mutations[p]))
	}
	return append(all, o.deletes...)
}
