package node

import (
	"context"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// dropped returns how many packets the rules of the node with a text have dropped.
func (l *isolatedLab) dropped(text string) (packets int) {
	for line := range strings.Lines(l.onNode("nft list table inet coe-bridge")) {
		if _, counter, found := strings.Cut(line, "counter packets "); found && strings.Contains(line, strconv.Quote(text)) {
			number, _, _ := strings.Cut(counter, " ")
			dropped, _ := strconv.Atoi(number)
			packets += dropped
		}
	}
	return packets
}

// send sends a datagram from an address of a namespace.
func (l *isolatedLab) send(t *testing.T, namespace, from, to string, ttl int) {
	t.Helper()
	require.NoError(t, links.Inside(l.networks[namespace], func() error {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}, Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
			if err == nil {
				err = failed
			}
			return err
		}}
		ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
		defer cancel()
		c, err := d.DialContext(ctx, "udp", to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("hello"))
		_ = c.Close()
		return err
	}))
}

// TestIsolatedPodsGetNothingElseFromTheirNode: a node leads a pod to services, and sends none of its other packets anywhere. It does not
// answer somebody else either, whose address the pod claims to have, or who has the same one in another namespace.
func TestIsolatedPodsGetNothingElseFromTheirNode(t *testing.T) {
	l := newIsolatedLab(t, map[string][]string{"a/one": {"10.42.0.2"}, "b/one": {"10.42.0.2"}, "b/two": {"10.42.0.7"}})
	l.lead(t, map[string]string{"10.96.0.10:80": "10.42.1.2:8080", "10.96.0.60:80": ""})
	l.in["a"]("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.peer0.rp_filter=0 net.ipv4.conf.peer0.accept_local=1" +
		"; ip addr add 10.42.0.7/32 dev lo; ip route add 10.42.9.9 via 192.168.33.11 src 10.42.0.2")
	l.in["b"]("ip addr add 10.42.0.7/32 dev peer0")
	for _, network := range l.in {
		network("nft add table ip seen; nft 'add chain ip seen in { type filter hook prerouting priority raw; }'" +
			"; nft add rule ip seen in iifname peer0 meta l4proto != tcp counter; nft add rule ip seen in iifname peer0 tcp flags rst counter")
	}
	namespace.Listen(t, l.networks["a"], "8080")
	nothing := func() {
		t.Helper()
		require.NoError(t, namespace.Dial(t, l.networks["a"], "10.96.0.10", "80", patience.Patience)) // what was sent before has passed
		for namespace, network := range l.in {
			require.Equal(t, 2, strings.Count(network("nft list table ip seen"), "counter packets 0 "), "the node has sent something to %s:\n%s", namespace, network("nft list table ip seen"))
		}
	}
	nothing()
	own := linkPrefix + "*"
	sources, untranslated := "from "+own+" only from pods that are routed there", "from "+own+" nowhere else"
	for _, c := range []struct {
		text, namespace, from, to string
		ttl                       int
		by                        string
	}{
		{"to the edge address, which the router leads back to the node", "a", "10.42.0.2", "100.96.0.2:9", 64, untranslated},
		{"to a pod", "a", "10.42.0.2", "10.42.9.9:9", 64, untranslated},
		{"where nobody serves, with the address of a pod of another namespace", "a", "10.42.0.7", "10.96.0.30:9", 64, sources},
		{"to a service, with the address of a pod of another namespace", "a", "10.42.0.7", "10.96.0.10:80", 64, sources},
		{"no further than the node, with the address of a pod of another namespace", "a", "10.42.0.7", "10.96.0.10:80", 1,
			"from " + own + " not at the end of the time to live, except from pods that are routed there"},
		{"where nobody serves, with an address that another namespace has too", "b", "10.42.0.2", "10.96.0.30:9", 64,
			"from " + linkOf("b") + " with 10.42.0.2 to services 10.96.0.0/12: nobody serves, no answer"},
	} {
		before := l.dropped(c.by)
		l.send(t, c.namespace, c.from, c.to, c.ttl)
		require.Eventually(t, func() bool { return l.dropped(c.by) == before+1 }, patience.Patience, 10*time.Millisecond, c.text)
		nothing()
	}
	require.ErrorContains(t, namespace.Dial(t, l.networks["a"], "10.96.0.60", "80", patience.Patience), "refused", "by ICMP")
}
