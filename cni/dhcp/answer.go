// Package dhcp answers the DHCP requests of pods (RFC 2131) on the node's ends of their links, before the switch gets them. Each
// link has one client, which gets one address. The package does not choose the values, and knows neither the bridge nor the switch.
package dhcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// Lease is what the client of a link gets. It must not be changed.
type Lease struct {
	MAC     net.HardwareAddr // of the client
	Address netip.Prefix     // with the length of its subnet
	// Gateway is the gateway of the subnet, and the address of the server.
	Gateway netip.Addr
	// Routes are the routes of the client, and DNS its DNS servers. IPv6 ones have no effect.
	Routes []links.Route
	DNS    []netip.Addr
	MTU    int
	Time   time.Duration // for how long the client has the address without asking again
}

// reason is why a request gets no answer. It is a label of a metric.
type reason string

const (
	malformed   reason = "malformed"     // it is not a DHCP request
	otherClient reason = "other-client"  // it is of another MAC address
	relayed     reason = "relayed"       // it is of a relay agent
	otherServer reason = "other-server"  // the client has chosen another server
	otherSource reason = "other-address" // the client has another address, and does not ask for one
	noAnswer    reason = "no-answer"     // the protocol has no answer: RELEASE and DECLINE
)

// answer returns the answer to a request, or why it gets none.
//
//	DISCOVER              OFFER
//	REQUEST, the address  ACK: of an offer, after a boot, or of a client that renews or rebinds
//	REQUEST, another one  NAK: the client begins again
//	INFORM                ACK without an address, if the client has the address
func (l *Lease) answer(in *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, reason) {
	switch {
	case in.OpCode != dhcpv4.OpcodeBootRequest || in.HWType != iana.HWTypeEthernet:
		return nil, malformed
	case !bytes.Equal(in.ClientHWAddr, l.MAC):
		return nil, otherClient
	case addr(in.GatewayIPAddr).IsValid():
		return nil, relayed
	}
	switch in.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return l.reply(in, dhcpv4.MessageTypeOffer), ""
	case dhcpv4.MessageTypeRequest:
		return l.answerRequest(in)
	case dhcpv4.MessageTypeInform:
		if addr(in.ClientIPAddr) != l.Address.Addr() {
			return nil, otherSource
		}
		return l.reply(in, dhcpv4.MessageTypeAck), ""
	case dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline:
		return nil, noAnswer
	}
	return nil, malformed
}

// answerRequest answers a REQUEST. The client names the address as the requested one (RFC 2131 section 4.3.2, SELECTING and
// INIT-REBOOT), or has it (RENEWING and REBINDING).
func (l *Lease) answerRequest(in *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, reason) {
	if server := addr(in.ServerIdentifier()); server.IsValid() && server != l.Gateway {
		return nil, otherServer
	}
	wanted := addr(in.RequestedIPAddress())
	if !wanted.IsValid() {
		wanted = addr(in.ClientIPAddr)
	}
	switch wanted {
	case netip.Addr{}:
		return nil, malformed
	case l.Address.Addr():
		return l.reply(in, dhcpv4.MessageTypeAck), ""
	}
	return l.reply(in, dhcpv4.MessageTypeNak), ""
}

// reply returns an answer of a kind. A NAK has no parameters, and an answer to INFORM has no address.
func (l *Lease) reply(in *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	out := &dhcpv4.DHCPv4{
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero, Options: dhcpv4.Options{},
	}
	for _, modify := range []dhcpv4.Modifier{
		dhcpv4.WithReply(in), dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.Gateway.AsSlice())),
		dhcpv4.WithOptionCopied(in, dhcpv4.OptionClientIdentifier), // RFC 6842
	} {
		modify(out)
	}
	if kind == dhcpv4.MessageTypeNak {
		out.SetBroadcast() // the client does not have the address of the answer
		return out
	}
	if in.MessageType() != dhcpv4.MessageTypeInform {
		out.YourIPAddr = l.Address.Addr().AsSlice()
		out.UpdateOption(dhcpv4.OptIPAddressLeaseTime(l.Time))
	}
	if kind == dhcpv4.MessageTypeAck {
		out.ClientIPAddr = in.ClientIPAddr
	}
	l.addParameters(out)
	return out
}

// addParameters adds the parameters of the network. A client that knows classless routes ignores the router (RFC 3442).
func (l *Lease) addParameters(out *dhcpv4.DHCPv4) {
	out.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(l.Address.Bits(), l.Address.Addr().BitLen())))
	out.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(l.MTU >> 8), byte(l.MTU)}))
	var routes []*dhcpv4.Route
	for _, r := range l.Routes {
		if !r.Destination.Addr().Is4() {
			continue
		}
		via := r.Gateway
		if !via.IsValid() {
			via = netip.IPv4Unspecified() // directly connected
		}
		routes = append(routes, &dhcpv4.Route{Dest: links.IPNet(r.Destination), Router: via.AsSlice()})
		if r.Destination.Bits() == 0 {
			out.UpdateOption(dhcpv4.OptRouter(l.Gateway.AsSlice()))
		}
	}
	if len(routes) > 0 {
		out.UpdateOption(dhcpv4.OptClasslessStaticRoute(routes...))
	}
	var dns []net.IP
	for _, a := range l.DNS {
		if a.Is4() {
			dns = append(dns, a.AsSlice())
		}
	}
	if len(dns) > 0 {
		out.UpdateOption(dhcpv4.OptDNS(dns...))
	}
}

// valid returns an error if no client can get the lease.
func (l *Lease) valid() error {
	switch {
	case len(l.MAC) != hardwareBytes:
		return fmt.Errorf("MAC address %s: want six octets", l.MAC)
	case !l.Address.IsValid() || !l.Address.Addr().Is4() || !l.Gateway.Is4():
		return fmt.Errorf("address %s with gateway %s: want IPv4 addresses", l.Address, l.Gateway)
	case l.MTU < minMTU || l.MTU > maxMTU:
		return fmt.Errorf("MTU %d: want %d to %d", l.MTU, minMTU, maxMTU)
	}
	return nil
}

// The limits of option 26 (RFC 2132 section 5.1).
const (
	minMTU = 68
	maxMTU = 65535
)

// addr returns an address of a message; the zero value if it has none.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	if a = a.Unmap(); a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
