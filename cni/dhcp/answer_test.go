package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

var (
	podMAC  = net.HardwareAddr{0x0a, 0x58, 0x0a, 0x2a, 0, 2}
	nodeMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 1}
	ours    = net.IP{10, 42, 0, 2}
	gateway = net.IP{10, 42, 0, 1}
	another = net.IP{10, 42, 0, 9}
)

// lease is that of a pod that reaches its node by a further route.
func lease() *Lease {
	return &Lease{
		MAC: podMAC, Address: netip.MustParsePrefix("10.42.0.2/24"), Gateway: netip.MustParseAddr("10.42.0.1"),
		Routes: []links.Route{
			{Destination: netip.MustParsePrefix("100.96.0.2/32")},
			{Destination: netip.MustParsePrefix("10.42.0.0/16"), Gateway: netip.MustParseAddr("10.42.0.1")},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("100.96.0.2")},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fd00::1")},
		},
		DNS: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}, MTU: 1450, Time: 90 * time.Minute,
	}
}

// message is a message of the pod.
func message(kind dhcpv4.MessageType, modify ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootRequest, HWType: 1, ClientHWAddr: podMAC, TransactionID: dhcpv4.TransactionID{1, 2, 3, 4}, Options: dhcpv4.Options{}}
	for _, one := range append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind)}, modify...) {
		one(m)
	}
	return m
}

func requested(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
func at(server net.IP) dhcpv4.Modifier    { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)) }

func TestAnswer(t *testing.T) {
	const (
		none     = dhcpv4.MessageTypeNone
		discover = dhcpv4.MessageTypeDiscover
		request  = dhcpv4.MessageTypeRequest
		inform   = dhcpv4.MessageTypeInform
		offer    = dhcpv4.MessageTypeOffer
		ack      = dhcpv4.MessageTypeAck
		nak      = dhcpv4.MessageTypeNak
	)
	for name, c := range map[string]struct {
		in   *dhcpv4.DHCPv4
		want dhcpv4.MessageType
		why  reason
	}{
		"DISCOVER":                      {message(discover), offer, ""},
		"DISCOVER, another address":     {message(discover, requested(another)), offer, ""},
		"REQUEST of the offer":          {message(request, requested(ours), at(gateway)), ack, ""},
		"REQUEST after a boot":          {message(request, requested(ours)), ack, ""},
		"REQUEST, renewing":             {message(request, dhcpv4.WithClientIP(ours)), ack, ""},
		"REQUEST of another address":    {message(request, requested(another), at(gateway)), nak, ""},
		"REQUEST after a boot, another": {message(request, requested(another)), nak, ""},
		"REQUEST, renewing another":     {message(request, dhcpv4.WithClientIP(another)), nak, ""},
		"REQUEST of another server":     {message(request, requested(ours), at(another)), none, otherServer},
		"REQUEST without an address":    {message(request), none, malformed},
		"INFORM":                        {message(inform, dhcpv4.WithClientIP(ours)), ack, ""},
		"INFORM, another address":       {message(inform, dhcpv4.WithClientIP(another)), none, otherSource},
		"RELEASE":                       {message(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(ours)), none, noAnswer},
		"DECLINE":                       {message(dhcpv4.MessageTypeDecline, requested(ours)), none, noAnswer},
		"no type":                       {message(none), none, malformed},
		"an answer":                     {message(discover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), none, malformed},
		"another client":                {message(discover, dhcpv4.WithHwAddr(nodeMAC)), none, otherClient},
		"a relay agent":                 {message(discover, dhcpv4.WithGatewayIP(another)), none, relayed},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.UpdateOption(dhcpv4.OptClientIdentifier([]byte("me")))
			out, why := lease().answer(c.in)
			require.Equal(t, c.why, why)
			if c.want == none {
				require.Nil(t, out)
				return
			}
			require.Equal(t, c.want, out.MessageType())
			require.Equal(t, dhcpv4.OpcodeBootReply, out.OpCode)
			require.Equal(t, c.in.TransactionID, out.TransactionID)
			require.Equal(t, podMAC, out.ClientHWAddr)
			require.Equal(t, gateway, out.ServerIdentifier())
			require.Equal(t, []byte("me"), out.GetOneOption(dhcpv4.OptionClientIdentifier))
			require.Equal(t, c.want == nak, out.IsBroadcast())
			require.Equal(t, c.want == nak, out.SubnetMask() == nil)
			given := c.want != nak && c.in.MessageType() != inform
			require.Equal(t, given, out.YourIPAddr.Equal(ours))
			require.Equal(t, given, out.Options.Has(dhcpv4.OptionIPAddressLeaseTime))
		})
	}
}

func TestParameters(t *testing.T) {
	out, _ := lease().answer(message(dhcpv4.MessageTypeDiscover))
	require.Equal(t, net.CIDRMask(24, 32), out.SubnetMask())
	require.Equal(t, []net.IP{gateway}, out.Router())
	require.Equal(t, []net.IP{{10, 96, 0, 10}}, out.DNS())
	require.Equal(t, 90*time.Minute, out.IPAddressLeaseTime(0))
	require.Equal(t, []byte{0x05, 0xaa}, out.GetOneOption(dhcpv4.OptionInterfaceMTU))
	require.Equal(t, []byte{
		32, 100, 96, 0, 2, 0, 0, 0, 0, // directly connected
		16, 10, 42, 10, 42, 0, 1,
		0, 100, 96, 0, 2,
	}, out.GetOneOption(dhcpv4.OptionClasslessStaticRoute))

	further := lease()
	further.Routes, further.DNS = nil, nil
	out, _ = further.answer(message(dhcpv4.MessageTypeDiscover))
	for _, option := range []dhcpv4.OptionCode{dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionDomainNameServer} {
		require.False(t, out.Options.Has(option), "the link has no default route: %s", option)
	}
}

func TestInvalidLeases(t *testing.T) {
	require.NoError(t, lease().valid())
	for name, change := range map[string]func(*Lease){
		"MAC address":  func(l *Lease) { l.MAC = l.MAC[:4] },
		"no address":   func(l *Lease) { l.Address = netip.Prefix{} },
		"IPv6 address": func(l *Lease) { l.Address = netip.MustParsePrefix("fd00::2/64") },
		"no gateway":   func(l *Lease) { l.Gateway = netip.Addr{} },
		"MTU":          func(l *Lease) { l.MTU = 0 },
	} {
		l := lease()
		change(l)
		require.Error(t, l.valid(), name)
	}
}

// request returns a message as a frame of the pod.
func request(m *dhcpv4.DHCPv4) []byte {
	l := &Lease{MAC: nodeMAC, Address: netip.MustParsePrefix("255.255.255.255/32"), Gateway: netip.IPv4Unspecified()}
	f := l.frame(podMAC, m)
	binary.BigEndian.PutUint16(f[atIP+minIP:], clientPort)
	binary.BigEndian.PutUint16(f[atIP+minIP+udpTo:], serverPort)
	return f
}

func TestFrames(t *testing.T) {
	l := lease()
	out, _ := l.answer(message(dhcpv4.MessageTypeDiscover))
	f := l.frame(nodeMAC, out)
	require.Equal(t, []byte(podMAC), f[:6])
	require.Equal(t, []byte(nodeMAC), f[6:12])
	require.Equal(t, out.ToBytes(), payload(f))
	ip := f[atIP : atIP+minIP]
	require.Zero(t, checksum(ip))
	require.Equal(t, append(bytes.Clone(gateway), ours...), ip[ipSource:])
	udp := f[atIP+minIP:]
	pseudo := append(append(bytes.Clone(ip[ipSource:]), 0, unix.IPPROTO_UDP), udp[udpLength:udpLength+2]...)
	require.Zero(t, checksum(append(pseudo, udp...)))

	out, _ = l.answer(message(dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true)))
	f = l.frame(nodeMAC, out)
	require.Equal(t, bytes.Repeat([]byte{0xff}, 6), f[:6])
	require.Equal(t, bytes.Repeat([]byte{0xff}, 4), f[atIP+ipTo:atIP+minIP])

	for end := range f {
		require.Nil(t, payload(f[:end]), "a frame of %d bytes", end)
	}
}

// TestIgnored: every request that gets no answer is counted with the reason.
func TestIgnored(t *testing.T) {
	s := New(0, nil, prometheus.NewRegistry())
	one := &link{from: nodeMAC}
	one.lease.Store(lease())
	require.NotEmpty(t, s.answerTo(one, request(message(dhcpv4.MessageTypeDiscover))))
	require.Empty(t, s.answerTo(one, request(message(dhcpv4.MessageTypeRelease))))
	require.Empty(t, s.answerTo(one, []byte("nothing")))
	require.InDelta(t, 1, testutil.ToFloat64(s.metrics.answers.WithLabelValues("OFFER")), 0)
	for _, why := range []reason{noAnswer, malformed} {
		require.InDelta(t, 1, testutil.ToFloat64(s.metrics.ignored.WithLabelValues(string(why))), 0, why)
	}
}

// FuzzAnswer: no frame stops the server, and an answer is a whole message to the client about its own address.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
		f.Add(request(message(kind, requested(ours), dhcpv4.WithClientIP(ours), dhcpv4.WithRequestedOptions(dhcpv4.OptionRouter))))
	}
	f.Add(request(message(dhcpv4.MessageTypeRequest, requested(another), dhcpv4.WithBroadcast(true))))
	f.Add([]byte{})
	s := New(0, nil, prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, in []byte) {
		one := &link{from: nodeMAC}
		one.lease.Store(lease())
		answer := s.answerTo(one, in[:min(len(in), maxFrame)])
		if answer == nil {
			return
		}
		require.Less(t, len(answer), 2*maxFrame)
		out, err := dhcpv4.FromBytes(payload(answer))
		require.NoError(t, err)
		require.Equal(t, podMAC, out.ClientHWAddr)
		require.Contains(t, []dhcpv4.MessageType{dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak}, out.MessageType())
		if !out.YourIPAddr.IsUnspecified() {
			require.True(t, out.YourIPAddr.Equal(ours))
		}
	})
}
