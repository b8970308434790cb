package ovn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var testCodec = codec{"owner"}

// randomModel is a legal model without nodes, which have no rows.
func randomModel(seed uint64, steps int) netvirt.Model {
	w := backendtest.NewWorld(seed)
	for range steps {
		w.Step()
	}
	m := w.Model()
	maps.DeleteFunc(m, func(k netvirt.Key, _ netvirt.Object) bool { return k.Kind == netvirt.KindNode })
	return m
}

// encodeModel are the rows of all groups of a model, by head.
func encodeModel(m netvirt.Model) map[netvirt.Key]*rowSet {
	groups := map[netvirt.Key]netvirt.Model{}
	for _, o := range m {
		k := headOf(o)
		if groups[k] == nil {
			groups[k] = netvirt.Model{}
		}
		groups[k].Add(o)
	}
	sets := map[netvirt.Key]*rowSet{}
	for k, objects := range groups {
		sets[k] = testCodec.encode(k, objects, func(k netvirt.Key) netvirt.Object { return m[k] })
	}
	return sets
}

// flat are the rows and links of several sets.
func flat(sets map[netvirt.Key]*rowSet) (rows []row, links []link) {
	for _, set := range sets {
		rows, links = append(rows, set.rows...), append(links, set.links...)
	}
	return rows, links
}

// loadRows is what load makes of rows.
func loadRows(t *testing.T, rows []row, links []link) *mirror {
	t.Helper()
	m, err := load(testCodec, func(v visitor) error {
		for _, l := range links {
			v.link(l)
		}
		for _, r := range rows {
			v.row(tableOf(r), r)
		}
		for _, t := range readOrder {
			v.read(t)
		}
		return nil
	})
	require.NoError(t, err)
	return m
}

// requireSame holds rows and links against others, in whichever order.
func requireSame(t *testing.T, want, have *rowSet) {
	t.Helper()
	require.Len(t, have.rows, len(want.rows))
	for _, r := range want.rows {
		require.True(t, sameRow(r, have.get(uuidOf(r))), "%v, not %v", have.get(uuidOf(r)), r)
	}
	require.ElementsMatch(t, want.links, have.links)
}

// FuzzCodec: what is read of the rows of a model is the model.
func FuzzCodec(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		model := randomModel(seed, int(steps%50))
		sets := encodeModel(model)
		for k, set := range sets {
			for _, r := range set.rows {
				for _, o := range testCodec.decode(k, r) {
					require.Equal(t, model[o.Key()], o)
				}
			}
		}
		rows, links := flat(sets)
		require.Equal(t, model, loadRows(t, rows, links).model())
	})
}

// FuzzDamage: rows that another hand has spoilt are read without harm, and what
// is written on top of what was read of them are the rows of the model.
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
	f.Fuzz(func(t *testing.T, seed uint64, key, value string) {
		model := randomModel(seed, 20)
		want := encodeModel(model)
		rows, links := flat(encodeModel(model))
		rng := rand.New(rand.NewPCG(seed, 1))
		rows, links = spoil(rng, rows, links, key, value)

		m := loadRows(t, rows, links)
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

// stageAll makes changes to a mirror, as if the server had taken them.
func stageAll(t *testing.T, m *mirror, changes []netvirt.Change) {
	t.Helper()
	ahead := m.stage()
	for _, s := range steps(changes) {
		for _, c := range s.changes {
			require.NoError(t, ahead.apply(c))
		}
	}
	ahead.operations()
	ahead.commit()
}

// spoil changes some rows at random, takes some away, and some links.
func spoil(rng *rand.Rand, rows []row, links []link, key, value string) ([]row, []link) {
	for range min(5, len(rows)) {
		i := rng.IntN(len(rows))
		t := tableOf(rows[i])
		if rng.IntN(4) == 0 {
			rows = slices.Delete(rows, i, i+1)
			continue
		}
		switch field := t.columns[rng.IntN(len(t.columns))].of(rows[i]).(type) {
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

// TestWire: a row comes back from the wire as it was sent.
func TestWire(t *testing.T) {
	var rows []row
	for seed := range uint64(5) {
		more, _ := flat(encodeModel(randomModel(seed, 40)))
		rows = append(rows, more...)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		table := tableOf(r)
		seen[table.name] = true
		for _, defaults := range []bool{true, false} {
			again, links, err := decodeRows(table, "["+string(appendRow(nil, table, r, defaults))+"]")
			require.NoError(t, err)
			require.Empty(t, links)
			require.Len(t, again, 1)
			table.setUUID(again[0], table.uuidOf(r))
			requireSame(t, &rowSet{rows: []row{r}}, &rowSet{rows: again})
		}
	}
	require.Len(t, seen, len(tables), "a table has no row in this test")
}

// TestParseUnreadable: what can't be read of a row is left empty.
func TestParseUnreadable(t *testing.T) {
	table := tablesByName[nb.LogicalSwitchTable]
	rows, links, err := decodeRows(table, `[{"_uuid":7,"name":5.0,"ports":"x","external_ids":["map",[[1,2]]]}]`)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.True(t, sameRow(&nb.LogicalSwitch{}, rows[0]))
	require.Empty(t, uuidOf(rows[0]))
	require.Empty(t, links)
}

// TestNames: no two rows have one UUID, and no two ports one name, of pods,
// switches and routers together: in the southbound database they are of one kind.
func TestNames(t *testing.T) {
	for seed := range uint64(20) {
		uuids, names := map[string]bool{}, map[string]bool{}
		rows, _ := flat(encodeModel(randomModel(seed, 40)))
		for _, r := range rows {
			name := ""
			switch r := r.(type) {
			case *nb.LogicalSwitchPort:
				name = r.Name
			case *nb.LogicalRouterPort:
				name = r.Name
			}
			uuid := uuidOf(r)
			require.False(t, uuids[uuid], uuid)
			require.False(t, name != "" && names[name], name)
			uuids[uuid], names[name] = true, true
		}
	}
}

// TestUUIDs: UUIDs are part of what is in databases, and stay as they are.
func TestUUIDs(t *testing.T) {
	k := netvirt.Key{Kind: netvirt.KindInterface, Name: "default:busybox1"}
	require.Equal(t, "a4fdca33-d331-5c26-9109-57a7d7964473", codec{"coe-bridge"}.uuid(nb.LogicalSwitchPortTable, k, ""))
}

func TestTransitPair(t *testing.T) {
	cases := map[string]struct{ rd, transit, vpn, vpnMAC, vpnIPv6 string }{
		"first":       {"100:2", "100.64.0.9", "100.64.0.10", "0a:58:64:40:00:0a", "fe80::858:64ff:fe40:a"},
		"last":        {"100:524287", "100.95.255.253", "100.95.255.254", "0a:58:64:5f:ff:fe", "fe80::858:64ff:fe5f:fffe"},
		"repeated":    {"100:524288", "100.64.0.1", "100.64.0.2", "0a:58:64:40:00:02", "fe80::858:64ff:fe40:2"},
		"not numbers": {"x", "100.72.24.37", "100.72.24.38", "0a:58:64:48:18:26", "fe80::858:64ff:fe48:1826"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pair := transitPair(netvirt.VPNInstance{Name: "v", RouteDistinguisher: c.rd})
			require.Equal(t, c.transit, pair.transit.ipv4.String())
			require.Equal(t, c.vpn, pair.vpn.ipv4.String())
			require.Equal(t, c.vpnMAC, pair.vpn.mac)
			require.Equal(t, c.vpnIPv6, pair.vpn.ipv6.String())
		})
	}
}

// TestPodRows are the rows of the pod that netvirt-model's example shows.
func TestPodRows(t *testing.T) {
	const name, elan = "default:busybox1", "192.168.33.12:default"
	address, network := netip.MustParseAddr("10.11.2.28"), netip.MustParsePrefix("10.11.2.0/24")
	m := netvirt.Model{}
	m.Add(
		netvirt.Interface{Name: name, Namespace: "default", Pod: "busybox1", PodUID: "pod-uid", UID: "uid", ParentInterface: "tap"},
		netvirt.ELANInterface{Name: name, Namespace: "default", ELAN: elan, Chassis: "node1"},
		netvirt.MACEntry{Interface: name, Namespace: "default", MAC: "0a:58:0a:0b:02:1c", Address: address},
		netvirt.VPNInterface{Name: name, Namespace: "default", VPN: "default"},
		netvirt.Adjacency{
			Interface: name, Namespace: "default", Address: address, MAC: "0a:58:0a:0b:02:1c",
			ELAN: elan, Network: network, Gateway: netip.MustParseAddr("10.11.2.1"),
		},
	)
	k := netvirt.Key{Kind: netvirt.KindInterface, Name: name}
	set := testCodec.encode(k, m, func(k netvirt.Key) netvirt.Object { return m[k] })
	dhcp := testCodec.dhcpUUID(elan, network)
	uuid := testCodec.uuid(nb.LogicalSwitchPortTable, k, "")
	addresses := []string{"0a:58:0a:0b:02:1c 10.11.2.28"}
	require.Equal(t, []row{&nb.LogicalSwitchPort{
		UUID: uuid, Name: name, Addresses: addresses, PortSecurity: addresses, Dhcpv4Options: &dhcp,
		Options: map[string]string{"iface-id-ver": "pod-uid", "requested-chassis": "node1"},
		ExternalIDs: map[string]string{
			"coe-bridge/owner": "owner", "coe-bridge/kind": "interface", "coe-bridge/name": name,
			"coe-bridge/namespace": "default", "coe-bridge/pod": "busybox1", "coe-bridge/pod-uid": "pod-uid",
			"coe-bridge/interface-uid": "uid", "coe-bridge/parent-interface": "tap",
			"coe-bridge/elan": elan, "coe-bridge/chassis": "node1", "coe-bridge/vpn": "default",
			"coe-bridge/static-mac-entry/10.11.2.28": "0a:58:0a:0b:02:1c",
			"coe-bridge/adjacency/10.11.2.28":        "0a:58:0a:0b:02:1c 10.11.2.0/24 10.11.2.1 " + elan,
		},
	}}, set.rows)
	ports := tablesByName[nb.LogicalSwitchTable].column([]byte("ports"))
	require.Equal(t, []link{{ports, testCodec.switchUUID(elan), uuid}}, set.links)
}

// TestSteps: the changes of a group are drawn together, and no further.
func TestSteps(t *testing.T) {
	model := randomModel(1, 30)
	next := randomModel(2, 30)
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
