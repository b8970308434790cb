package mapping_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// BenchmarkMapDiff maps a namespace after one pod changed and compares the
// result with the model before.
func BenchmarkMapDiff(b *testing.B) {
	for _, pods := range []int{50, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			settings := mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
			v := largeView(pods)
			have, problems := mapping.Map(v, settings)
			if len(problems) > 0 {
				b.Fatal(problems[0])
			}
			moved := *v.Leases[leaseKey(pods/2)]
			moved.MAC = "0a:58:ff:ff:ff:ff"
			v.Leases[moved.Key()] = &moved
			b.ReportAllocs()
			for b.Loop() {
				want, _ := mapping.Map(v, settings)
				if changes := netvirt.Diff(have, want); len(changes) != 2 {
					b.Fatalf("%d changes, want 2", len(changes))
				}
			}
		})
	}
}

func leaseKey(i int) coe.LeaseKey {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	return coe.LeaseKey{PodUID: uid, InterfaceUID: uid}
}

// largeView is a namespace with many pods on ten nodes, each pod with its lease.
func largeView(pods int) coe.View {
	const nodes = 10
	v := coe.View{
		Namespace: "large",
		Leases:    map[coe.LeaseKey]*coe.Lease{},
		ELANs:     map[string]*coe.ELANFact{},
		VPN:       &coe.VPNFact{Name: "large", Namespace: "large", RD: 2},
		Nodes:     map[netip.Addr]*coe.Node{},
	}
	for n := range nodes {
		node := netip.AddrFrom4([4]byte{192, 168, 0, byte(n + 1)})
		elan := netvirt.ELANName(node, "large")
		v.Nodes[node] = &coe.Node{UID: node.String(), HostName: fmt.Sprintf("node%d", n), InternalIP: node}
		v.ELANs[elan] = &coe.ELANFact{Name: elan, VNI: uint32(70000 + n)}
		v.Blocks = append(v.Blocks, &coe.Block{
			ELAN: elan, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16),
			Gateway: netip.AddrFrom4([4]byte{10, byte(n), 0, 1}), Network: "default",
		})
	}
	for i := range pods {
		key, n := leaseKey(i), i%nodes
		block := v.Blocks[n]
		addr := netip.AddrFrom4([4]byte{10, byte(n), byte(1 + i>>8), byte(i)})
		name := fmt.Sprintf("pod-%d", i)
		node := netip.AddrFrom4([4]byte{192, 168, 0, byte(n + 1)})
		v.Pods = append(v.Pods, &coe.Pod{UID: key.PodUID, Name: name, Namespace: "large", HostIP: node})
		v.Leases[key] = &coe.Lease{
			PodUID: key.PodUID, InterfaceUID: key.InterfaceUID, Seq: uint64(i), Namespace: "large", Pod: name,
			Name: "large:" + name, Primary: true, Node: node, MAC: "0a:58:0a:00:00:01",
			Addresses: []coe.LeasedAddress{{Address: addr, Network: block.Prefix, Gateway: block.Gateway}},
		}
	}
	return v
}
