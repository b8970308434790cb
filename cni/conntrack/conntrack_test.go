package conntrack

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// The addresses of the node, of connections that it translates, and of others.
const node, source, client, service, pod = "10.42.0.1", "100.96.0.3", "192.0.2.2", "10.96.0.10", "10.42.0.9"

// ends returns the ends of packets from one port to another one.
func ends(from, to string) Ends {
	return Ends{netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)}
}

// add creates a connection of UDP.
func add(t *testing.T, ns netns.NsHandle, sent, answers Ends) {
	t.Helper()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	require.NoError(t, err)
	defer h.Close()
	tuple := func(e Ends) netlink.IPTuple {
		return netlink.IPTuple{
			SrcIP: e.From.Addr().AsSlice(), DstIP: e.To.Addr().AsSlice(), SrcPort: e.From.Port(), DstPort: e.To.Port(), Protocol: unix.IPPROTO_UDP,
		}
	}
	flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 100, Forward: tuple(sent), Reverse: tuple(answers)}
	require.NoError(t, h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow))
}

// left returns what the clients of the connections send.
func left(t *testing.T, ns netns.NsHandle) (all []Ends) {
	t.Helper()
	k, err := open(ns, unix.AF_INET)
	require.NoError(t, err)
	defer k.close()
	list, err := k.list([]Tuple{{}})
	require.NoError(t, err)
	for _, c := range list {
		all = append(all, c.Sent)
	}
	return all
}

// Each function deletes the connections that it names, and no others.
func TestDelete(t *testing.T) {
	ofOthers, ofNode := ends(client+":1", service+":80"), ends(node+":2", service+":80")
	direct, led := ends(client+":3", pod+":8080"), ends(client+":4", service+":80")
	for name, c := range map[string]struct {
		run  func(netns.NsHandle) error
		gone []Ends
	}{
		"of others":                           {func(ns netns.NsHandle) error { return DeleteOfOthers(ns, netip.MustParseAddr(source)) }, []Ends{ofOthers}},
		"to a pod":                            {func(ns netns.NsHandle) error { return DeleteTo(ns, netip.MustParseAddr(pod)) }, []Ends{direct}},
		"to an address that is led elsewhere": {func(ns netns.NsHandle) error { return DeleteTo(ns, netip.MustParseAddr(service)) }, []Ends{ofOthers, ofNode}},
		"as they leave": {func(ns netns.NsHandle) error {
			return DeleteLeaving(ns, map[Leaving]bool{
				{unix.IPPROTO_UDP, ends(source+":1", service+":80")}: true, {unix.IPPROTO_TCP, ends(source+":2", service+":80")}: true,
				{unix.IPPROTO_UDP, ends(client+":4", pod+":8080")}: true,
			})
		}, []Ends{ofOthers, led}},
		"as they leave, of many": {func(ns netns.NsHandle) error {
			all := map[Leaving]bool{{unix.IPPROTO_UDP, ends(source+":2", service+":80")}: true}
			for port := range uint16(2 * maxTuples) {
				all[Leaving{unix.IPPROTO_UDP, Ends{netip.AddrPortFrom(netip.MustParseAddr(pod), 1000+port), netip.MustParseAddrPort(service + ":80")}}] = true
			}
			return DeleteLeaving(ns, all)
		}, []Ends{ofNode}},
		"led": {func(ns netns.NsHandle) error {
			return Sweep(ns, unix.AF_INET, []Tuple{{Protocol: unix.IPPROTO_UDP, ToPort: 80}}, Connection.Led)
		}, []Ends{led}},
	} {
		t.Run(name, func(t *testing.T) {
			ns, run := namespace.WithShell(t)
			run("ip link set lo up; ip address add " + node + "/32 dev lo")
			add(t, ns, ofOthers, ends(service+":80", source+":1"))
			add(t, ns, ofNode, ends(service+":80", source+":2"))
			add(t, ns, direct, ends(pod+":8080", client+":3"))
			add(t, ns, led, ends(pod+":8080", client+":4"))
			require.NoError(t, c.run(ns))
			require.ElementsMatch(t, []Ends{ofOthers, ofNode, direct, led}, append(left(t, ns), c.gone...))
		})
	}
}

// A Sweep keeps few connections in memory, and deletes all.
func TestSweepMany(t *testing.T) {
	ns := namespace.New(t)
	const n = sweptAtOnce + 10
	for port := range uint16(n) {
		from := netip.AddrPortFrom(netip.MustParseAddr(client), 1+port)
		to := netip.MustParseAddrPort(service + ":80")
		add(t, ns, Ends{from, to}, Ends{to, from})
	}
	require.Len(t, left(t, ns), n)
	require.NoError(t, Sweep(ns, unix.AF_INET, []Tuple{{}}, func(Connection) bool { return true }))
	require.Empty(t, left(t, ns))
}

// Without too many tuples each is asked for. Otherwise one names the connections of all.
func TestFew(t *testing.T) {
	tuples := make([]Tuple, maxTuples)
	for i := range tuples {
		tuples[i] = Tuple{Protocol: unix.IPPROTO_UDP, ToPort: uint16(i + 1)}
	}
	require.Equal(t, tuples, few(tuples))
	require.Equal(t, []Tuple{{Protocol: unix.IPPROTO_UDP}}, few(append(tuples, Tuple{Protocol: unix.IPPROTO_UDP})))
	require.Equal(t, []Tuple{{}}, few(append(tuples, Tuple{Protocol: unix.IPPROTO_TCP, ToPort: 1})))
}
