// Package synth creates synthetic clusters of any size for benchmarks. They are the same in every run. A cluster
// is the View of one namespace, or the bodies of a client.
package synth

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// viewNodes is the number of nodes with pods of a View.
const viewNodes = 10

// namespace is the name of the namespace of a View.
const namespace = "large"

// View returns a namespace with a number of pods on ten nodes. Each pod has its lease.
func View(pods int) coe.View {
	v := coe.View{
		Namespace: namespace,
		ELANs:     map[string]*coe.ELANFact{},
		VPN:       &coe.VPNFact{Name: namespace, Namespace: namespace, RD: 2},
		Nodes:     map[netip.Addr]*coe.Node{},
		PolicySet: &coe.PolicySet{Complete: true},
	}
	for n := range viewNodes {
		node := NodeAddress(n)
		elan := netvirt.ELANName(node, namespace)
		v.Nodes[node] = &coe.Node{UID: node.String(), HostName: nodeName(n), InternalIP: node}
		v.ELANs[elan] = &coe.ELANFact{Name: elan, VNI: uint32(70000 + n)}
		v.Blocks = append(v.Blocks, &coe.Block{
			ELAN: elan, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16),
			Gateway: netip.AddrFrom4([4]byte{10, byte(n), 0, 1}), Network: "default",
		})
	}
	for i := range pods {
		pod, lease := viewPod(i, v.Blocks[i%viewNodes])
		v.Pods = append(v.Pods, pod)
		v.Leases = append(v.Leases, lease)
	}
	return v
}

func viewPod(i int, block *coe.Block) (*coe.Pod, *coe.Lease) {
	key, n := LeaseKey(i), i%viewNodes
	pod := &coe.Pod{UID: key.PodUID, Name: PodName(i), Namespace: namespace, HostIP: NodeAddress(n)}
	lease := &coe.Lease{
		PodUID: key.PodUID, InterfaceUID: key.InterfaceUID, Seq: uint64(i), Namespace: namespace, Pod: pod.Name,
		Name: netvirt.InterfaceName(namespace, pod.Name, key.InterfaceUID, true), Primary: true,
		Node: pod.HostIP, MAC: "0a:58:0a:00:00:01",
		Addresses: []coe.LeasedAddress{{
			Address: netip.AddrFrom4([4]byte{10, byte(n), byte(1 + i>>8), byte(i)}),
			Network: block.Prefix, Gateway: block.Gateway,
		}},
	}
	return pod, lease
}

// LeaseKey returns the key of the lease of a View's i-th pod.
func LeaseKey(i int) coe.LeaseKey {
	return coe.LeaseKey{PodUID: PodUID(i), InterfaceUID: PodUID(i)}
}

// PodUID returns the UID of the i-th pod.
func PodUID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// PodName returns the name of the i-th pod.
func PodName(i int) string { return fmt.Sprintf("pod-%d", i) }

func nodeName(i int) string { return fmt.Sprintf("node%d", i) }

// NodeAddress returns the address of the i-th node.
func NodeAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(10 + i)})
}

// ChangePod gives a pod of a View a new MAC address at each step. Two objects change.
func ChangePod(v coe.View, step int) {
	n := step % len(v.Pods)
	changed := *v.Leases[n]
	changed.MAC = fmt.Sprintf("0a:59:%02x:%02x:%02x:%02x", byte(step>>24), byte(step>>16), byte(step>>8), byte(step))
	v.Leases[n] = &changed
}

// PutLease puts a lease into a View. It replaces a lease with the same key.
func PutLease(v *coe.View, l *coe.Lease) {
	n, found := v.Leases.Find(l.Key())
	if found {
		v.Leases[n] = l
	} else {
		v.Leases = slices.Insert(v.Leases, n, l)
	}
}

// WithVIPs returns the View with every address of its services claimed.
func WithVIPs(v coe.View) coe.View {
	v.VIPs = map[coe.VIP]bool{}
	for _, s := range v.Services {
		for _, a := range slices.Concat(s.ClusterIPs, s.ExternalIPs) {
			v.VIPs[coe.VIP{Address: a}] = true
		}
	}
	return v
}

// Node1 is the node of OneNode.
var Node1 = netip.MustParseAddr("192.168.33.12")

// OneNode returns a namespace "default" on one node, without pods.
func OneNode() coe.View {
	elan := netvirt.ELANName(Node1, "default")
	return coe.View{
		Namespace: "default",
		Blocks: []*coe.Block{{
			ELAN: elan, Prefix: netip.MustParsePrefix("10.11.2.24/29"), Gateway: netip.MustParseAddr("10.11.2.25"),
			Network: "default", DNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		}},
		ELANs: map[string]*coe.ELANFact{elan: {Name: elan, VNI: 70000, NetworkType: "VXLAN"}},
		VPN:   &coe.VPNFact{Name: "default", Namespace: "default", RD: 2},
		Nodes: map[netip.Addr]*coe.Node{Node1: {UID: "n1", HostName: "node1", InternalIP: Node1}},
	}
}

// AddPod adds a pod with an address of the block to a view that OneNode returned.
func AddPod(v *coe.View, uid, name, addr string) *coe.Pod {
	p := &coe.Pod{UID: uid, Name: name, Namespace: "default", HostIP: Node1, Interfaces: []coe.PodInterface{{UID: uid}}}
	v.Pods = append(v.Pods, p)
	slices.SortFunc(v.Pods, (*coe.Pod).Compare)
	PutLease(v, &coe.Lease{
		PodUID: uid, InterfaceUID: uid, Seq: uint64(len(v.Leases)), Namespace: "default", Pod: name,
		Name: "default:" + name, Primary: true, Node: Node1, MAC: "0a:58:0a:0b:02:1c",
		Addresses: []coe.LeasedAddress{{
			Address: netip.MustParseAddr(addr), Network: v.Blocks[0].Prefix, Gateway: v.Blocks[0].Gateway,
		}},
	})
	return p
}
