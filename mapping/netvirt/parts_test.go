package netvirt_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// randomModel returns a model of two namespaces with up to ten interfaces each, in a few
// variants.
func randomModel(r *rand.Rand) netvirt.Model {
	m := netvirt.Model{}
	for n := range 2 {
		namespace := fmt.Sprintf("ns%d", n)
		m.Add(netvirt.VPNInstance{Name: namespace, Namespace: namespace, RouteDistinguisher: fmt.Sprintf("100:%d", r.IntN(3))})
		for i := range 10 {
			if r.IntN(4) == 0 {
				continue
			}
			name := netvirt.InterfaceName(namespace, fmt.Sprintf("pod%d", i), "", true)
			addr := netip.AddrFrom4([4]byte{10, 0, byte(n), byte(r.IntN(3))})
			m.Add(
				netvirt.Interface{Name: name, Namespace: namespace, PodUID: fmt.Sprint(r.IntN(3))},
				netvirt.ELANInterface{Name: name, Namespace: namespace},
				netvirt.MACEntry{Interface: name, Namespace: namespace, Address: addr},
				netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: namespace},
				netvirt.Adjacency{Interface: name, Namespace: namespace, Address: addr},
			)
			if r.IntN(2) == 0 {
				m.Add(netvirt.FloatingIP{Router: namespace, Port: name, Namespace: namespace, Internal: addr})
			}
		}
	}
	return m
}

// FuzzParts compares the operations on Parts with the operations on Model.
func FuzzParts(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, seed))
		have, want := randomModel(r), randomModel(r)
		changes := netvirt.Diff(have, want)
		haveParts, wantParts := have.Parts(), want.Parts()

		require.Equal(t, have, haveParts.Model())
		require.Equal(t, len(have), haveParts.Len())
		for k, o := range have {
			require.Equal(t, o, haveParts.Get(k))
		}
		for k := range want {
			require.Equal(t, have[k], haveParts.Get(k), "%s", k)
		}

		ofParts := netvirt.DiffParts(haveParts, wantParts)
		netvirt.Sort(ofParts)
		require.Equal(t, changes, ofParts)
		require.Equal(t, wantParts, haveParts.Apply(changes))
		require.Equal(t, have, haveParts.Model(), "Apply does not change its receiver")
		require.Empty(t, haveParts.Apply(netvirt.Diff(have, nil)))
		require.Empty(t, netvirt.DiffParts(haveParts, slices.Clone(haveParts)))

		whole := netvirt.Model{}
		for scope, parts := range have.ByScope() {
			for k, o := range parts.Model() {
				require.Equal(t, scope, o.Scope())
				whole[k] = o
			}
		}
		require.Equal(t, have, whole)

		for _, set := range []netvirt.KindSet{
			netvirt.NewKindSet(netvirt.KindInterface, netvirt.KindVPNInterface, netvirt.KindFloatingIP),
			netvirt.NewKindSet(netvirt.Kinds()...),
			netvirt.NewKindSet(netvirt.Kinds()...) &^ netvirt.NewKindSet(netvirt.KindFloatingIP),
			netvirt.NewKindSet(netvirt.Kinds()...) &^ netvirt.NewKindSet(netvirt.KindFloatingIP, netvirt.KindVPNInstance),
			0,
		} {
			require.Equal(t, have.Select(set).Parts(), haveParts.Select(set))
		}
		require.Equal(t, have, haveParts.Model(), "Select does not change its receiver")
	})
}

func TestPartsShared(t *testing.T) {
	m := randomModel(rand.New(rand.NewPCG(1, 1)))
	before := m.Parts()
	gone := netvirt.Key{Kind: netvirt.KindInterface, Name: "ns0:pod1"}
	after := before.Apply([]netvirt.Change{{Old: m[gone]}})
	for _, part := range after {
		require.Equal(t, part.Name != gone.Name, part == before.Part(part.Name), "%q", part.Name)
	}
	for n, part := range after.Select(netvirt.NewKindSet(netvirt.Kinds()...)) {
		require.Same(t, after[n], part)
	}
}
