package ovn_test

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// separated adds what the mapping makes to keep the namespaces of live pods apart by ACLs.
func separated(m netvirt.Model) netvirt.Model {
	m.Add(netvirt.RemoteGroup{Name: "node-1", Prefixes: netvirt.NewPrefixList(netip.PrefixFrom(node1.Address, 32))})
	for _, ns := range []string{"a", "b"} {
		m.Add(
			netvirt.ACL{Name: ns + ":ingress", Namespace: ns, Isolates: netvirt.Ingress}, netvirt.ACL{Name: ns + ":egress", Namespace: ns, Isolates: netvirt.Egress},
			netvirt.RemoteGroup{Name: ns + ":own", Namespace: ns}, netvirt.ACL{Name: ns + ":within", Namespace: ns}, netvirt.ACL{Name: ns + ":node-1", Namespace: ns},
		)
		for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
			m.Add(netvirt.ACE{ACL: ns + ":node-1", Namespace: ns, Name: string(d), Direction: d, Family: netvirt.IPv4, Remote: "node-1"})
			for _, family := range []netvirt.Family{netvirt.IPv4, netvirt.IPv6} {
				m.Add(netvirt.ACE{ACL: ns + ":within", Namespace: ns, Name: string(d) + string(family), Direction: d, Family: family, Remote: ns + ":own"})
			}
		}
	}
	for _, p := range livePods {
		groups := []string{p.ns + ":ingress", p.ns + ":egress", p.ns + ":within"}
		if p.host == 1 {
			groups = append(groups, p.ns+":node-1")
		}
		m.Add(netvirt.InterfaceACL{Interface: p.iface(), Namespace: p.ns, SecurityGroups: netvirt.NewNameList(groups...), RemoteGroups: netvirt.NewNameList(p.ns + ":own")})
	}
	return m
}

// TestNamespacesOnOneSwitch: on a real OVN, ACLs keep the pods of two namespaces apart that share the switch of their node,
// and a block of addresses. A pod and its own node reach each other.
func TestNamespacesOnOneSwitch(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	b := withLayout(t, lab, ovn.LayoutNode)
	write(t, b, withGateways((*policies)(nil).model()))
	for n, p := range livePods {
		p.plug(t, lab, n)
		for _, port := range []uint16{open8080, closed8081} {
			require.NoError(t, lab.Serve(p.iface(), port, http.HandlerFunc(echo)))
		}
	}
	plugNode(t, lab)
	require.NoError(t, lab.Sync(t.Context()))
	requireConnections(t, lab, func(connection) bool { return true })
	before := dialEcho(t, lab, bBlock, aOther)

	write(t, b, withGateways(separated((*policies)(nil).model())))
	require.NoError(t, lab.Sync(t.Context()))
	stale, err := lab.HasStaleFlows(t.Context())
	require.NoError(t, err)
	if stale {
		require.NoError(t, lab.ForgetFlows(t.Context()))
	}
	requireCut(t, before)
	requireConnections(t, lab, func(c connection) bool { return livePods[c.from].ns == livePods[c.to].ns })
	requireAlwaysAllowed(t, lab)
	require.NoError(t, connect(t.Context(), lab, nodePod.iface(), livePods[bBlock].address, open8080), "from its node")
	require.Contains(t, []string{"other-host", "routed"}, page(t, lab, livePods[aBlock], vip), "a service of the namespace")
	require.Error(t, connect(t.Context(), lab, livePods[bBlock].iface(), vip.Addr().String(), vip.Port()), "a service of the other namespace")
	requireNoFrame(t, lab, livePods[aBlock], livePods[bBlock])
}

// requireNoFrame sends frames of an unknown protocol from a pod to all hosts of its link, and ARP requests for an address that
// nobody has. A pod of the same node must get the requests, and no frame.
func requireNoFrame(t *testing.T, lab *ovnhost.Lab, from, to livePod) {
	t.Helper()
	receiver, sender := openLink(t, lab, to), openLink(t, lab, from)
	frame := append([]byte{0x88, 0xb5}, bytes.Repeat([]byte("unknown"), 8)...)
	request := slices.Concat([]byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1}, sender.mac, netip.MustParseAddr(from.address).AsSlice(),
		make([]byte, 6), []byte{203, 0, 113, 99})
	buffer := make([]byte, 2048)
	requests := 0
	for deadline := time.Now().Add(patience.Patience); requests < 5 && time.Now().Before(deadline); {
		sender.send(t, frame)
		sender.send(t, request)
		n, _, err := unix.Recvfrom(receiver.socket, buffer, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		require.NoError(t, err)
		require.False(t, bytes.HasPrefix(buffer[12:n], frame), "a frame of an unknown protocol arrives")
		if bytes.HasPrefix(buffer[12:n], request) {
			requests++
		}
	}
	require.Equal(t, 5, requests, "ARP requests arrive")
}

// rawLink is a packet socket at the link of a pod.
type rawLink struct {
	socket, index int
	mac           net.HardwareAddr
}

func openLink(t *testing.T, lab *ovnhost.Lab, pod livePod) rawLink {
	t.Helper()
	const every = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	var l rawLink
	require.NoError(t, lab.In(pod.iface(), func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		l.index, l.mac = link.Index, link.HardwareAddr
		if l.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(l.socket) })
		return errors.Join(
			unix.Bind(l.socket, &unix.SockaddrLinklayer{Protocol: every, Ifindex: l.index}),
			unix.SetsockoptTimeval(l.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
		)
	}))
	return l
}

// send sends a frame to all hosts of the link.
func (l rawLink) send(t *testing.T, content []byte) {
	t.Helper()
	everyone := bytes.Repeat([]byte{0xff}, 6)
	frame := slices.Concat(everyone, l.mac, content)
	require.NoError(t, unix.Sendto(l.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.index, Halen: 6, Addr: [8]byte(append(everyone, 0, 0))}))
}
