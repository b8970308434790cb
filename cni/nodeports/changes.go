package nodeports

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
)

// Change is a changed element: what the table has, and what is wanted.
type Change struct {
	Element
	Has, Wanted bool
	Of          *Family
}

// Diff returns the elements that differ. One with another value is removed and added.
func (f *Family) Diff(have, want []Element) (all []Change) {
	for len(have)+len(want) > 0 {
		order := 0
		switch {
		case len(have) == 0:
			order = 1
		case len(want) == 0:
			order = -1
		default:
			order = have[0].Compare(want[0])
		}
		switch {
		case order < 0:
			all, have = append(all, Change{have[0], true, false, f}), have[1:]
		case order > 0:
			all, want = append(all, Change{want[0], false, true, f}), want[1:]
		default:
			if have[0] != want[0] {
				all = append(all, Change{want[0], true, true, f})
			}
			have, want = have[1:], want[1:]
		}
	}
	return all
}

// weight returns how much of a transaction a change needs: 1 for an element, and 1 for two rules, which an endpoint has in the chain of
// a port with affinity.
func (c Change) weight() int {
	if c.Set != clientChains && c.Set != insideChains {
		return 1
	}
	return 1 + strings.Count(c.Value, " ")
}

// Batches divides the changes of groups into transactions of at most the weight most. All changes of a group are in one
// transaction, also if they weigh more.
func Batches(groups [][]Change, most int) (all [][]Change) {
	room := 0
	for _, g := range groups {
		weight := 0
		for _, c := range g {
			weight += c.weight()
		}
		if weight > room {
			all, room = append(all, nil), most
		}
		last := len(all) - 1
		all[last], room = append(all[last], g...), room-weight
	}
	return all
}

// Put adds the changes of the family in a batch to a transaction.
func (f *Family) Put(c *nftables.Conn, batch []Change) (err error) {
	f.putClientChains(c, batch)
	for _, set := range f.Sets() {
		var remove, add []nftables.SetElement
		for _, e := range batch {
			if e.Of != f || e.Set != set.Name {
				continue
			}
			if e.Has {
				remove = append(remove, e.keyOnly())
			}
			if e.Wanted {
				add = append(add, e.nft())
			}
		}
		if len(remove) > 0 {
			err = errors.Join(err, c.SetDeleteElements(set, remove))
		}
		if len(add) > 0 {
			err = errors.Join(err, c.SetAddElements(set, add))
		}
	}
	f.removeClientChains(c, batch)
	return err
}

// putClientChains adds to a transaction the wanted chains of ports of a table in a batch, which elements may name then.
func (f *Family) putClientChains(c *nftables.Conn, batch []Change) {
	for _, e := range f.chainsIn(batch) {
		if e.Wanted {
			is := f.Chain(f.chainIn(e.Element))
			c.AddChain(is)
			c.FlushChain(is)
			AddRules(c, []Chain{{is, f.rulesIn(e.Element)}})
		}
	}
}

// removeClientChains adds to a transaction the removal of the other ones, which no element names any more.
func (f *Family) removeClientChains(c *nftables.Conn, batch []Change) {
	for _, e := range f.chainsIn(batch) {
		if !e.Wanted {
			c.DelChain(f.Chain(f.chainIn(e.Element)))
		}
	}
}

// chainsIn returns the changes of chains of this table in a batch, which can be for several tables.
func (f *Family) chainsIn(batch []Change) []Change {
	return slices.DeleteFunc(slices.Clone(batch), func(e Change) bool { return e.Of != f || f.chainIn(e.Element) == "" })
}

// AddRules adds the rules of chains to a transaction.
func AddRules(c *nftables.Conn, chains []Chain) {
	for _, chain := range chains {
		for _, r := range chain.rules {
			c.AddRule(r.in(chain.Chain))
		}
	}
}

// Refresh adds to a transaction that endpoints are current for a time. Elements may be there or not: only a new one has
// the time.
func (f *Family) Refresh(c *nftables.Conn, lasts time.Duration) error {
	sets := f.Sets()
	set := sets[slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == fresh })]
	var all []nftables.SetElement
	for _, protocol := range protocols {
		all = append(all, nftables.SetElement{Key: []byte{protocol}, Timeout: lasts})
	}
	return errors.Join(c.SetAddElements(set, all), c.SetDeleteElements(set, all), c.SetAddElements(set, all))
}
