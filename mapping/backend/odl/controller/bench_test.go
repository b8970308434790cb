package controller

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// BenchmarkRead measures a Read of 10,000 pods without its requests. It compares the time
// with the time to only decode the answers into the same structs.
func BenchmarkRead(b *testing.B) {
	const pods = 10_000
	lists, answers := codec.ListsOf(codec.Nested), answersOf(b, pods)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			for l, answer := range answers {
				d := newDecoder(bytes.NewReader(answer))
				n := 0
				require.NoError(b, members(d, func(string) error {
					return members(d, func(string) error { return elements(d, elementOf(&lists[l], func(codec.Entry) { n++ })) })
				}))
				require.NotZero(b, n)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			m := codec.NewMirror(codec.Nested)
			for l, answer := range answers {
				require.NoError(b, decodeList(bytes.NewReader(answer), &lists[l], func(e codec.Entry) {
					e.Normalize()
					m.Put(codec.UnitAt(l, e.Key()), l, e.Own())
				}))
			}
			m.KeepOurs()
			require.Len(b, m.Model(), 5*pods+2*pods/100)
		}
	})
}

// answersOf returns the answers of a controller with pods, a hundred in each namespace.
func answersOf(b *testing.B, pods int) map[int][]byte {
	m := codec.NewMirror(codec.Nested)
	model := netvirt.Model{}
	for i := range pods {
		benchPod(model, i)
	}
	units := map[codec.Unit]netvirt.Model{}
	for _, o := range model {
		u := codec.UnitOf(o)
		if units[u] == nil {
			units[u] = netvirt.Model{}
		}
		units[u].Add(o)
	}
	lists, entries := codec.ListsOf(codec.Nested), map[int][]codec.Entry{}
	for u, objects := range units {
		have, err := m.Encode(u, slices.Collect(maps.Values(objects)), codec.Content{})
		require.NoError(b, err)
		for l, e := range have {
			if e != nil {
				entries[l] = append(entries[l], e)
			}
		}
	}
	answers := map[int][]byte{}
	for l, all := range entries {
		body, err := json.Marshal(map[string]any{lists[l].Container: map[string]any{lists[l].Name: all}})
		require.NoError(b, err)
		answers[l] = body
	}
	return answers
}

func benchPod(m netvirt.Model, i int) {
	n, at := i/100, i%100
	namespace := fmt.Sprintf("namespace-%d", n)
	elan := netvirt.ELANName(netip.MustParseAddr("192.168.33.10"), namespace)
	name, uid := fmt.Sprintf("%s:pod-%d", namespace, at), fmt.Sprintf("8f2a6d5e-0000-4000-8000-%012x", i)
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), byte(at &^ 7), 0}), 29)
	address := netip.AddrFrom4([4]byte{10, byte(n), byte(at &^ 7), byte(2 + at%8)})
	mac := fmt.Sprintf("0a:58:00:00:%02x:%02x", i/256, i%256)
	m.Add(
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: uint32(70000 + n)},
		netvirt.VPNInstance{Name: namespace, Namespace: namespace, RouteDistinguisher: fmt.Sprintf("100:%d", 2+n)},
		netvirt.Interface{Name: name, Namespace: namespace, Pod: fmt.Sprintf("pod-%d", at), PodUID: uid, UID: uid, ParentInterface: netvirt.PortName(name, uid)},
		netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan},
		netvirt.MACEntry{Interface: name, Namespace: namespace, MAC: mac, Address: address},
		netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: namespace},
		netvirt.Adjacency{
			Interface: name, Namespace: namespace, Address: address, MAC: mac, ELAN: elan, Network: network, Gateway: network.Addr().Next(),
		},
	)
}
