// Package netvirtjson encodes Netvirt objects as the JSON (RFC 7951) of the YANG modules
// that define them (docs/mapping.md): the trees that RESTCONF shows. It knows leaf names and
// nesting, not who uses the trees.
package netvirtjson

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// trees holds the encoder of each top container.
var trees = map[string]func(iter.Seq[netvirt.Object]) any{
	"ietf-interfaces:interfaces": interfaces,
	"elan:elan-instances":        elanInstances,
	"elan:elan-interfaces":       elanInterfaces,
	"l3vpn:vpn-instances":        vpnInstances,
	"l3vpn:vpn-interfaces":       vpnInterfaces,
	"odl-nat:floating-ip-info":   floatingIPs,
	AccessLists:                  accessLists,
	"coe-netvirt:transits":       transits,
	"coe-netvirt:nodes":          nodes,
	"coe-netvirt:subnets":        subnets,

	"coe-netvirt:node-networks":    nodeNetworks,
	"coe-netvirt:management-ports": managementPorts,
	"coe-netvirt:node-ports":       nodePorts,
	"coe-netvirt:gateways":         gateways,
	"coe-netvirt:egress-ips":       egressIPs,

	"coe-netvirt:security-groups": securityGroups,
	"coe-netvirt:remote-groups":   remoteGroups,

	"coe-netvirt:services": services,
}

// Tops returns the names of the top containers ("module:name") that Tree encodes, sorted.
func Tops() []string { return slices.Sorted(maps.Keys(trees)) }

// Tree encodes the content of a top container from the objects that belong to it, or
// returns nil if there are none. Lists are sorted by key. It fails for another container. It reads the objects once, so all of them are of one
// state if they change meanwhile.
func Tree(top string, objects iter.Seq[netvirt.Object]) ([]byte, error) {
	write, found := trees[top]
	if !found {
		return nil, fmt.Errorf("encode tree %s: it contains no Netvirt objects", top)
	}
	content := write(slices.Values(slices.Collect(objects)))
	if content == nil {
		return nil, nil
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode tree %s: %w", top, err)
	}
	return raw, nil
}

// of returns the objects of one type, sorted by key.
func of[T netvirt.Object](objects iter.Seq[netvirt.Object]) []T {
	var out []T
	for o := range objects {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.Key().Name, b.Key().Name) })
	return out
}

// list returns a container with one list.
func list[T any](name string, entries []T) any {
	if len(entries) == 0 {
		return nil
	}
	return map[string][]T{name: entries}
}

// each converts objects of one type to list entries.
func each[T netvirt.Object, E any](objects iter.Seq[netvirt.Object], entry func(T) E) []E {
	var out []E
	for _, o := range of[T](objects) {
		out = append(out, entry(o))
	}
	return out
}

type jsonInterface struct {
	Name            string `json:"name"`
	Type            string `json:"type"`
	Enabled         bool   `json:"enabled"`
	L2VLANMode      string `json:"odl-interface:l2vlan-mode"`
	ParentInterface string `json:"odl-interface:parent-interface,omitempty"`
	jsonInterfaceACL
}

func interfaces(objects iter.Seq[netvirt.Object]) any {
	acls := map[string]jsonInterfaceACL{}
	for _, o := range of[netvirt.InterfaceACL](objects) {
		acls[o.Interface] = interfaceACL(o)
	}
	return list("interface", each(objects, func(o netvirt.Interface) jsonInterface {
		return jsonInterface{
			Name: o.Name, Type: "iana-if-type:l2vlan", Enabled: true,
			L2VLANMode: "trunk", ParentInterface: o.ParentInterface, jsonInterfaceACL: acls[o.Name],
		}
	}))
}

type jsonELANInstance struct {
	Name           string `json:"elan-instance-name"`
	SegmentType    string `json:"segment-type"`
	SegmentationID uint32 `json:"segmentation-id"`
	Physical       string `json:"physical-network-name,omitempty"`
	External       bool   `json:"external"`
}

func elanInstances(objects iter.Seq[netvirt.Object]) any {
	return list("elan-instance", each(objects, func(o netvirt.ELANInstance) jsonELANInstance {
		return jsonELANInstance{o.Name, "elan:" + string(o.SegmentType), o.SegmentationID, o.PhysicalNetwork, false}
	}))
}

type jsonELANInterface struct {
	Name         string         `json:"name"`
	ELANInstance string         `json:"elan-instance-name"`
	MACEntries   []jsonMACEntry `json:"static-mac-entries,omitempty"`
}

type jsonMACEntry struct {
	MAC      string     `json:"mac-address"`
	IPPrefix netip.Addr `json:"ip-prefix"`
}

func elanInterfaces(objects iter.Seq[netvirt.Object]) any {
	entries := map[string][]jsonMACEntry{}
	for _, o := range of[netvirt.MACEntry](objects) {
		entries[o.Interface] = append(entries[o.Interface], jsonMACEntry{o.MAC, o.Address})
	}
	return list("elan-interface", each(objects, func(o netvirt.ELANInterface) jsonELANInterface {
		return jsonELANInterface{o.Name, o.ELAN, entries[o.Name]}
	}))
}

type jsonVPNInstance struct {
	Name   string     `json:"vpn-instance-name"`
	Type   string     `json:"type"`
	L3VNI  uint32     `json:"l3vni"`
	Family jsonFamily `json:"ipv4-family"`
}

type jsonFamily struct {
	RouteDistinguisher []string `json:"route-distinguisher"`
	Targets            struct {
		Target []jsonTarget `json:"vpnTarget"`
	} `json:"vpnTargets"`
}

type jsonTarget struct {
	Value string `json:"vrfRTValue"`
	Type  string `json:"vrfRTType"`
}

func vpnInstances(objects iter.Seq[netvirt.Object]) any {
	return list("vpn-instance", each(objects, func(o netvirt.VPNInstance) jsonVPNInstance {
		v := jsonVPNInstance{Name: o.Name, Type: "l3"}
		v.Family.RouteDistinguisher = []string{o.RouteDistinguisher}
		v.Family.Targets.Target = []jsonTarget{{o.RouteDistinguisher, "both"}}
		if o.Transit != "" {
			v.Family.Targets.Target = append(v.Family.Targets.Target, jsonTarget{o.Transit, "both"})
		}
		return v
	}))
}

type jsonVPNInterface struct {
	Name            string          `json:"name"`
	RouterInterface bool            `json:"router-interface"`
	InstanceNames   []jsonVPNName   `json:"vpn-instance-names"`
	Adjacencies     []jsonAdjacency `json:"odl-l3vpn:adjacency,omitempty"`
}

type jsonVPNName struct {
	Name       string `json:"vpn-name"`
	SubnetType string `json:"associated-subnet-type"`
}

type jsonAdjacency struct {
	IPAddress netip.Prefix `json:"ip_address"`
	MAC       string       `json:"mac_address"`
	Type      string       `json:"adjacency_type"`
	SubnetID  string       `json:"subnet_id"`
	Gateway   netip.Addr   `json:"subnet_gateway_ip"`
}

func vpnInterfaces(objects iter.Seq[netvirt.Object]) any {
	adjacencies := map[string][]jsonAdjacency{}
	families := map[string][2]bool{} // IPv4, IPv6
	for _, o := range of[netvirt.Adjacency](objects) {
		adjacencies[o.Interface] = append(adjacencies[o.Interface], jsonAdjacency{
			IPAddress: netip.PrefixFrom(o.Address, o.Address.BitLen()), MAC: o.MAC,
			Type: "primary-adjacency", SubnetID: SubnetID(o), Gateway: o.Gateway,
		})
		has := families[o.Interface]
		families[o.Interface] = [2]bool{has[0] || o.Address.Is4(), has[1] || !o.Address.Is4()}
	}
	return list("vpn-interface", each(objects, func(o netvirt.VPNInterface) jsonVPNInterface {
		return jsonVPNInterface{
			Name:          o.Name,
			InstanceNames: []jsonVPNName{{o.VPN, subnetType(families[o.Name])}},
			Adjacencies:   adjacencies[o.Name],
		}
	}))
}

func subnetType(has [2]bool) string {
	switch has {
	case [2]bool{true, true}:
		return "V4AndV6Subnets"
	case [2]bool{false, true}:
		return "V6Subnet"
	}
	return "V4Subnet"
}

// SubnetID returns a UUID (RFC 9562, section 5.8) for the adjacency's subnet. It depends
// only on the elan-instance and the prefix.
func SubnetID(o netvirt.Adjacency) string { return uuidOf(o.ELAN + " " + o.Network.String()) }

type jsonRouter struct {
	ID    string     `json:"router-id"`
	Ports []jsonPort `json:"ports"`
}

type jsonPort struct {
	Name string        `json:"port-name"`
	Map  []jsonNATPair `json:"internal-to-external-port-map"`
}

type jsonNATPair struct {
	Internal   netip.Addr `json:"internal-ip"`
	External   netip.Addr `json:"external-ip"`
	ExternalID string     `json:"external-id"`
}

func floatingIPs(objects iter.Seq[netvirt.Object]) any {
	var routers []jsonRouter
	for _, o := range of[netvirt.FloatingIP](objects) { // sorted by router, port, address
		if n := len(routers); n == 0 || routers[n-1].ID != o.Router {
			routers = append(routers, jsonRouter{ID: o.Router})
		}
		r := &routers[len(routers)-1]
		if n := len(r.Ports); n == 0 || r.Ports[n-1].Name != o.Port {
			r.Ports = append(r.Ports, jsonPort{Name: o.Port})
		}
		p := &r.Ports[len(r.Ports)-1]
		p.Map = append(p.Map, jsonNATPair{o.Internal, o.External, o.ExternalID})
	}
	return list("router-ports", routers)
}
