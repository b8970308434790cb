package ovsdb

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Transaction collects the operations of one transaction. Members that are added to
// or removed from the link columns of one row become one mutation.
type Transaction struct {
	inserts, updates, deletes []Operation
	mutations                 map[parent]map[string]*members
}

// parent is a row whose link columns change.
type parent struct {
	table *Table
	uuid  string
}

// members are what is added to a column and removed from it.
type members struct {
	add, remove []string
}

// NewTransaction returns a transaction without operations.
func NewTransaction() *Transaction {
	return &Transaction{mutations: map[parent]map[string]*members{}}
}

// Replace adds the operations that turn the rows and links of have into the rows and links of want.
func (tx *Transaction) Replace(have, want *RowSet) {
	for _, r := range want.Rows {
		switch old, found := have.Get(r.UUID()); {
		case !found:
			tx.inserts = append(tx.inserts, newInsert(r))
		case !old.same(r):
			tx.updates = append(tx.updates, newUpdate(r))
		}
	}
	for _, r := range have.Rows {
		// The server deletes rows of other tables with the last link to them.
		if _, stays := want.Get(r.UUID()); r.Table.Root && !stays {
			tx.deletes = append(tx.deletes, newDelete(r.Table, r.UUID()))
		}
	}
	tx.replaceLinks(have, want)
}

func (tx *Transaction) replaceLinks(have, want *RowSet) {
	for _, l := range want.Links {
		if !slices.Contains(have.Links, l) {
			m := tx.members(l)
			m.add = append(m.add, l.Child)
		}
	}
	for _, l := range have.Links {
		if !slices.Contains(want.Links, l) {
			m := tx.members(l)
			m.remove = append(m.remove, l.Child)
		}
	}
}

func (tx *Transaction) members(l Link) *members {
	p := parent{l.Table, l.Parent}
	if tx.mutations[p] == nil {
		tx.mutations[p] = map[string]*members{}
	}
	m := tx.mutations[p][l.Column.Name]
	if m == nil {
		m = &members{}
		tx.mutations[p][l.Column.Name] = m
	}
	return m
}

// Operations returns the operations in a safe order: a row is inserted before a link
// is added to it, and deleted after the links to it are removed from others. The links of a
// row that is deleted are gone with it.
func (tx *Transaction) Operations() []Operation {
	all := slices.Concat(tx.inserts, tx.updates)
	for _, o := range tx.deletes {
		delete(tx.mutations, parent{o.Table, o.UUID})
	}
	parents := slices.SortedFunc(maps.Keys(tx.mutations), func(a, b parent) int {
		return cmp.Or(strings.Compare(a.table.Name, b.table.Name), strings.Compare(a.uuid, b.uuid))
	})
	for _, p := range parents {
		all = append(all, newMutation(p.table, p.uuid, tx.mutations[p]))
	}
	return append(all, tx.deletes...)
}
