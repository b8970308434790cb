package codec

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var kinds = Kinds()

// encodeAll encodes a model into a mirror. Every entry is marshalled to JSON and back.
func encodeAll(t require.TestingT, f Form, model netvirt.Model) *Mirror {
	m := NewMirror(f)
	units := map[Unit]netvirt.Model{}
	for _, k := range model.Keys() {
		u := UnitOf(model[k])
		if units[u] == nil {
			units[u] = netvirt.Model{}
		}
		units[u].Add(model[k])
		m.Learn(netvirt.Change{New: model[k]})
	}
	lists := ListsOf(f)
	order := slices.SortedFunc(maps.Keys(units), func(a, b Unit) int { return cmp.Compare(a.Kind, b.Kind) })
	for _, u := range order { // vpn-instances come first
		have, err := m.Encode(u, slices.Collect(maps.Values(units[u])), Content{})
		require.NoError(t, err)
		for l, e := range have {
			if e == nil {
				continue
			}
			text, err := json.Marshal(e)
			require.NoError(t, err)
			again := lists[l].Fresh()
			require.NoError(t, json.Unmarshal(text, again))
			again.Normalize()
			require.Equal(t, e, again.Own())
			m.Put(u, l, again.Own())
		}
	}
	for _, o := range m.openLists(nil) {
		m.Put(o.Unit, o.List, o.Entry)
	}
	m.Subnets = newSubnets(nil) // an empty cache
	return m
}

// FuzzCodec checks that decode(encode(o)) == o, and that all entries are recognised as ours.
func FuzzCodec(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		w := backendtest.NewWorld(seed)
		for range steps {
			w.Step()
		}
		want := w.Model().Select(kinds)
		for _, f := range []Form{Nested, Moved, Flat} {
			m := encodeAll(t, f, want)
			before := maps.Clone(m.units)
			m.KeepOurs()
			require.Equal(t, len(before), len(m.units))
			require.Equal(t, want, m.Model())
		}
	})
}

// TestEntriesOfAPod checks the entries of one pod as they are sent to a controller.
func TestEntriesOfAPod(t *testing.T) {
	node := netip.MustParseAddr("192.168.33.12")
	elan := netvirt.ELANName(node, "default")
	address, sixth := netip.MustParseAddr("10.11.2.28"), netip.MustParseAddr("fd00::28")
	const name, uid, mac = "default:busybox1", "8f2a6d5e-0000-4000-8000-000000000001", "0a:58:0a:0b:02:1c"
	m := netvirt.Model{}
	m.Add(
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.VPNInstance{Name: "default", Namespace: "default", RouteDistinguisher: "100:2", Transit: "100:1"},
		netvirt.Interface{Name: name, Namespace: "default", Pod: "busybox1", PodUID: uid, UID: "if-1", ParentInterface: netvirt.PortName(name, uid)},
		netvirt.ELANInterface{Name: name, Namespace: "default", ELAN: elan, Chassis: "node 1"},
		netvirt.MACEntry{Interface: name, Namespace: "default", MAC: mac, Address: address},
		netvirt.MACEntry{Interface: name, Namespace: "default", MAC: mac, Address: sixth},
		netvirt.VPNInterface{Name: name, Namespace: "default", VPN: "default"},
		netvirt.Adjacency{
			Interface: name, Namespace: "default", Address: address, MAC: mac, ELAN: elan,
			Network: netip.MustParsePrefix("10.11.2.0/24"), Gateway: netip.MustParseAddr("10.11.2.1"),
		},
		netvirt.FloatingIP{
			Router: "default", Port: name, Namespace: "default", Internal: address, External: netip.MustParseAddr("10.96.0.10"),
			ExternalID: "8f2a6d5e-0000-4000-8000-0000000000aa",
		},
	)
	mirror := encodeAll(t, Nested, m)
	require.Equal(t, m, mirror.Model())
	for want, have := range map[string]Entry{
		`{"elan-instance-name":"192.168.33.12:default","segment-type":"elan:segment-type-vxlan","segmentation-id":70000,"external":false,"description":"coe-bridge"}`: mirror.At(Unit{netvirt.KindELANInstance, elan})[ELANInstances],
		`{"vpn-instance-name":"default","type":"l3","l3vni":0,"description":"coe-bridge transit=100:1","ipv4-family":{"route-distinguisher":["100:2"],
			"vpnTargets":{"vpnTarget":[{"vrfRTValue":"100:2","vrfRTType":"both"}]}}}`: mirror.At(Unit{netvirt.KindVPNInstance, "default"})[VPNInstances],
		`{"name":"default:busybox1","type":"iana-if-type:l2vlan","enabled":true,"odl-interface:l2vlan-mode":"trunk",
			"odl-interface:parent-interface":"` + netvirt.PortName(name, uid) + `","description":"coe-bridge pod=8f2a6d5e-0000-4000-8000-000000000001 interface=if-1",
			"aclservice:port-security-enabled":false,"aclservice:allowed-address-pairs":[
				{"mac-address":"0a:58:0a:0b:02:1c","ip-address":"10.11.2.28"},{"mac-address":"0a:58:0a:0b:02:1c","ip-address":"fd00::28"}]}`: mirror.At(Unit{netvirt.KindInterface, name})[Interfaces],
		`{"name":"default:busybox1","elan-instance-name":"192.168.33.12:default","static-mac-entries":[{"mac-address":"0a:58:0a:0b:02:1c","ip-prefix":"10.11.2.28"}],
			"description":"coe-bridge chassis=node%201 also=fd00::28@0a:58:0a:0b:02:1c"}`: mirror.At(Unit{netvirt.KindInterface, name})[ELANInterfaces],
	} {
		text, err := json.Marshal(have)
		require.NoError(t, err)
		require.JSONEq(t, want, string(text))
	}
}

// TestDamaged: an entry that an external writer has changed is read as an object that differs
// from every wanted object. Leaves of other writers do not make an entry damaged.
func TestDamaged(t *testing.T) {
	w := backendtest.NewWorld(5)
	w.AddPods(4)
	want := w.Model().Select(kinds)
	for name, damage := range map[string]func(e Entry) bool{
		"segmentation-id": func(e Entry) bool { x, ok := e.(*ELANInstance); return ok && set(&x.SegmentationID, 4) },
		"external":        func(e Entry) bool { x, ok := e.(*ELANInstance); return ok && set(&x.External, true) },
		"l3vni":           func(e Entry) bool { x, ok := e.(*vpnInstance); return ok && set(&x.L3VNI, 7) },
		"target": func(e Entry) bool {
			x, ok := e.(*vpnInstance)
			return ok && set(&x.IPv4.Targets.Target[0].Type, "import_extcommunity")
		},
		"disabled": func(e Entry) bool { x, ok := e.(*IETFInterface); return ok && set(&x.Enabled, false) },
		"mode":     func(e Entry) bool { x, ok := e.(*IETFInterface); return ok && set(&x.L2VLANMode, "transparent") },
		"parent":   func(e Entry) bool { x, ok := e.(*IETFInterface); return ok && set(&x.Parent, "") },
		"elan":     func(e Entry) bool { x, ok := e.(*ELANInterface); return ok && set(&x.ELAN, "elsewhere") },
		"mac": func(e Entry) bool {
			x, ok := e.(*ELANInterface)
			return ok && set(&x.MACEntries[0].MAC, "00:00:00:00:00:01")
		},
		"vpn": func(e Entry) bool { x, ok := e.(*VPNInterface); return ok && set(&x.VPNs[0].Name, "elsewhere") },
		"gateway": func(e Entry) bool {
			x, ok := e.(*VPNInterface)
			return ok && set(&x.Adjacencies[0].Gateway, "10.9.9.9")
		},
		"subnet_id": func(e Entry) bool {
			x, ok := e.(*VPNInterface)
			return ok && set(&x.Adjacencies[0].SubnetID, "00000000-0000-8000-8000-000000000000")
		},
		"router": func(e Entry) bool { x, ok := e.(*VPNInterface); return ok && set(&x.Router, true) },
	} {
		t.Run(name, func(t *testing.T) {
			m := encodeAll(t, Nested, want)
			damaged := 0
			for _, have := range m.units {
				for _, e := range have {
					if e != nil && damage(e) {
						damaged++
					}
				}
			}
			require.NotZero(t, damaged)
			m.KeepOurs()
			have := m.Model()
			require.GreaterOrEqual(t, len(netvirt.Diff(have, want)), damaged)

			// Writing the difference repairs it.
			operations := 0
			lists, refused := m.Operations(netvirt.Diff(have, want))
			require.Empty(t, refused)
			for _, list := range lists {
				for _, o := range list {
					m.Put(o.Unit, o.List, o.Entry)
					operations++
				}
			}
			require.GreaterOrEqual(t, operations, damaged)
			require.Equal(t, want, m.Model())
		})
	}
}

func set[T any](field *T, value T) bool {
	*field = value
	return true
}

// TestDescriptions: a description can contain any text.
func TestDescriptions(t *testing.T) {
	for _, text := range []string{"", "a", "a b", "a=b", "ä?", "100%", "a\nb", "fd00::1@0a:58"} {
		description := describe(word{"one", text}, word{"two", "x"})
		require.True(t, marked(description))
		require.NotContains(t, description, "?")
		require.Equal(t, map[string]string{"one": text, "two": "x"}, maps.Collect(words(description)))
		for _, name := range []string{"one", "two", "three"} {
			value, ok := find(description, name)
			require.Equal(t, map[string]string{"one": text, "two": "x"}[name], value)
			require.Equal(t, name != "three", ok)
		}
	}
	require.False(t, marked("coe-bridges"))
	require.Empty(t, maps.Collect(words("private network one=1")))
}

// TestSame: two entries that differ in one leaf are not the same.
func TestSame(t *testing.T) {
	blank := map[string]func() Entry{
		"interface": func() Entry {
			return &IETFInterface{Groups: []string{""}, Pairs: []addressPair{{}}, Secured: new(bool)}
		},
		"elan-interface": func() Entry { return &ELANInterface{MACEntries: []macEntry{{}}} },
		"vpn-interface":  func() Entry { return &VPNInterface{VPNs: []VPNName{{}}, Adjacencies: []adjacency{{}}} },
	}
	for name, blankEntry := range blank {
		require.True(t, Same(blankEntry(), blankEntry()), name)
		for i := range leavesOf(reflect.ValueOf(blankEntry()).Elem()) {
			changed := blankEntry()
			leaf := leavesOf(reflect.ValueOf(changed).Elem())[i]
			switch leaf.Kind() {
			case reflect.String:
				leaf.SetString("x")
			case reflect.Bool:
				leaf.SetBool(true)
			default:
				leaf.SetBytes([]byte("x"))
			}
			require.False(t, Same(blankEntry(), changed), "%s: leaf %d: %+v", name, i, changed)
		}
	}
	require.False(t, Same(&VPNInterface{}, &VPNInterface{moved: true}))
	require.False(t, Same(&IETFInterface{}, &IETFInterface{Secured: new(bool)}))
	require.False(t, Same(&IETFInterface{}, &ELANInterface{}))
}

// leavesOf returns the leaves of a value that reflection can set.
func leavesOf(v reflect.Value) (all []reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			all = append(all, leavesOf(v.Field(i))...)
		}
	case v.Kind() == reflect.Pointer:
		return leavesOf(v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			all = append(all, leavesOf(v.Index(i))...)
		}
	case v.CanSet():
		all = append(all, v)
	}
	return all
}

// TestAddressesOfAManagementPort: Neon never removes the operational state of a vpn-interface with more than two adjacencies.
func TestAddressesOfAManagementPort(t *testing.T) {
	network := netvirt.NodeNetwork{
		Prefix: netip.MustParsePrefix("100.96.0.0/16"), Gateway: netip.MustParseAddr("100.96.0.1"), Transit: "100:1",
		PrefixIPv6: netip.MustParsePrefix("fd00:96::/64"), GatewayIPv6: netip.MustParseAddr("fd00:96::1"),
	}
	port := netvirt.ManagementPort{
		Node: netip.MustParseAddr("192.168.33.12"), Network: network.Prefix, MAC: "0a:58:64:60:00:02",
		Address: netip.MustParseAddr("100.96.0.2"), ServiceAddress: netip.MustParseAddr("100.96.0.3"), EdgeAddress: netip.MustParseAddr("100.96.255.254"),
		IPv6: netvirt.NodeAddresses{Address: netip.MustParseAddr("fd00:96::2"), Service: netip.MustParseAddr("fd00:96::3"), Edge: netip.MustParseAddr("fd00:96::ffff")},
	}
	m := netvirt.Model{}
	m.Add(network, port)
	mirror := encodeAll(t, Nested, m)
	require.Equal(t, m, mirror.Model())
	var addresses []string
	for _, a := range mirror.At(UnitOf(port))[VPNInterfaces].(*VPNInterface).Adjacencies {
		addresses = append(addresses, a.Address)
	}
	require.Equal(t, []string{"100.96.0.2/32", "100.96.255.254/32"}, addresses)
}
