package porttables_test

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// BenchmarkChangedPort is the change of one of many ports: one of its endpoints is replaced, or it comes and goes. A local one
// has an endpoint on each of ten nodes, and the node leads its own programs to those elsewhere.
func BenchmarkChangedPort(b *testing.B) {
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}), 8080)
	}
	for name, of := range map[string]func(number uint16, to []netip.AddrPort) []nodeports.Port{"cluster": clusterOf, "local": localOf} {
		for _, n := range []int{50, 5000} {
			table := porttables.New(porttables.Config{Netns: namespace.New(b), Link: "coe0"})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var changed []netip.AddrPort
			for i := range n {
				var to []netip.AddrPort
				for e := range 10 {
					to = append(to, at(i+e))
				}
				for _, p := range of(uint16(30000+i), to) {
					table.Put(p)
				}
				changed = to
			}
			_, err := table.Sync(place, porttables.Hosts{}, nil)
			require.NoError(b, err)
			runtime.GC()
			runtime.ReadMemStats(&after)
			for kind, change := range map[string]func(i int){
				"an endpoint is replaced":   func(i int) { changed[9] = at(100 + i%2) },
				"an endpoint comes or goes": func(i int) { changed = changed[:9+i%2] },
			} {
				b.Run(fmt.Sprintf("%d %s ports, %s", n, name, kind), func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						change(i)
						for _, p := range of(uint16(30000+n-1), changed) {
							table.Put(p)
						}
						_, err := table.Sync(place, porttables.Hosts{}, nil)
						require.NoError(b, err)
					}
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "kept-B/port")
				})
			}
			runtime.KeepAlive(table)
		}
	}
}

// on returns endpoints for local and direct.
func on(to []netip.AddrPort) (pods []string) {
	for _, a := range to {
		pods = append(pods, a.Addr().String())
	}
	return pods
}

func clusterOf(number uint16, to []netip.AddrPort) []nodeports.Port {
	return []nodeports.Port{direct("tcp", number, on(to)...)}
}

// localOf returns the ports for a local one of which the first endpoint is on the node.
func localOf(number uint16, to []netip.AddrPort) (all []nodeports.Port) {
	all = append(all, local("tcp", number, on(to[:1])...), own(node, direct("tcp", number, on(to)...)))
	for i := range 9 {
		all = append(all, own(fmt.Sprintf("192.0.2.%d", 10+i), direct("tcp", number, on(to[min(1+i, len(to)):min(2+i, len(to))])...)))
	}
	return all
}

// BenchmarkRead is a table that is read because others have changed nftables, and one that is created, with one port, and with as many
// ports with affinity as a namespace can have.
func BenchmarkRead(b *testing.B) {
	ns := namespace.New(b)
	var many []nodeports.Port
	for i := range coe.MaxAffinityRules / (2*coe.MaxExposedEndpoints + 1) {
		p := cluster("tcp", uint16(30000+i))
		p.Affinity, p.Endpoints = time.Hour, nil
		for e := range coe.MaxExposedEndpoints {
			p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), byte(e)}), 8080))
		}
		many = append(many, p)
	}
	for of, ports := range map[string][]nodeports.Port{"a port": {cluster("tcp", 30000)}, "affinity of a namespace": many} {
		for name, begin := range map[string]func(){
			"read": func() {}, "create": func() {
				_, _ = porttables.New(porttables.Config{Netns: ns, Link: "coe0"}).Sync(nodeports.Place{}, porttables.Hosts{}, nil)
			},
		} {
			b.Run(of+"/"+name, func(b *testing.B) {
				for b.Loop() {
					begin()
					table := porttables.New(porttables.Config{Netns: ns, Link: "coe0"})
					for _, p := range ports {
						table.Put(p)
					}
					_, err := table.Sync(place, porttables.Hosts{}, nil)
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkForget is a changed endpoint of a UDP port, on a node with many connections of others.
func BenchmarkForget(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		ns := namespace.New(b)
		h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
		require.NoError(b, err)
		for i := range n {
			client, server := net.IPv4(10, 1, byte(i>>16), byte(i>>8)).To4(), net.IPv4(10, 2, 0, byte(i)).To4()
			flow := &netlink.ConntrackFlow{
				FamilyType: unix.AF_INET, TimeOut: 3600,
				Forward: netlink.IPTuple{SrcIP: client, DstIP: server, Protocol: unix.IPPROTO_UDP, SrcPort: 1000, DstPort: 53},
				Reverse: netlink.IPTuple{SrcIP: server, DstIP: client, Protocol: unix.IPPROTO_UDP, SrcPort: 53, DstPort: 1000},
			}
			require.NoError(b, h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow))
		}
		h.Close()
		table, port := porttables.New(porttables.Config{Netns: ns, Link: "coe0"}), cluster("udp", 30053)
		b.Run(fmt.Sprint(n, " connections of others"), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				port.Endpoints = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(i % 2)}), 8080)}
				table.Put(port)
				_, err := table.Sync(place, porttables.Hosts{}, nil)
				require.NoError(b, err)
			}
		})
	}
}
