package ovn

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// decodeRows are the rows in an array, and their links.
func decodeRows(t *table, text string) (rows []row, links []link, err error) {
	d := &decoder{
		Decoder: jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		table:   t, words: &words{},
		to: visitor{
			row: func(_ *table, r row) bool {
				rows = append(rows, r)
				return true
			},
			link: func(l link) { links = append(links, l) },
		},
	}
	err = d.rows()
	return rows, links, err
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
		"one alone":        {`{"addresses":"a"}`, nb.LogicalSwitchPort{Addresses: []string{"a"}}},
		"set of two":       {`{"addresses":["set",["a","b"]]}`, nb.LogicalSwitchPort{Addresses: []string{"a", "b"}}},
		"optional":         {`{"dhcpv4_options":["uuid","` + oneUUID + `"]}`, nb.LogicalSwitchPort{Dhcpv4Options: text(oneUUID)}},
		"optional, in set": {`{"dhcpv4_options":["set",[["uuid","` + oneUUID + `"]]]}`, nb.LogicalSwitchPort{Dhcpv4Options: text(oneUUID)}},
		"optional, none":   {`{"dhcpv4_options":["set",[]]}`, nb.LogicalSwitchPort{}},
		"map":              {`{"options":["map",[["a","b"],["c",""]]]}`, nb.LogicalSwitchPort{Options: map[string]string{"a": "b", "c": ""}}},
		"empty map":        {`{"options":["map",[]]}`, nb.LogicalSwitchPort{}},
		"whitespace":       {" { \"options\" : [ \"map\" , [ [ \"a\" ,\n\"b\" ] ] ] , \"name\" : \"x\" } ", nb.LogicalSwitchPort{Name: "x", Options: map[string]string{"a": "b"}}},
		"escapes":          {`{"name":"\"\\\/\u00e4\ud83d\ude00\n"}`, nb.LogicalSwitchPort{Name: "\"\\/ä😀\n"}},
		"unicode":          {`{"name":"ä😀漢","options":["map",[["ü","ß"]]]}`, nb.LogicalSwitchPort{Name: "ä😀漢", Options: map[string]string{"ü": "ß"}}},
		"long":             {`{"name":"` + long + `","type":"x"}`, nb.LogicalSwitchPort{Name: long, Type: "x"}},
		"unknown column":   {`{"tag":["set",[1,[2]]],"name":"x"}`, nb.LogicalSwitchPort{Name: "x"}},
		"not as it should": {
			`{"_uuid":"x","addresses":{"a":["b"]},"dhcpv4_options":"x","options":["map",[["a"],["b","c","d"],7,["e",8],["f","g"]]],` +
				`"port_security":["set",[1,["uuid","x"],"y",["set"],[]]],"type":["set",["router"]],"name":"x"}`,
			nb.LogicalSwitchPort{Name: "x", PortSecurity: []string{"y"}, Options: map[string]string{"b": "c", "f": "g"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			rows, links, err := decodeRows(tablesByName[nb.LogicalSwitchPortTable], `[{},`+c.json+`,{}]`)
			require.NoError(t, err)
			require.Empty(t, links)
			require.Len(t, rows, 3)
			require.Equal(t, c.want.UUID, uuidOf(rows[1]))
			require.True(t, sameRow(&c.want, rows[1]), "%v", rows[1])
			require.True(t, sameRow(&nb.LogicalSwitchPort{}, rows[2]), "nothing is left of the row before")
		})
	}
}

// TestDecodeAgain: a row that is not kept leaves nothing in the next.
func TestDecodeAgain(t *testing.T) {
	ports := tablesByName[nb.LogicalSwitchPortTable]
	text := `[{"_uuid":["uuid","` + oneUUID + `"],"name":"x","addresses":"a","options":["map",[["a","b"]]],"dhcpv4_options":["uuid","` + twoUUID + `"]},{}]`
	var sums []sum
	d := &decoder{
		Decoder: jsontext.NewDecoder(strings.NewReader(text)), table: ports, words: &words{},
		to: visitor{row: func(_ *table, r row) bool {
			sums = append(sums, ports.sumOf(r))
			return false
		}},
	}
	require.NoError(t, d.rows())
	port := &nb.LogicalSwitchPort{
		UUID: oneUUID, Name: "x", Addresses: []string{"a"}, Options: map[string]string{"a": "b"}, Dhcpv4Options: new(string),
	}
	*port.Dhcpv4Options = twoUUID
	require.Equal(t, []sum{ports.sumOf(port), ports.sumOf(&nb.LogicalSwitchPort{})}, sums)
}

func TestDecodeLinks(t *testing.T) {
	routers := tablesByName[nb.LogicalRouterTable]
	rows, links, err := decodeRows(routers, `[{"ports":["set",[["uuid","a"],["uuid","b"]]],"static_routes":["uuid","c"],"_uuid":["uuid","`+oneUUID+`"]}]`)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, []link{
		{routers.column([]byte("ports")), oneUUID, "a"}, {routers.column([]byte("ports")), oneUUID, "b"},
		{routers.column([]byte("static_routes")), oneUUID, "c"},
	}, links)
}

// TestSum: rows that differ in one place have other sums.
func TestSum(t *testing.T) {
	seen := map[sum]row{}
	for seed := range uint64(5) {
		rows, _ := flat(encodeModel(randomModel(seed, 40)))
		for _, r := range rows {
			of := tableOf(r)
			for _, c := range append([]*column{nil}, of.columns...) {
				if c != nil && c.isDefault(r) {
					continue
				}
				if c != nil {
					c.clear(r)
				}
				s := of.sumOf(r)
				if other, found := seen[s]; found {
					require.Equal(t, uuidOf(other), uuidOf(r))
				}
				seen[s] = r
			}
		}
	}
	port := tablesByName[nb.LogicalSwitchPortTable]
	require.NotEqual(t,
		port.sumOf(&nb.LogicalSwitchPort{Addresses: []string{"a"}}), port.sumOf(&nb.LogicalSwitchPort{PortSecurity: []string{"a"}}))
	require.NotEqual(t,
		port.sumOf(&nb.LogicalSwitchPort{Options: map[string]string{"a": "b"}}), port.sumOf(&nb.LogicalSwitchPort{Options: map[string]string{"b": "a"}}))
}

// FuzzDecode: whatever comes is read without harm, and what libovsdb reads of it
// is read the same; of UTF-8, as others is no JSON (RFC 8259, section 8.1), and the
// two spell it differently.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"_uuid":["uuid","` + oneUUID + `"],"name":"x","addresses":["set",["b","a"]],"options":["map",[["a","b"]]]}`,
		`{"addresses":"a","dhcpv4_options":["uuid","` + oneUUID + `"],"ports":["set",[["uuid","` + twoUUID + `"]]]}`,
		`{"name":5,"options":["map",[[1,2]]],"addresses":["set",[["set",["a"]]]]}`, `{"external_ids":["map",[["a"]]]`, `{"name":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, table := range tables {
			rows, links, err := decodeRows(table, "["+text+"]")
			theirs, ok := libovsdbRow(text)
			if err == nil && len(rows) == 1 && ok && utf8.ValidString(text) {
				requireAsLibovsdb(t, table, theirs, rows[0], links)
			}
		}
	})
}

// libovsdbRow is what libovsdb makes of a row; it panics at some that are none.
func libovsdbRow(text string) (r ovsdb.Row, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	err := json.Unmarshal([]byte(text), &r)
	return r, err == nil
}

// requireAsLibovsdb holds a row against what libovsdb makes of the same answer; of
// columns that it can read.
func requireAsLibovsdb(t *testing.T, of *table, theirs ovsdb.Row, r row, links []link) {
	t.Helper()
	schema := nb.Schema().Table(of.name)
	for _, c := range of.columns {
		value, found := theirs[c.name]
		if !found {
			continue
		}
		native, err := ovsdb.OvsToNative(schema.Column(c.name), value)
		if err != nil {
			continue
		}
		switch want := native.(type) {
		case string:
			require.Equal(t, want, *c.of(r).(*string), c.name)
		case bool:
			require.Equal(t, want, *c.of(r).(*bool), c.name)
		case *string:
			require.Equal(t, want, *c.of(r).(**string), c.name)
		case map[string]string:
			require.Subset(t, *c.of(r).(*map[string]string), want, c.name)
			require.Len(t, *c.of(r).(*map[string]string), len(want), c.name)
		case []string:
			have := *c.of(r).(*[]string)
			if c.link {
				have = nil
				for _, l := range links {
					if l.column == c {
						have = append(have, l.child)
					}
				}
			}
			require.ElementsMatch(t, want, slices.Clone(have), c.name)
		}
	}
}
