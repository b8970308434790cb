package porttables

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// randomPorts returns ports, host ports and nodes.
func randomPorts(rng *rand.Rand) (ports []nodeports.Port, at []nodeports.HostPort, nodes []netip.Addr) {
	for n := range uint16(300) {
		p := nodeports.Port{Address: [...]netip.Addr{netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{198, 51, 100, byte(rng.IntN(3))})}[rng.IntN(2)], Protocol: "tcp", Number: 30000 + n, Service: netip.MustParseAddrPort("10.96.0.1:80"), Local: rng.IntN(3) > 0, Affinity: time.Duration(rng.IntN(3)) * time.Minute}
		for i := range rng.IntN(4) * rng.IntN(22) {
			p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), byte(rng.IntN(9))}), 8080))
		}
		for i := range rng.IntN(100) {
			p.Restricted = true
			p.Sources = append(p.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(2 * i), byte(rng.IntN(2))}), 32))
		}
		if rng.IntN(5) > 0 {
			ports = append(ports, p)
		}
		if rng.IntN(3) == 0 {
			p.Inside, p.Endpoints = true, append(slices.Clone(p.Endpoints[:len(p.Endpoints)/2]), netip.MustParseAddrPort("10.42.9.9:8080"))
			ports = append(ports, p)
		}
	}
	for n := range uint16(100) {
		at = append(at, nodeports.HostPort{
			Address: netip.IPv4Unspecified(), Protocol: "udp", Number: 8000 + n, Pod: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(rng.IntN(2))}), 80),
		})
	}
	for range rng.IntN(2000) {
		nodes = append(nodes, netip.AddrFrom4([4]byte{192, 0, byte(rng.IntN(9)), byte(rng.IntN(256))}))
	}
	return ports, at, nodes
}

// flat returns the values of all elements, by set and key.
func flat(c nodeports.Content) map[[2]string]string {
	all := map[[2]string]string{}
	for _, elements := range c {
		for _, e := range elements {
			all[[2]string{e.Set, e.Key}] = e.Value
		}
	}
	return all
}

// Changing ports one by one makes the same changes as replacing all, and leads to the wanted content. All elements of a port
// change in one transaction, whatever changes with it. No transaction is too large.
func TestChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		tables := []*Table{New(Config{}), New(Config{})}
		one, all := tables[0].tables[0], tables[1].tables[0] // of IPv4
		before, at, nodes := randomPorts(rng)
		for i, table := range []*table{one, all} {
			tables[i].Replace(before)
			table.putHosts(at)
			table.putNodes(nodes)
			table.settle()
		}
		has := flat(one.want)
		after, at, nodes := randomPorts(rng)
		for _, p := range before {
			tables[0].Remove(p)
		}
		for _, p := range after {
			tables[0].Put(p)
		}
		tables[1].Replace(after)
		for _, table := range []*table{one, all} {
			table.putHosts(at)
			table.putNodes(nodes)
		}
		require.Equal(t, one.want, all.want)
		require.Equal(t, one.count, all.count)
		changes := one.changes()
		require.Equal(t, changes, all.changes())

		groups := 0
		for _, batch := range nodeports.Batches(changes, maxChanges) {
			require.LessOrEqual(t, len(batch), maxChanges)
			for len(batch) > 0 { // whole groups
				require.Equal(t, changes[groups], batch[:len(changes[groups])])
				batch, groups = batch[len(changes[groups]):], groups+1
			}
		}
		require.Len(t, changes, groups)
		for _, g := range changes {
			for _, c := range g {
				key := [2]string{c.Set, c.Key}
				value, is := has[key]
				require.Equal(t, c.Has, is)
				require.True(t, !c.Has || !c.Wanted || value != c.Value)
				if delete(has, key); c.Wanted {
					has[key] = c.Value
				}
			}
		}
		require.True(t, maps.Equal(has, flat(one.want)))
	}
}

// Ports whose connections could not be forgotten are tried again.
func TestForgetAgain(t *testing.T) {
	both := New(Config{Netns: netns.NsHandle(1 << 20)}) // there is no such namespace
	table, every := both.tables[0], netip.IPv4Unspecified()
	table.move(nodeports.Addresses{Edge: netip.MustParseAddr("100.96.0.254")}, nodeports.Place{})
	table.unforgotten = map[nodeports.PortKey]bool{}
	port := func(number uint16) nodeports.Port {
		return nodeports.Port{Address: every, Protocol: "udp", Number: number, Service: netip.MustParseAddrPort("10.96.0.1:80")}
	}
	both.Replace([]nodeports.Port{port(1)})
	table.settle()
	both.Replace([]nodeports.Port{port(2)})
	table.noteChanged()
	require.ErrorContains(t, table.forget(), "forget the UDP connections")
	table.settle()
	table.noteChanged()
	key := func(number uint16) nodeports.PortKey {
		return nodeports.PortKey{Address: every, Protocol: 17, Number: number}
	}
	require.Equal(t, map[nodeports.PortKey]bool{key(1): true, key(2): true}, table.unforgotten)
	table.whole = false
	table.noteChanged()
	require.Nil(t, table.unforgotten, "all")
}
