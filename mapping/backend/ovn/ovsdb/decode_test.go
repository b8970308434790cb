package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// testDatabase has all tables of OVN's northbound database that have generated structs.
var testDatabase = func() *Database {
	model, err := nb.FullDatabaseModel()
	if err != nil {
		panic(err)
	}
	var tables []TableType
	for _, name := range slices.Sorted(maps.Keys(model.Types())) {
		if name != nb.NBGlobalTable {
			tables = append(tables, TableType{name, reflect.Zero(model.Types()[name].Elem()).Interface()})
		}
	}
	return NewDatabase(nb.Schema(), tables, map[string][]string{
		nb.LogicalSwitchTable: {"ports", "acls"}, nb.LogicalRouterTable: {"ports", "static_routes", "policies"},
		nb.LoadBalancerGroupTable: {"load_balancer"},
	})
}()

// rowOf returns a row, given as a pointer to the struct of its table.
func rowOf(value any) Row {
	set := testDatabase.NewRowSet()
	set.Add(value)
	return set.Rows[0]
}

// decodeRows returns the rows in a JSON array, and their links.
func decodeRows(t *Table, text string) (rows []Row, links []Link, err error) {
	v := &Visitor{
		Row: func(r Row) bool {
			rows = append(rows, r)
			return true
		},
		Link: func(l Link) { links = append(links, l) },
	}
	err = v.read(newDecoder(text), t)
	return rows, links, err
}

func newDecoder(text string) *jsontext.Decoder {
	return jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// randomRow returns a row with a random value in most columns, except links.
func randomRow(r *rand.Rand, t *Table) Row {
	text := func() string { return fmt.Sprintf("\"%d ä", r.Uint64()) }
	row := t.Row(uuid.NewString())
	for _, c := range t.columns {
		if c.link || r.IntN(4) == 0 {
			continue
		}
		switch v := c.of(row).(type) {
		case *string:
			*v = text()
		case *bool:
			*v = true
		case *int:
			*v = 1 + r.IntN(1000)
		case **string:
			s := text()
			*v = &s
		case **int:
			n := 1 + r.IntN(4000)
			*v = &n
		case *[]string:
			*v = []string{"a" + text(), "b" + text()}
		case *map[string]string:
			*v = map[string]string{text(): text(), text(): ""}
		}
	}
	return row
}

const oneUUID, twoUUID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"

func TestDecode(t *testing.T) {
	text := func(s string) *string { return &s }
	long := strings.Repeat("0123456789", 100_000)
	cases := map[string]struct {
		json string
		want nb.LogicalSwitchPort
	}{
		"nothing":          {`{}`, nb.LogicalSwitchPort{}},
		"UUID":             {`{"_uuid":["uuid","` + oneUUID + `"]}`, nb.LogicalSwitchPort{UUID: oneUUID}},
		"UUID at the end":  {`{"name":"x","_uuid":["uuid","` + oneUUID + `"]}`, nb.LogicalSwitchPort{UUID: oneUUID, Name: "x"}},
		"empty set":        {`{"addresses":["set",[]]}`, nb.LogicalSwitchPort{}},
		"set of one":       {`{"addresses":["set",["a"]]}`, nb.LogicalSwitchPort{Addresses: []string{"a"}}},
		"bare element":     {`{"addresses":"a"}`, nb.LogicalSwitchPort{Addresses: []string{"a"}}},
		"set of two":       {`{"addresses":["set",["a","b"]]}`, nb.LogicalSwitchPort{Addresses: []string{"a", "b"}}},
		"optional":         {`{"dhcpv4_options":["uuid","` + oneUUID + `"]}`, nb.LogicalSwitchPort{Dhcpv4Options: text(oneUUID)}},
		"optional, in set": {`{"dhcpv4_options":["set",[["uuid","` + oneUUID + `"]]]}`, nb.LogicalSwitchPort{Dhcpv4Options: text(oneUUID)}},
		"optional, none":   {`{"dhcpv4_options":["set",[]]}`, nb.LogicalSwitchPort{}},
		"number":           {`{"tag":100}`, nb.LogicalSwitchPort{Tag: new(100)}},
		"number, none":     {`{"tag":["set",[]]}`, nb.LogicalSwitchPort{}},
		"map":              {`{"options":["map",[["a","b"],["c",""]]]}`, nb.LogicalSwitchPort{Options: map[string]string{"a": "b", "c": ""}}},
		"empty map":        {`{"options":["map",[]]}`, nb.LogicalSwitchPort{}},
		"whitespace":       {" { \"options\" : [ \"map\" , [ [ \"a\" ,\n\"b\" ] ] ] , \"name\" : \"x\" } ", nb.LogicalSwitchPort{Name: "x", Options: map[string]string{"a": "b"}}},
		"escapes":          {`{"name":"\"\\\/\u00e4\ud83d\ude00\n"}`, nb.LogicalSwitchPort{Name: "\"\\/ä😀\n"}},
		"unicode":          {`{"name":"ä😀漢","options":["map",[["ü","ß"]]]}`, nb.LogicalSwitchPort{Name: "ä😀漢", Options: map[string]string{"ü": "ß"}}},
		"long":             {`{"name":"` + long + `","type":"x"}`, nb.LogicalSwitchPort{Name: long, Type: "x"}},
		"unknown column":   {`{"tag":["set",[1,[2]]],"name":"x"}`, nb.LogicalSwitchPort{Name: "x"}},
		"wrong types": {
			`{"_uuid":"x","addresses":{"a":["b"]},"dhcpv4_options":"x","options":["map",[["a"],["b","c","d"],7,["e",8],["f","g"]]],` +
				`"port_security":["set",[1,["uuid","x"],"y",["set"],[]]],"type":["set",["router"]],"name":"x"}`,
			nb.LogicalSwitchPort{Name: "x", PortSecurity: []string{"y"}, Options: map[string]string{"b": "c", "f": "g"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			rows, links, err := decodeRows(testDatabase.Table(nb.LogicalSwitchPortTable), `[{},`+c.json+`,{}]`)
			require.NoError(t, err)
			require.Empty(t, links)
			require.Len(t, rows, 3)
			require.Equal(t, c.want.UUID, rows[1].UUID())
			require.True(t, rowOf(&c.want).same(rows[1]), "%v", rows[1].Value)
			require.True(t, rowOf(&nb.LogicalSwitchPort{}).same(rows[2]), "the next row has a value of this one")
		})
	}
}

// TestDecodeReusesRow: a row that is not kept is used again, without its values.
func TestDecodeReusesRow(t *testing.T) {
	ports := testDatabase.Table(nb.LogicalSwitchPortTable)
	text := `[{"_uuid":["uuid","` + oneUUID + `"],"name":"x","addresses":"a","options":["map",[["a","b"]]],"dhcpv4_options":["uuid","` + twoUUID + `"]},{}]`
	var sums []Sum
	v := &Visitor{Row: func(r Row) bool {
		sums = append(sums, r.Sum())
		return false
	}}
	require.NoError(t, v.read(newDecoder(text), ports))
	port := &nb.LogicalSwitchPort{
		UUID: oneUUID, Name: "x", Addresses: []string{"a"}, Options: map[string]string{"a": "b"}, Dhcpv4Options: new(string),
	}
	*port.Dhcpv4Options = twoUUID
	require.Equal(t, []Sum{rowOf(port).Sum(), rowOf(&nb.LogicalSwitchPort{}).Sum()}, sums)
}

func TestDecodeLinks(t *testing.T) {
	routers := testDatabase.Table(nb.LogicalRouterTable)
	rows, links, err := decodeRows(routers, `[{"ports":["set",[["uuid","a"],["uuid","b"]]],"static_routes":["uuid","c"],"_uuid":["uuid","`+oneUUID+`"]}]`)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, []Link{
		{routers, routers.column([]byte("ports")), oneUUID, "a"}, {routers, routers.column([]byte("ports")), oneUUID, "b"},
		{routers, routers.column([]byte("static_routes")), oneUUID, "c"},
	}, links)
}

// TestSum: rows that differ in one column have different sums.
func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, table := range testDatabase.Tables {
		for range 20 {
			r := randomRow(rng, table)
			seen := map[Sum]bool{r.Sum(): true}
			for _, c := range table.columns {
				if c.isDefault(r) {
					continue
				}
				c.clear(r)
				require.False(t, seen[r.Sum()], "%s %s", table.Name, c.Name)
				seen[r.Sum()] = true
			}
		}
	}
	sum := func(p nb.LogicalSwitchPort) Sum { return rowOf(&p).Sum() }
	require.NotEqual(t, sum(nb.LogicalSwitchPort{Addresses: []string{"a"}}), sum(nb.LogicalSwitchPort{PortSecurity: []string{"a"}}))
	require.NotEqual(t,
		sum(nb.LogicalSwitchPort{Options: map[string]string{"a": "b"}}), sum(nb.LogicalSwitchPort{Options: map[string]string{"b": "a"}}))
}

// TestRoundTrip: a row that is encoded and decoded is the same.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, table := range testDatabase.Tables {
		for range 20 {
			r := randomRow(rng, table)
			for _, defaults := range []bool{true, false} {
				again, links, err := decodeRows(table, "["+string(appendRow(nil, r, defaults))+"]")
				require.NoError(t, err)
				require.Empty(t, links)
				require.Len(t, again, 1)
				require.True(t, r.same(again[0]), "%v, want %v", again[0].Value, r.Value)
			}
		}
	}
}

// TestDecodeUnexpected: a value that does not have the column's type is left out.
func TestDecodeUnexpected(t *testing.T) {
	rows, links, err := decodeRows(testDatabase.Table(nb.LogicalSwitchTable),
		`[{"_uuid":7,"name":5.0,"ports":"x","external_ids":["map",[[1,2]]]}]`)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.True(t, rowOf(&nb.LogicalSwitch{}).same(rows[0]))
	require.Empty(t, rows[0].UUID())
	require.Empty(t, links)
}

// FuzzDecode: no input makes the decoder panic, and it decodes a row as libovsdb does. It
// compares valid UTF-8 only: other text is not JSON (RFC 8259, section 8.1), and the two
// replace it differently.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"_uuid":["uuid","` + oneUUID + `"],"name":"x","addresses":["set",["b","a"]],"options":["map",[["a","b"]]]}`,
		`{"addresses":"a","dhcpv4_options":["uuid","` + oneUUID + `"],"ports":["set",[["uuid","` + twoUUID + `"]]]}`,
		`{"name":5,"options":["map",[[1,2]]],"addresses":["set",[["set",["a"]]]]}`, `{"external_ids":["map",[["a"]]]`, `{"name":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, table := range testDatabase.Tables {
			rows, links, err := decodeRows(table, "["+text+"]")
			theirs, ok := libovsdbRow(text)
			if err == nil && len(rows) == 1 && ok && utf8.ValidString(text) {
				requireAsLibovsdb(t, table, theirs, rows[0], links)
			}
		}
	})
}

// libovsdbRow decodes a row with libovsdb, which panics on some invalid rows.
func libovsdbRow(text string) (r libovsdb.Row, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	err := json.Unmarshal([]byte(text), &r)
	return r, err == nil
}

// requireAsLibovsdb compares a row with the row that libovsdb decoded from the same
// answer, in the columns that libovsdb can decode.
func requireAsLibovsdb(t *testing.T, of *Table, theirs libovsdb.Row, r Row, links []Link) {
	t.Helper()
	schema := nb.Schema().Table(of.Name)
	for _, c := range of.columns {
		value, found := theirs[c.Name]
		if !found {
			continue
		}
		native, err := libovsdb.OvsToNative(schema.Column(c.Name), value)
		if err != nil {
			continue
		}
		switch want := native.(type) {
		case string:
			require.Equal(t, want, *c.of(r).(*string), c.Name)
		case bool:
			require.Equal(t, want, *c.of(r).(*bool), c.Name)
		case *string:
			require.Equal(t, want, *c.of(r).(**string), c.Name)
		case map[string]string:
			require.Subset(t, *c.of(r).(*map[string]string), want, c.Name)
			require.Len(t, *c.of(r).(*map[string]string), len(want), c.Name)
		case []string:
			have := *c.of(r).(*[]string)
			if c.link {
				have = nil
				for _, l := range links {
					if l.Column == c {
						have = append(have, l.Child)
					}
				}
			}
			require.ElementsMatch(t, want, slices.Clone(have), c.Name)
		}
	}
}
