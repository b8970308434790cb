package uplink

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Record describes an interface on the node, as the bridge reports it: a grouping of the
// YANG module coe-agent. It must not be changed.
type Record struct {
	PodUID       string    `json:"pod-uid"`
	InterfaceUID string    `json:"interface-uid"`
	Namespace    string    `json:"namespace"`
	Pod          string    `json:"pod"`
	Name         string    `json:"name"` // the iface-id
	Port         string    `json:"parent-interface"`
	Node         string    `json:"node"`
	Primary      bool      `json:"primary"`
	MAC          string    `json:"mac-address"`
	Addresses    []Address `json:"address"`
	Routes       []Route   `json:"route,omitempty"`
	MTU          int       `json:"mtu,omitempty"` // 0: agent.MTU applies
	// Physical is the physical network with the machines that the interface reaches; empty for none.
	Physical  string `json:"physical-network,omitempty"`
	DHCP      *DHCP  `json:"dhcp,omitempty"` // nil: the pod does not ask for it
	Confirmed bool   `json:"confirmed"`
}

// DHCP is what an interface gets by DHCP beside its addresses and routes.
type DHCP struct {
	LeaseTime uint32       `json:"lease-time"` // in seconds
	DNS       []netip.Addr `json:"dns-server,omitempty"`
}

// Address is an address of an interface.
type Address struct {
	IP      netip.Addr `json:"ip"`
	Length  int        `json:"prefix-length"` // of the directly connected subnet
	Gateway netip.Addr `json:"gateway"`
}

// Prefix returns the address with the length of its subnet.
func (a Address) Prefix() netip.Prefix { return netip.PrefixFrom(a.IP, a.Length) }

// Route is a route of an interface.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"next-hop,omitzero"` // zero: directly connected
}

// HardwareAddr parses the record's MAC address.
func (r *Record) HardwareAddr() (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(r.MAC)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("interface %s: MAC address %q: want six octets", r.Name, r.MAC)
	}
	return mac, nil
}

// Place is the connection of the node itself to the pod network: its management port, and
// the networks behind it. If namespaces are isolated, it is a port in each namespace that has
// interfaces on the node; these ports have neither Length, Gateway, Service, Edge, Services nor HostPorts.
type Place struct {
	Node     netip.Addr `json:"node"`
	Isolated bool       `json:"isolated,omitempty"`
	Name     string     `json:"name"` // of the port: the iface-id; see PortOf
	MAC      string     `json:"mac-address"`
	Address  netip.Addr `json:"address"`
	Length   int        `json:"prefix-length,omitempty"`
	Gateway  netip.Addr `json:"gateway,omitzero"`
	Service  netip.Addr `json:"service-address,omitzero"` // source of the node's own traffic to services
	Edge     netip.Addr `json:"edge-address,omitzero"`    // source of traffic of others that the node leads there; zero if it must lead none
	// IPv6 has the same for IPv6, if Address is of IPv4; its zero value if the node has no IPv6 addresses there. If
	// namespaces are isolated, only its Address is set, which the node has on the links of its ports.
	IPv6 PlaceAddresses `json:"ipv6,omitzero"`
	// WayOut are the ports of the node in each namespace that has interfaces on it, beside the management port. Pods send
	// to services, and to what is outside the network, by them, and the node leads to services. Nil: the network does both. If
	// namespaces are isolated, pods send by them to services only, and Edge and Gateway are of the ports.
	WayOut *WayOut `json:"way-out,omitempty"`
	// ServicesBy says what leads pods to services: NodeLeads or NetworkLeads; empty if the bridge is of an earlier version.
	ServicesBy string         `json:"services-by,omitempty"`
	Pods       []netip.Prefix `json:"pod-network,omitempty"`
	Services   []netip.Prefix `json:"service-network,omitempty"`
	// NoMasquerade are the destinations outside the cluster to which pods keep their address.
	NoMasquerade []netip.Prefix `json:"no-masquerade,omitempty"`
	// Gateways are the ranges of pods on the node whose answers leave by gateways.
	Gateways []netip.Prefix `json:"gateway-network,omitempty"`
	MTU      int            `json:"mtu,omitempty"` // 0: the MTU of pod links
	// HostPorts are the ports of the node that pods may request.
	HostPorts []PortRange `json:"host-port-range,omitempty"`
}

// The values of Place.ServicesBy. The first backend of the bridge decides: nodes lead with OpenDaylight, the network with OVN.
const (
	NodeLeads    = "node"
	NetworkLeads = "network"
)

// ofOVN reports whether the first backend of the bridge is OVN. A bridge of an earlier version tells it only if namespaces are not
// isolated.
func (p *Place) ofOVN() bool {
	if p.ServicesBy == "" {
		return !p.Isolated && p.WayOut == nil
	}
	return p.ServicesBy == NetworkLeads
}

// IPv4 returns the addresses of the node if Address is of IPv4.
func (p *Place) IPv4() PlaceAddresses {
	return PlaceAddresses{Address: p.Address, Length: p.Length, Gateway: p.Gateway, Service: p.Service, Edge: p.Edge}
}

// PlaceAddresses are the addresses of a Place in one family.
type PlaceAddresses struct {
	Address netip.Addr `json:"address"`
	Length  int        `json:"prefix-length,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	Service netip.Addr `json:"service-address,omitzero"`
	Edge    netip.Addr `json:"edge-address,omitzero"`
}

// WayOut are ports of a node by which pods reach services and what is outside the network.
type WayOut struct {
	Name string `json:"name"` // see PortOf
	MAC  string `json:"mac-address"`
}

// PortRange is a range of ports.
type PortRange struct{ First, Last uint16 }

// Contains reports whether the range has a port.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// String returns the range as the bridge sends it.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// MarshalText implements encoding.TextMarshaler.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *PortRange) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d-%d", &r.First, &r.Last)
	if err != nil || r.First == 0 || r.First > r.Last {
		return fmt.Errorf("range of ports %q: want two ports in ascending order", text)
	}
	return nil
}

// ExposedPort is a port on which the node answers for a service, as the bridge reports it. It must
// not be changed.
type ExposedPort struct {
	// Own: the node leads only its own programs. External is the cluster address, and Local is set: Endpoints are those on
	// the node. Or it is a node port, which programs ask at a node, and Endpoints are on all nodes.
	Own bool `json:"own,omitempty"`
	// Inside: the node leads only clients inside the cluster, and Endpoints are on all nodes.
	Inside bool `json:"inside,omitempty"`
	// Every: Endpoints are all that serve the node port.
	Every bool `json:"every,omitempty"`
	// External is an external address of the service; zero for all IPv4 addresses of the node, :: for all IPv6
	// addresses.
	External    netip.Addr `json:"external-address,omitzero"`
	Protocol    string     `json:"protocol"` // "tcp", "udp", "sctp"
	Port        uint16     `json:"port"`
	Address     netip.Addr `json:"cluster-address"` // of the service
	ServicePort uint16     `json:"service-port"`
	// Restricted: only clients in Sources reach an external address.
	Restricted bool           `json:"restricted,omitempty"`
	Sources    []netip.Prefix `json:"source-range,omitempty"`
	// Local: clients reach only Endpoints, which are those on the node. Otherwise they are those on all nodes.
	Local bool `json:"local,omitempty"`
	// Refuses: the port is local, and no node has an endpoint.
	Refuses bool `json:"refuses,omitempty"`
	// Affinity is how many seconds a client keeps its endpoint after a connection; 0: no affinity.
	Affinity  uint32     `json:"affinity,omitempty"`
	Endpoints []Endpoint `json:"endpoint,omitempty"`
}

// HealthCheck is a port on which the node tells load balancers whether a service has endpoints on it. It must
// not be changed.
type HealthCheck struct {
	Port      uint16 `json:"port"`
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Endpoints int    `json:"local-endpoints"`
}

// Endpoint is an endpoint of an ExposedPort.
type Endpoint struct {
	IP   netip.Addr `json:"ip"`
	Port uint16     `json:"port"`
	Node netip.Addr `json:"node,omitzero"` // on which it is; only known of endpoints of node ports that are Own, and of ports that are Inside
}

// Key identifies the port.
func (p *ExposedPort) Key() string {
	key := p.Protocol + "/" + strconv.Itoa(int(p.Port))
	if p.External.IsValid() {
		key += "/" + p.External.String()
	}
	switch {
	case p.Own:
		return "own/" + key
	case p.Inside:
		return "inside/" + key
	}
	return key
}

// PortOf returns the iface-id of the node's port in a namespace, if it is isolated or the node has ports that are WayOut.
func (p *Place) PortOf(namespace string) string {
	if p.WayOut != nil {
		return p.WayOut.Name + ":" + namespace
	}
	return p.Name + ":" + namespace
}

// key identifies an interface.
func (r *Record) key() string { return r.PodUID + "/" + r.InterfaceUID }

// The notifications of coe-agent.
const (
	changedEvent  = "coe-agent:interface-changed"
	beginEvent    = "coe-agent:snapshot-begin"
	completeEvent = "coe-agent:snapshot-complete"
	nodeEvent     = "coe-agent:node-changed"
	networkEvent  = "coe-agent:network-changed"
	exposedEvent  = "coe-agent:exposed-port-changed"
	addressEvent  = "coe-agent:exposed-address-changed"
	ipv6Event     = "coe-agent:exposed-ipv6-changed"
	ownEvent      = "coe-agent:own-port-changed"
	insideEvent   = "coe-agent:inside-port-changed"
	healthEvent   = "coe-agent:health-check-changed"
	nodesEvent    = "coe-agent:nodes-changed"
	egressEvent   = "coe-agent:egress-changed"
)

// change is the content of interface-changed.
type change struct {
	Operation string `json:"operation"`
	Record
}

// networkChange is the content of network-changed.
type networkChange struct {
	Identity string `json:"identity"`
}

// nodeChange is the content of node-changed.
type nodeChange struct {
	Operation string `json:"operation"`
	Place
}

// exposedChange is the content of exposed-port-changed, exposed-address-changed, exposed-ipv6-changed,
// own-port-changed and inside-port-changed.
type exposedChange struct {
	Operation string `json:"operation"`
	ExposedPort
}

// healthChange is the content of health-check-changed.
type healthChange struct {
	Operation string `json:"operation"`
	HealthCheck
}

// nodesChange is the content of nodes-changed.
type nodesChange struct {
	Nodes []netip.Addr `json:"node"`
}

// Egress is the part of the node in egress addresses.
type Egress struct {
	Version string `json:"version"` // identifies the content
	// Port is the TCP port on which the bridge asks what is in force, and Key authenticates the answers.
	Port      uint16          `json:"port"`
	Key       string          `json:"key"`
	Addresses []EgressAddress `json:"address,omitempty"`
}

// EgressAddress is a port of the node, by which selected pods leave the cluster with an egress address.
type EgressAddress struct {
	Name    string     `json:"name"` // of the port: the iface-id
	Number  uint16     `json:"number"`
	NextHop netip.Addr `json:"next-hop"` // the address of the port
	MAC     string     `json:"mac-address"`
	Egress  netip.Addr `json:"egress-address"`
	Owner   bool       `json:"owner,omitempty"` // a NIC of the node has Egress
}

// egressChange is the content of egress-changed.
type egressChange struct {
	Operation string `json:"operation"`
	Egress
}
