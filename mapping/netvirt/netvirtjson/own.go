package netvirtjson

import (
	"iter"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// This file encodes the kinds that Netvirt lacks. Their module is coe-netvirt.

type jsonTransit struct {
	RouteTarget string `json:"route-target"`
}

func transits(objects iter.Seq[netvirt.Object]) any {
	return list("transit", each(objects, func(o netvirt.Transit) jsonTransit {
		return jsonTransit{o.RouteTarget}
	}))
}

type jsonNode struct {
	Address  netip.Addr `json:"address"`
	HostName string     `json:"host-name,omitempty"`
	Chassis  string     `json:"chassis,omitempty"`
	Gateways []string   `json:"gateway,omitempty"`
}

func nodes(objects iter.Seq[netvirt.Object]) any {
	return list("node", each(objects, func(o netvirt.Node) jsonNode {
		return jsonNode{o.Address, o.HostName, o.Chassis, o.Gateways.Strings()}
	}))
}

type jsonNodeNetwork struct {
	Prefix      netip.Prefix   `json:"prefix"`
	Gateway     netip.Addr     `json:"gateway"`
	PrefixIPv6  netip.Prefix   `json:"ipv6-prefix,omitzero"`
	GatewayIPv6 netip.Addr     `json:"ipv6-gateway,omitzero"`
	RouteTarget string         `json:"route-target"`
	OnNode      []netip.Prefix `json:"on-node,omitempty"`
	Links       []netip.Prefix `json:"gateway-links,omitempty"`
}

func nodeNetworks(objects iter.Seq[netvirt.Object]) any {
	return list("node-network", each(objects, func(o netvirt.NodeNetwork) jsonNodeNetwork {
		return jsonNodeNetwork{o.Prefix, o.Gateway, o.PrefixIPv6, o.GatewayIPv6, o.Transit, o.OnNode.All(), o.GatewayLinks.All()}
	}))
}

type jsonManagementPort struct {
	Node           netip.Addr   `json:"node"`
	Name           string       `json:"name"`
	Network        netip.Prefix `json:"node-network"`
	Address        netip.Addr   `json:"address"`
	ServiceAddress netip.Addr   `json:"service-address"`
	EdgeAddress    netip.Addr   `json:"edge-address,omitzero"`
	AddressIPv6    netip.Addr   `json:"ipv6-address,omitzero"`
	ServiceIPv6    netip.Addr   `json:"ipv6-service-address,omitzero"`
	EdgeIPv6       netip.Addr   `json:"ipv6-edge-address,omitzero"`
	Second         netip.Addr   `json:"second-node-address,omitzero"`
	MAC            string       `json:"mac-address"`
	Chassis        string       `json:"chassis,omitempty"`
}

func managementPorts(objects iter.Seq[netvirt.Object]) any {
	return list("management-port", each(objects, func(o netvirt.ManagementPort) jsonManagementPort {
		return jsonManagementPort{
			o.Node, o.Name(), o.Network, o.Address, o.ServiceAddress, o.EdgeAddress, o.IPv6.Address, o.IPv6.Service, o.IPv6.Edge, o.Second, o.MAC, o.Chassis,
		}
	}))
}

type jsonGateway struct {
	Node        netip.Addr     `json:"node"`
	Network     netip.Prefix   `json:"node-network"`
	RouteTarget string         `json:"route-target"`
	Chassis     string         `json:"chassis,omitempty"`
	Address     netip.Addr     `json:"address,omitzero"`
	Length      int            `json:"prefix-length,omitempty"`
	NextHop     netip.Addr     `json:"next-hop,omitzero"`
	Link        netip.Prefix   `json:"link,omitzero"`
	IPv6        netip.Addr     `json:"ipv6-address,omitzero"`
	LengthIPv6  int            `json:"ipv6-prefix-length,omitempty"`
	NextHopIPv6 netip.Addr     `json:"ipv6-next-hop,omitzero"`
	LinkIPv6    netip.Prefix   `json:"ipv6-link,omitzero"`
	Pods        []netip.Prefix `json:"pods,omitempty"`
	Pinned      []netip.Prefix `json:"pinned-subnets,omitempty"`
	Inside      []netip.Prefix `json:"inside,omitempty"`
	Services    bool           `json:"services,omitempty"`
	External    []netip.Prefix `json:"external,omitempty"`
	Nodes       []netip.Prefix `json:"nodes,omitempty"`
	Own         []netip.Prefix `json:"own,omitempty"`
	SourcePorts string         `json:"source-ports,omitempty"`
}

func gateways(objects iter.Seq[netvirt.Object]) any {
	return list("gateway", each(objects, func(o netvirt.Gateway) jsonGateway {
		return jsonGateway{
			o.Node, o.Network, o.Transit, o.Chassis, o.Address.Addr(), max(o.Address.Bits(), 0), o.NextHop, o.Link,
			o.IPv6.Address.Addr(), max(o.IPv6.Address.Bits(), 0), o.IPv6.NextHop, o.IPv6.Link,
			o.Pods.All(), o.Pinned.All(), o.Inside.All(), o.Services, o.External.All(), o.Nodes.All(), o.Own.All(), o.SourcePorts,
		}
	}))
}

type jsonSubnet struct {
	ELANInstance string       `json:"elan-instance-name"`
	Prefix       netip.Prefix `json:"prefix"`
	VPNInstance  string       `json:"vpn-instance-name"`
	Gateway      netip.Addr   `json:"gateway"`
	DNS          []netip.Addr `json:"dns-servers,omitempty"`
	LeaseTime    uint32       `json:"lease-time"`
}

func subnets(objects iter.Seq[netvirt.Object]) any {
	return list("subnet", each(objects, func(o netvirt.Subnet) jsonSubnet {
		return jsonSubnet{o.ELAN, o.Prefix, o.VPN, o.Gateway, o.DNS.All(), o.LeaseTime}
	}))
}

type jsonNodePort struct {
	ELANInstance string       `json:"elan-instance-name"`
	Name         string       `json:"name"`
	Network      netip.Prefix `json:"subnet,omitzero"`
	VPNInstance  string       `json:"vpn-instance-name"`
	Address      netip.Addr   `json:"address"`
	IPv6         netip.Addr   `json:"ipv6-address,omitzero"`
	NetworkIPv6  netip.Prefix `json:"ipv6-subnet,omitzero"`
	Edge         netip.Addr   `json:"edge-address,omitzero"`
	EdgeGateway  netip.Addr   `json:"edge-gateway,omitzero"`
	MAC          string       `json:"mac-address"`
	Chassis      string       `json:"chassis,omitempty"`
}

func nodePorts(objects iter.Seq[netvirt.Object]) any {
	return list("node-port", each(objects, func(o netvirt.NodePort) jsonNodePort {
		return jsonNodePort{o.ELAN, o.Name(), o.Network, o.VPN, o.Address, o.IPv6, o.NetworkIPv6, o.Edge, o.EdgeGateway, o.MAC, o.Chassis}
	}))
}

type jsonEgressIP struct {
	Name    string           `json:"name"`
	Group   string           `json:"remote-group"`
	Network netip.Prefix     `json:"node-network"`
	Number  uint16           `json:"number"`
	Ports   []jsonEgressPort `json:"port,omitempty"`
}

type jsonEgressPort struct {
	Name    string     `json:"name"`
	Node    netip.Addr `json:"node"`
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac-address"`
	Chassis string     `json:"chassis,omitempty"`
	Active  bool       `json:"active"`
}

func egressIPs(objects iter.Seq[netvirt.Object]) any {
	return list("egress-ip", each(objects, func(o netvirt.EgressIP) jsonEgressIP {
		out := jsonEgressIP{Name: o.Name, Group: GroupID(netvirt.RemoteGroup{Name: o.Group}.Key()), Network: o.Network, Number: o.Number}
		for i, host := range o.Hosts {
			if host.Node.IsValid() {
				out.Ports = append(out.Ports, jsonEgressPort{
					netvirt.EgressPortName(o.Number, i), host.Node, netvirt.EgressNextHop(o.Number, i), netvirt.EgressMAC(o.Number, i),
					host.Chassis, int(o.Active) == i+1,
				})
			}
		}
		return out
	}))
}

type jsonService struct {
	UID       string      `json:"uid"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name,omitempty"`
	Affinity  uint32      `json:"affinity"`
	Places    []jsonPlace `json:"place,omitempty"`
	VIPs      []jsonVIP   `json:"vip,omitempty"`

	AtGateways []jsonGatewayVIP `json:"gateway-vip,omitempty"`
}

type jsonGatewayVIP struct {
	Gateway    netip.Addr       `json:"gateway"`
	Protocol   netvirt.Protocol `json:"protocol"`
	Address    netip.Addr       `json:"address"`
	Port       uint16           `json:"port"`
	Endpoints  []jsonEndpoint   `json:"endpoint,omitempty"`
	Local      bool             `json:"local,omitempty"`
	Waits      bool             `json:"waits,omitempty"`
	Restricted bool             `json:"restricted,omitempty"`
	Sources    []netip.Prefix   `json:"source,omitempty"`
}

type jsonPlace struct {
	Number int          `json:"number"`
	Nodes  []netip.Addr `json:"node"`
}

type jsonVIP struct {
	Protocol  netvirt.Protocol `json:"protocol"`
	Address   netip.Addr       `json:"address"`
	Port      uint16           `json:"port"`
	Endpoints []jsonEndpoint   `json:"endpoint,omitempty"`
	Near      []jsonNear       `json:"near,omitempty"`
}

type jsonNear struct {
	Place     int            `json:"place"`
	Endpoints []jsonEndpoint `json:"endpoint,omitempty"`
}

type jsonEndpoint struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
}

func services(objects iter.Seq[netvirt.Object]) any {
	vips := map[string][]jsonVIP{}
	for _, o := range of[netvirt.ServiceVIP](objects) {
		v := jsonVIP{Protocol: o.Protocol, Address: o.VIP.Addr(), Port: o.VIP.Port(), Endpoints: endpoints(o.Endpoints)}
		for i, near := range o.Near.All() {
			v.Near = append(v.Near, jsonNear{i, endpoints(near)})
		}
		vips[o.Service] = append(vips[o.Service], v)
	}
	atGateways := map[string][]jsonGatewayVIP{}
	for _, o := range of[netvirt.GatewayVIP](objects) {
		atGateways[o.Service] = append(atGateways[o.Service], jsonGatewayVIP{
			o.Gateway, o.Protocol, o.VIP.Addr(), o.VIP.Port(), endpoints(o.Endpoints), o.Local, o.Waits, o.Restricted, o.Sources.All(),
		})
	}
	return list("service", each(objects, func(o netvirt.Service) jsonService {
		var places []jsonPlace
		for i, nodes := range o.Places.All() {
			places = append(places, jsonPlace{i, nodes})
		}
		return jsonService{o.UID, o.Namespace, o.Name, o.Affinity, places, vips[o.UID], atGateways[o.UID]}
	}))
}

func endpoints(list netvirt.EndpointList) (all []jsonEndpoint) {
	for _, e := range list.All() {
		all = append(all, jsonEndpoint{e.Addr(), e.Port()})
	}
	return all
}
