package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// TestMapperOfCluster: a Mapper has the same nodes as Cluster after any change. It keeps the parts of nodes that have not
// changed.
func TestMapperOfCluster(t *testing.T) {
	for _, kind := range []struct {
		gateways  bool
		isolation mapping.Isolation
	}{{false, mapping.IsolationNone}, {true, mapping.IsolationNone}, {true, mapping.IsolationACLs}} {
		r := rand.New(rand.NewPCG(1, 2))
		s := settings
		s.Limits.NodeGateways, s.Isolation = kind.gateways, kind.isolation
		require.NoError(t, s.Physical.Add(physical.Network{Namespace: "plant", Name: "cable"}))
		store := state.NewStore(nil, coe.Kubernetes)
		m := mapping.NewMapper(store, s)
		nodes := func() (int, netip.Addr) { n := r.IntN(6); return n, synth.NodeAddress(n) }
		block := func(addr netip.Addr) *coe.Block {
			n := byte(8 * r.IntN(4))
			namespace := []string{"shop", "plant"}[r.IntN(2)]
			return &coe.Block{
				ELAN: netvirt.ELANName(addr, namespace), Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, addr.As4()[3], 0, n}), 29),
				Gateway: netip.AddrFrom4([4]byte{10, addr.As4()[3], 0, n + 1}),
			}
		}
		var have netvirt.Parts
		for range 400 {
			store.Update(func(tx *state.Tx) {
				n, addr := nodes()
				b := block(addr)
				switch r.IntN(10) {
				case 0:
					tx.PutNode(coe.Kubernetes, &coe.Node{UID: fmt.Sprint(n), HostName: fmt.Sprint("node", r.IntN(9)), InternalIP: addr})
				case 1:
					tx.DeleteNode(coe.Kubernetes, fmt.Sprint(n))
				case 2:
					tx.PutNodeFact(&coe.NodeFact{Node: addr, Number: uint32(1 + n)})
				case 3:
					tx.DeleteNodeFact(addr)
				case 4, 5:
					tx.PutBlock("shop", b)
				case 6:
					tx.DeleteBlock("shop", b.ELAN, b.Prefix)
				case 7:
					networks := &coe.Networks{Nodes: nodenet.Range{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 96, byte(r.IntN(2)), 0}), 28)}}
					if r.IntN(2) == 0 {
						networks.NodesIPv6 = nodenet.Range{Prefix: netip.MustParsePrefix("fd96::/120")}
					}
					tx.SetNetworks(networks)
				case 8:
					tx.PutPolicy(coe.Kubernetes, &coe.PolicySpec{
						Policy:  coe.Policy{UID: "policy", Namespace: "shop", Name: "policy"},
						Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Peers: []coe.PolicyPeer{{}}}}},
					})
				case 9:
					tx.DeletePolicy(coe.Kubernetes, "policy")
				}
			})
			want, wantProblems := mapping.Cluster(store.Cluster(), s)
			got, problems := m.Scope(netvirt.Cluster)
			require.Equal(t, want.Parts(), got)
			require.Equal(t, wantProblems, problems)
			changes := netvirt.DiffParts(have, got)
			netvirt.Sort(changes)
			require.Equal(t, netvirt.Diff(have.Model(), want), changes)
			again, _ := m.Scope(netvirt.Cluster)
			for n, part := range got {
				if part.Name != "" {
					require.Same(t, part, again[n], part.Name)
				}
			}
			have = again
		}
	}
}

// A further block of a namespace costs the same whatever number of blocks and namespaces others have.
func TestBlockCostsWhatItChanges(t *testing.T) {
	costs := func(namespaces int) float64 {
		s := settings
		s.Isolation, s.Limits.NodeGateways = mapping.IsolationACLs, true
		store := state.NewStore(nil, coe.Kubernetes)
		put := func(node, namespace int) {
			addr, name := synth.NodeAddress(node), fmt.Sprint("ns-", namespace)
			gateway := netip.AddrFrom4([4]byte{10, byte(node), byte(namespace), byte(namespace >> 8)})
			store.Update(func(tx *state.Tx) {
				tx.PutBlock(name, &coe.Block{ELAN: netvirt.ELANName(addr, name), Prefix: netip.PrefixFrom(gateway, 32), Gateway: gateway})
			})
		}
		for namespace := range namespaces {
			put(namespace%10, namespace)
			put(10, namespace)
		}
		m := mapping.NewMapper(store, s)
		m.Scope(netvirt.Cluster)
		last := 0
		return testing.AllocsPerRun(50, func() {
			put(11+last%2, 0)
			last++
			m.Scope(netvirt.Cluster)
		})
	}
	few, many := costs(10), costs(1000)
	require.Less(t, many, 2*few, "allocations with 1,000 namespaces, and %v with 10", few)
}
