// Package odltest has models of pods for the tests of the OpenDaylight backend.
package odltest

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Node is the address of the node on which all pods are.
var Node = netip.MustParseAddr("192.168.33.10")

// PodsOf returns a model with one pod in each namespace, pod-1, all on one node.
func PodsOf(namespaces ...string) netvirt.Model {
	m := netvirt.Model{}
	m.Add(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})
	for n, namespace := range namespaces {
		PodOn(m, namespace, "pod-1", n, 2)
	}
	return m
}

// PodOn adds pod number at to namespace number n.
func PodOn(m netvirt.Model, namespace, pod string, n, at int) {
	elan, name := netvirt.ELANName(Node, namespace), netvirt.InterfaceName(namespace, pod, "", true)
	uid := fmt.Sprintf("8f2a6d5e-0000-4000-8000-%06x%06x", n, at)
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)
	address := netip.AddrFrom4([4]byte{10, byte(n), byte(at / 250), byte(2 + at%250)})
	mac := fmt.Sprintf("0a:58:00:%02x:%02x:%02x", n, at/256, at%256)
	vpn := netvirt.VPNName(namespace)
	m.Add(
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: uint32(70000 + n)},
		netvirt.VPNInstance{Name: vpn, Namespace: namespace, RouteDistinguisher: fmt.Sprintf("100:%d", 2+n), Transit: netvirt.CommonRouteTarget},
		netvirt.Interface{
			Name: name, Namespace: namespace, Pod: pod, PodUID: uid, UID: uid, ParentInterface: netvirt.PortName(name, uid),
		},
		netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan, Chassis: "node-1"},
		netvirt.MACEntry{Interface: name, Namespace: namespace, MAC: mac, Address: address},
		netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: vpn},
		netvirt.Adjacency{
			Interface: name, Namespace: namespace, Address: address, MAC: mac, ELAN: elan, Network: network, Gateway: network.Addr().Next(),
		},
	)
}
