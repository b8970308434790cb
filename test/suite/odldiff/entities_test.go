package odldiff

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// node is a node of a story. It can be written to the bridge or not.
type node struct {
	uid, name string
	address   netip.Addr
	podCIDR   netip.Prefix // zero for none
	told      bool
}

func (n *node) path() string { return "k8s-node:k8s-nodes-info/k8s-nodes/" + n.uid }

func (n *node) body() string {
	entry := map[string]any{"uid": n.uid, "host-name": n.name, "internal-ip-address": n.address}
	if n.podCIDR.IsValid() {
		entry["pod-cidr"] = n.podCIDR
	}
	return body("k8s-nodes", entry)
}

// The gateways of addresses outside the pod-cidr of their node.
var linkGateway4, linkGateway6 = netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")

// gateway returns the gateway of an address with its own route, as docs/mapping.md says.
func (n *node) gateway(address netip.Addr) netip.Addr {
	switch {
	case n.told && n.podCIDR.Contains(address):
		return n.podCIDR.Addr().Next()
	case address.Is6():
		return linkGateway6
	}
	return linkGateway4
}

// pod is a pod of a story, with its port.
type pod struct {
	uid, namespace, name string
	ipv6                 bool
	wantsMAC             string // empty if the bridge makes it from the IPv4 address
	node                 *node  // nil if the pod is not scheduled
	address              netip.Addr
	segment              segment
	// told: the pod is written. gone: it was written and deleted. plugged: its port exists. The
	// port can exist before the pod is written, and after it is deleted.
	told, gone, plugged bool
	// order is the position of the pod among the story's pods with a network, or zero.
	order   int
	gateway netip.Addr // of the present address
	renderer
}

// segment has an interface's leaves about its network.
type segment struct {
	Type string
	ID   int
}

// renderer is the state of a pod in Oxygen's renderer.
type renderer struct {
	made     bool // the interfaces exist
	waiting  bool // the port was plugged in, and the pod has no address yet
	attached bool // the port was plugged in after the last creation of the interfaces
	member   *adjacency
}

// adjacency is the adjacency of a vpn-interface of Oxygen, which never changes it.
type adjacency struct {
	address, node netip.Addr
	mac           string
}

const noNetwork = "00000000-0000-0000-0000-000000000000"

func (p *pod) path() string { return "pod:coe/pods/" + p.uid }

func (p *pod) body() string {
	iface := map[string]any{
		"uid": p.uid, "network-id": noNetwork, "network-type": p.segment.Type, "segmentation-id": p.segment.ID,
	}
	if p.address.IsValid() {
		iface["ip-address"] = p.address
	}
	entry := map[string]any{
		"uid": p.uid, "name": p.name, "network-NS": p.namespace, "port-mac-address": p.wantsMAC, "interface": []any{iface},
	}
	if p.node != nil {
		entry["host-ip-address"] = p.node.address
	}
	return body("pods", entry)
}

// mapped reports whether the pod has all leaves that it needs for a network.
func (p *pod) mapped() bool { return p.told && p.node != nil && p.address.IsValid() }

func (p *pod) interfaceName() string { return p.namespace + ":" + p.name }

func (p *pod) elanName() string { return p.node.address.String() + ":" + p.namespace }

func (p *pod) portName() string { return netvirt.PortName(p.interfaceName(), p.uid) }

// mac returns the MAC address that the CNI plugin gives the pod's link.
func (p *pod) mac() string {
	if p.wantsMAC != "" {
		return p.wantsMAC
	}
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, p.address.AsSlice()...)).String()
}

// lastNumber matches the last number of an address.
var lastNumber = regexp.MustCompile(`\d+$`)

// guessedGateway returns the gateway that Oxygen uses, without regard to the node's pod-cidr.
func guessedGateway(address string) string { return lastNumber.ReplaceAllString(address, "1") }

// service is a service of a story, and its endpoints.
type service struct {
	uid, name, namespace string
	address              netip.Addr
	told, endpointsTold  bool
	endpoints            []netip.Addr
}

func (s *service) path() string { return "service:service-information/services/" + s.uid }

func (s *service) endpointsPath() string { return "service:endpoints-info/endpoints/" + s.uid }

func (s *service) body() string {
	return body("services", map[string]any{
		"uid": s.uid, "name": s.name, "network-NS": s.namespace, "cluster-ip-address": s.address,
		"service-ports": []any{map[string]any{"name": "http", "port": 80, "target-port": "8080"}},
	})
}

func (s *service) endpointsBody() string {
	addresses := []any{}
	for _, a := range s.endpoints {
		addresses = append(addresses, map[string]any{"ip-address": a})
	}
	return body("endpoints", map[string]any{
		"uid": s.uid, "name": s.name, "network-NS": s.namespace, "endpoint-addresses": addresses,
		"endpoint-ports": []any{map[string]any{"name": "http", "port": 8080}},
	})
}

// body returns the text of a list with one entry.
func body(list string, entry map[string]any) string {
	text, err := json.Marshal(map[string]any{list: []any{entry}})
	if err != nil {
		panic(fmt.Sprintf("write body of %s: %v", list, err))
	}
	return string(text)
}
