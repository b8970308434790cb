package ovn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// encoded is a model with the rows of its groups.
type encoded struct {
	codec codec.Codec
	model netvirt.Model
	sets  map[netvirt.Key]*ovsdb.RowSet
	// looked has, by head, the groups that the encoding looked up and that exist.
	looked map[netvirt.Key]map[netvirt.Key]bool
}

// encodedModels returns random models in both layouts.
func encodedModels(t *testing.T, seeds int) (all []*encoded) {
	t.Helper()
	for _, layout := range []codec.Layout{codec.LayoutELAN, codec.LayoutNode} {
		b := offline(t, layout)
		for seed := range seeds {
			w := backendtest.NewWorld(uint64(seed))
			for range 40 {
				w.Step()
			}
			if w.AddPods(5); seed%2 == 0 {
				w.Join()
			}
			all = append(all, encode(b.codec, w.ModelFor(b)))
		}
	}
	return all
}

func encode(c codec.Codec, m netvirt.Model) *encoded {
	e := &encoded{c, m, map[netvirt.Key]*ovsdb.RowSet{}, map[netvirt.Key]map[netvirt.Key]bool{}}
	groups := map[netvirt.Key]netvirt.Model{}
	for _, o := range m {
		k := identity.HeadOf(o)
		if groups[k] == nil {
			groups[k], e.looked[k] = netvirt.Model{}, map[netvirt.Key]bool{}
		}
		groups[k].Add(o)
	}
	for head, objects := range groups {
		e.sets[head] = c.Encode(head, objects, func(k netvirt.Key) netvirt.Object {
			if m[k] != nil {
				e.looked[head][identity.HeadOfRef(k)] = true
			}
			return m[k]
		})
	}
	return e
}

// holder returns the table that the objects of a group are decoded from; nil if the group has no rows yet, as a port that waits for its
// gateway.
func (e *encoded) holder(head netvirt.Key) *ovsdb.Table {
	for _, r := range e.sets[head].Rows {
		if len(e.codec.Decode(head, r)) > 0 {
			return r.Table
		}
	}
	return nil
}

// readsDamage reports whether load takes rows for damaged if tables are read in an order, as session.readAll reads them: the links
// from a row are in its columns.
func (e *encoded) readsDamage(t *testing.T, order []*ovsdb.Table) bool {
	t.Helper()
	rows, links := flat(e.sets)
	m := loadInOrder(t, e.codec, order, rows, links)
	return slices.ContainsFunc(slices.Collect(maps.Values(m.groups)), func(g *group) bool { return g.damaged != nil })
}

// law has the pairs of tables of which the first must be read before the second, with the reason.
type law map[[2]string]string

func (l law) add(first, second *ovsdb.Table, format string, args ...any) {
	if first != nil && second != nil && first != second {
		l[[2]string{first.Name, second.Name}] = fmt.Sprintf(format, args...)
	}
}

// broken returns the pairs that an order breaks.
func (l law) broken(order []*ovsdb.Table) (all []string) {
	at := map[string]int{}
	for i, t := range order {
		at[t.Name] = i
	}
	for pair, why := range l {
		if at[pair[0]] > at[pair[1]] {
			all = append(all, fmt.Sprintf("%s must be read before %s: %s", pair[0], pair[1], why))
		}
	}
	return all
}

// lawOf derives the law from what the codec does with models:
//   - a link from a row comes before the row that it leads to, and a member of an Address_Set before the interface that has the address,
//   - a group is encoded when the groups that it looks up are decoded,
//   - and when the rows of its that can be strays, because their table has no external_ids, are read.
func lawOf(models []*encoded) law {
	l := law{}
	for _, e := range models {
		tables := map[string]*ovsdb.Table{} // by UUID of row
		for _, set := range e.sets {
			for _, r := range set.Rows {
				tables[r.UUID()] = r.Table
			}
		}
		for head, set := range e.sets {
			holder := e.holder(head)
			if holder == nil {
				continue
			}
			due := dueAfter(holder, head)
			for other := range e.looked[head] {
				if other.Kind == netvirt.KindManagementPort && slices.Index(codec.ReadOrder, due) < slices.Index(codec.ReadOrder, switchPorts) {
					due = switchPorts
				}
			}
			for _, to := range set.Links {
				if child := tables[to.Child]; child != nil {
					l.add(to.Table, child, "column %s", to.Column.Name)
				} else {
					l.add(to.Table, due, "column %s has addresses of %s", to.Column.Name, head.Kind)
				}
			}
			for other := range e.looked[head] {
				l.add(e.holder(other), due, "%s looks up %s", head.Kind, other.Kind)
			}
			for _, r := range set.Rows {
				if !r.Table.ExternalIDs {
					l.add(r.Table, due, "%s has rows without external_ids", head.Kind)
				}
			}
		}
	}
	return l
}

// TestReadOrder: ReadOrder keeps the law, which is derived from the codec and random models in both layouts. No order that keeps the law reads
// damage, so the law is complete. Each table is read, and the models use each reference of the schema.
func TestReadOrder(t *testing.T) {
	models := encodedModels(t, 30)
	l := lawOf(models)
	require.Empty(t, l.broken(codec.ReadOrder))
	for _, e := range models {
		require.False(t, e.readsDamage(t, codec.ReadOrder))
	}

	used := map[string]bool{}
	for _, e := range models {
		for _, set := range e.sets {
			for _, to := range set.Links {
				used[to.Table.Name+"."+to.Column.Name] = true
			}
			for _, r := range set.Rows {
				for column := range r.Columns() {
					used[r.Table.Name+"."+column] = true
				}
			}
		}
	}
	read := map[string]bool{}
	for _, table := range codec.ReadOrder {
		read[table.Name] = true
	}
	for table, schema := range nb.Schema().Tables {
		require.Equal(t, table != "NB_Global", read[table], table)
		for column, of := range schema.Columns {
			if to := referredBy(of); to != "" {
				require.True(t, read[to], to)
				require.True(t, used[table+"."+column], "no model uses the reference %s.%s", table, column)
			}
		}
	}

	t.Run("other orders", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		kept, damaged := 0, 0
		for range 100 {
			order := slices.Clone(codec.ReadOrder)
			for range 1 + rng.IntN(4) {
				from, to := rng.IntN(len(order)), rng.IntN(len(order))
				table := order[from]
				order = slices.Insert(slices.Delete(order, from, from+1), to, table)
			}
			isDamaged := slices.ContainsFunc(models[:5], func(e *encoded) bool { return e.readsDamage(t, order) }) ||
				slices.ContainsFunc(models[len(models)-5:], func(e *encoded) bool { return e.readsDamage(t, order) })
			broken := l.broken(order)
			if isDamaged {
				damaged++
				require.NotEmpty(t, broken, "an order that reads damage keeps the law: %s", namesOf(order))
			}
			if len(broken) == 0 {
				kept++
			}
		}
		require.Greater(t, kept, 3)
		require.Greater(t, damaged, 30)
	})
}

// referredBy returns the table that a column refers to; empty if it does not refer to rows.
func referredBy(column *libovsdb.ColumnSchema) string {
	if column.TypeObj == nil || column.TypeObj.Key == nil {
		return ""
	}
	table, err := column.TypeObj.Key.RefTable()
	if err != nil {
		return "" // not a UUID
	}
	return table
}

func namesOf(order []*ovsdb.Table) string {
	names := make([]string, len(order))
	for i, t := range order {
		names[i] = t.Name
	}
	return strings.Join(names, " ")
}
