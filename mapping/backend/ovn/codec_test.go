package ovn

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// testCodec is the codec of tests of policies, whose rows are the same in both layouts. In this one namespaces can have the same addresses.
var testCodec = codec.Codec{Owner: "owner", Layout: codec.LayoutELAN}

// offline returns a backend without a server.
func offline(t testing.TB, layout codec.Layout) *Backend {
	t.Helper()
	b, err := New(Config{Endpoints: "unix:/nonexistent", Owner: "owner", Layout: layout}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// randomModel returns a valid model, and a codec. Seeds alternate between the layouts.
func randomModel(t *testing.T, seed uint64, steps int) (codec.Codec, netvirt.Model) {
	t.Helper()
	b := offline(t, []codec.Layout{codec.LayoutELAN, codec.LayoutNode}[seed%2])
	w := backendtest.NewWorld(seed)
	for range steps {
		w.Step()
	}
	return b.codec, w.ModelFor(b)
}

// encodeModel returns the rows of all groups of a model, by head.
func encodeModel(c codec.Codec, m netvirt.Model) map[netvirt.Key]*ovsdb.RowSet {
	groups := map[netvirt.Key]netvirt.Model{}
	for _, o := range m {
		k := identity.HeadOf(o)
		if groups[k] == nil {
			groups[k] = netvirt.Model{}
		}
		groups[k].Add(o)
	}
	sets := map[netvirt.Key]*ovsdb.RowSet{}
	for k, objects := range groups {
		sets[k] = c.Encode(k, objects, func(k netvirt.Key) netvirt.Object { return m[k] })
	}
	return sets
}

// flat returns the rows and links of several sets.
func flat(sets map[netvirt.Key]*ovsdb.RowSet) (rows []ovsdb.Row, links []ovsdb.Link) {
	for _, set := range sets {
		rows, links = append(rows, set.Rows...), append(links, set.Links...)
	}
	return rows, links
}

// loadRows returns the mirror that load builds from rows.
func loadRows(t *testing.T, c codec.Codec, rows []ovsdb.Row, links []ovsdb.Link) *mirror {
	t.Helper()
	return loadInOrder(t, c, codec.ReadOrder, rows, links)
}

// loadInOrder returns the mirror that load builds from rows whose tables are read in an order. The links of a table come first.
func loadInOrder(t *testing.T, c codec.Codec, order []*ovsdb.Table, rows []ovsdb.Row, links []ovsdb.Link) *mirror {
	t.Helper()
	m, err := load(c, func(v *ovsdb.Visitor, read func(*ovsdb.Table)) error {
		for _, table := range order {
			for _, l := range links {
				if l.Table == table {
					v.Link(l)
				}
			}
			for _, r := range rows {
				if r.Table == table {
					v.Row(r)
				}
			}
			read(table)
		}
		return nil
	})
	require.NoError(t, err)
	return m
}

// requireSame compares rows and links, in any order.
func requireSame(t *testing.T, want, have *ovsdb.RowSet) {
	t.Helper()
	require.Len(t, have.Rows, len(want.Rows))
	for _, r := range want.Rows {
		other, found := have.Get(r.UUID())
		require.True(t, found, "%s %s", r.Table.Name, r.UUID())
		require.Equal(t, r.Columns(), other.Columns())
	}
	require.ElementsMatch(t, want.Links, have.Links)
}

// FuzzCodec: the rows of a model are read as the same model.
func FuzzCodec(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		c, model := randomModel(t, seed, int(steps%50))
		sets := encodeModel(c, model)
		for k, set := range sets {
			for _, r := range set.Rows {
				for _, o := range c.Decode(k, r) {
					require.Equal(t, model[o.Key()], o)
				}
			}
		}
		rows, links := flat(sets)
		backendtest.Agree(t, model, loadRows(t, c, rows, links).model())
	})
}

// TestManagementPortsLast: a group that looks up a management port is encoded when the port was read.
func TestManagementPortsLast(t *testing.T) {
	for seed := range uint64(50) {
		c, model := randomModel(t, seed, 40)
		rows, links := flat(encodeModel(c, model))
		last := func(r ovsdb.Row) int {
			if k, _ := c.Marked(r); k.Kind == netvirt.KindManagementPort {
				return 1
			}
			return 0
		}
		slices.SortStableFunc(rows, func(a, b ovsdb.Row) int { return last(a) - last(b) })
		m := loadRows(t, c, rows, links)
		backendtest.Agree(t, model, m.model())
		require.Equal(t, m.model().ByScope(), m.byScope())
	}
}

// FuzzDamage: rows that an external writer has changed are read without a failure, and
// writing the model restores its rows.
func FuzzDamage(f *testing.F) {
	f.Add(uint64(1), "coe-bridge/adjacency/10.0.0.1", "x y z")
	f.Add(uint64(2), "coe-bridge/static-mac-entry/", "")
	f.Add(uint64(3), "coe-bridge/floating-ip/10.0.0.1/", "10.0.0.1")
	f.Add(uint64(4), "coe-bridge/prefix", "10.0.0.0/33")
	f.Add(uint64(5), "coe-bridge/kind", "interface")
	f.Add(uint64(6), "coe-bridge/dns", "(damaged)")
	f.Add(uint64(7), "coe-bridge/network", "100.96.0.0/33")
	f.Add(uint64(8), "coe-bridge/chassis", "(damaged)")
	f.Add(uint64(9), "coe-bridge/transit", "(damaged)")
	f.Add(uint64(10), "coe-bridge/places", "192.168.33.10;;x,192.168.33.11")
	f.Add(uint64(11), "coe-bridge/near/10.96.0.4:80", "10.0.0.1:99999;;10.0.0.1")
	f.Add(uint64(12), "coe-bridge/role", "tcp/192.168.33.10")
	f.Add(uint64(13), "x", "owner/node/192.168.33.10/other")
	f.Fuzz(func(t *testing.T, seed uint64, key, value string) {
		c, model := randomModel(t, seed, 20)
		want := encodeModel(c, model)
		rows, links := flat(encodeModel(c, model))
		rng := rand.New(rand.NewPCG(seed, 1))
		rows, links = spoil(rng, rows, links, key, value)

		m := loadRows(t, c, rows, links)
		creations := slices.DeleteFunc(netvirt.Diff(m.model(), model), func(c netvirt.Change) bool { return c.Old != nil })
		stageAll(t, m, creations)
		stageAll(t, m, netvirt.Diff(m.model(), model))
		require.Equal(t, model, m.model())
		for k := range m.groups {
			requireSame(t, want[k], m.rows(k))
		}
		require.Len(t, m.groups, len(want))
	})
}

// stageAll makes changes to a mirror, as if the server had accepted them.
func stageAll(t *testing.T, m *mirror, changes []netvirt.Change) {
	t.Helper()
	ahead := m.stage()
	for _, s := range steps(changes) {
		require.NoError(t, ahead.apply(s))
	}
	ahead.transaction()
	ahead.commit()
}

// spoil changes and removes some rows at random, and may remove a link.
func spoil(rng *rand.Rand, rows []ovsdb.Row, links []ovsdb.Link, key, value string) ([]ovsdb.Row, []ovsdb.Link) {
	for range min(5, len(rows)) {
		i := rng.IntN(len(rows))
		if rng.IntN(4) == 0 {
			rows = slices.Delete(rows, i, i+1)
			continue
		}
		row := reflect.ValueOf(rows[i].Value).Elem() // its first field is the UUID
		switch field := row.Field(1 + rng.IntN(row.NumField()-1)).Addr().Interface().(type) {
		case *string:
			*field = value
		case *int:
			*field++
		case **string:
			*field = nil
		case *[]string:
			*field = append(*field, value)
		case *map[string]string:
			*field = maps.Clone(*field)
			if *field == nil {
				*field = map[string]string{}
			}
			(*field)[key] = value
		}
	}
	if len(links) > 0 && rng.IntN(2) == 0 {
		links = links[1:]
	}
	return rows, links
}

// TestNames: all rows have different UUIDs, and all ports different names. Switch ports
// and router ports share the names, as both are Port_Bindings in the southbound database.
func TestNames(t *testing.T) {
	for seed := range uint64(20) {
		uuids, names := map[string]bool{}, map[string]bool{}
		rows, _ := flat(encodeModel(randomModel(t, seed, 40)))
		for _, r := range rows {
			name := ""
			switch r := r.Value.(type) {
			case *nb.LogicalSwitchPort:
				name = r.Name
			case *nb.LogicalRouterPort:
				name = r.Name
			}
			uuid := r.UUID()
			require.False(t, uuids[uuid], uuid)
			require.False(t, name != "" && names[name], name)
			uuids[uuid], names[name] = true, true
		}
	}
}

// TestSteps: steps keep all changes, and no reference is dangling after any of them.
func TestSteps(t *testing.T) {
	_, model := randomModel(t, 1, 30)
	_, next := randomModel(t, 3, 30)
	changes := netvirt.Diff(model, next)
	have := maps.Clone(model)
	count := 0
	for _, s := range steps(changes) {
		for _, c := range s.changes {
			have.Apply([]netvirt.Change{c})
			count++
		}
		from, to, dangling := have.Dangling()
		require.False(t, dangling, fmt.Sprint(from, " refers to ", to))
	}
	require.Equal(t, next, have)
	require.Equal(t, len(changes), count)
}
