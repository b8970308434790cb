package netvirt

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
)

// EgressIP is the way by which selected pods leave the network: through a port of the node that holds their
// egress address. Only traffic of these pods uses the port, so the node translates everything that comes in by
// it. Traffic of the pods to destinations outside the network is dropped while no port is active.
type EgressIP struct {
	Name    string       // the key
	Group   string       // the RemoteGroup with the addresses of the pods
	Network netip.Prefix // the NodeNetwork by which all other traffic leaves
	Transit string       // the Network's
	// Number determines the addresses of the ports, see EgressLink, and the precedence: a pod of two groups leaves by
	// the way with the lower number.
	Number uint16
	// Hosts are the nodes that have a port; the zero value is none. There are two while the address moves.
	Hosts [2]EgressHost
	// Active is the number of the port in Hosts through which traffic leaves, from 1; 0 if it is dropped.
	Active uint8
}

// EgressHost is a node with a port of an EgressIP.
type EgressHost struct {
	Node    netip.Addr
	Chassis string // host name of the node
}

// MaxEgressIPs is the maximum Number of an EgressIP.
const MaxEgressIPs = 1<<(egressLinkBits-egressBits) - 1

// The ways of EgressIPs divide 169.254.64.0/18, which lacks 169.254.169.254, an address of clouds.
const (
	egressBits     = 18
	egressLinkBits = 29
	egressBase     = 169<<24 | 254<<16 | 64<<8
)

// EgressLink returns the network of the ports of the EgressIP with a number, with its gateway.
func EgressLink(number uint16) netip.Prefix {
	return netip.PrefixFrom(egressAddress(number, 1), egressLinkBits)
}

// EgressNextHop returns the address of a port in Hosts, counted from 0. It counts only in the link.
func EgressNextHop(number uint16, host int) netip.Addr { return egressAddress(number, 2+host) }

// EgressMAC returns the MAC address of a port in Hosts, counted from 0.
func EgressMAC(number uint16, host int) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, EgressNextHop(number, host).AsSlice()...)).String()
}

// EgressPortName returns the name of a port in Hosts, counted from 0, which is the iface-id on the node's switch.
// It ends in a third part that is not a UUID, so it never equals the name of a pod's interface.
func EgressPortName(number uint16, host int) string {
	return "egress:" + strconv.Itoa(int(number)) + ":port" + strconv.Itoa(host+1)
}

func egressAddress(number uint16, i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], egressBase+uint32(number)<<(32-egressLinkBits)+uint32(i))
	return netip.AddrFrom4(a)
}

// Key implements Object.
func (o EgressIP) Key() Key { return Key{KindEgressIP, o.Name} }

// Refs implements Object. The hosts need no ManagementPort in the model.
func (o EgressIP) Refs() []Key {
	return []Key{{KindNodeNetwork, o.Network.String()}, {KindRemoteGroup, o.Group}}
}

// Scope implements Object.
func (o EgressIP) Scope() Scope { return Cluster }

func (EgressIP) sealed() {}
