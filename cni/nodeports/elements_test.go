package nodeports

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
)

// All elements of a port change in one transaction, whatever changes with it. No transaction is too large.
func TestBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() (ports Ports, nodes []netip.Addr) {
		for n := range uint16(300) {
			p := Port{Address: [...]netip.Addr{{}, netip.MustParseAddr("198.51.100.10")}[rng.IntN(2)], Protocol: "tcp", Number: 30000 + n, Service: netip.MustParseAddrPort("10.96.0.1:80"), Local: rng.IntN(3) > 0, Sticky: rng.IntN(2) > 0}
			for range rng.IntN(4) {
				p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(rng.IntN(9))}), 8080))
			}
			for i := range rng.IntN(100) {
				p.Restricted = true
				p.Sources = append(p.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(2 * i), byte(rng.IntN(2))}), 32))
			}
			if rng.IntN(5) > 0 {
				ports.Services = append(ports.Services, p)
			}
		}
		for n := range uint16(100) {
			ports.Hosts = append(ports.Hosts, HostPort{
				netip.IPv4Unspecified(), "udp", 8000 + n, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(rng.IntN(2))}), 80),
			})
		}
		for range rng.IntN(2000) {
			nodes = append(nodes, netip.AddrFrom4([4]byte{192, 0, byte(rng.IntN(9)), byte(rng.IntN(256))}))
		}
		return ports, nodes
	}
	for range 20 {
		before, err := elementsOf(random())
		require.NoError(t, err)
		after, err := elementsOf(random())
		require.NoError(t, err)
		in, total := map[portKey]int{}, 0
		for n, batch := range batches(before.diff(after), maxChanges) {
			require.LessOrEqual(t, len(batch), maxChanges)
			total += len(batch)
			for _, k := range batch {
				if first, seen := in[k.port()]; k.port() != (portKey{}) {
					require.True(t, !seen || first == n, fmt.Sprint(k.port()))
					in[k.port()] = n
				}
			}
		}
		require.Len(t, before.diff(after), total)
	}
}

// Ports whose connections could not be forgotten are tried again.
func TestForgetAgain(t *testing.T) {
	table := New(Config{Netns: netns.NsHandle(1 << 20)}) // there is no such namespace
	table.unforgotten = map[portKey]bool{}
	port := func(number uint16) elements {
		all, err := elementsOf(Ports{Services: []Port{{Protocol: "udp", Number: number, Service: netip.MustParseAddrPort("10.96.0.1:80")}}}, nil)
		require.NoError(t, err)
		return all
	}
	table.noteChanged(port(1), port(2))
	require.ErrorContains(t, table.forget(port(2)), "forget the UDP connections")
	table.noteChanged(port(2), port(2))
	require.Equal(t, map[portKey]bool{{everyAddress, 17, 1}: true, {everyAddress, 17, 2}: true}, table.unforgotten)
	table.noteChanged(nil, port(2))
	require.Nil(t, table.unforgotten, "all")
}
