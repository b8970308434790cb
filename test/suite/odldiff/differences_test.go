package odldiff

import (
	"crypto/md5" //nolint:gosec // Oxygen makes its UUIDs with MD5
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// nothing is the value of a missing leaf.
const nothing = "nothing"

// leaf is a leaf with different values in Oxygen and in the bridge.
type leaf struct {
	story *story
	place
	path         string
	oxygen, ours string
	// theirs and own are the entries with the leaf, in Oxygen and in the bridge; nil if there is
	// none.
	theirs, own object
}

// difference is an intended difference from Oxygen's renderer. Decision 7 has its name and its reason.
type difference struct {
	name    string
	allowed func(leaf) bool
}

// differences has all intended differences. Each must occur. The first one that allows a leaf counts.
var differences = []difference{
	{"elan-instance removed", elanRemoved},
	{"vpn-instance removed", vpnRemoved},
	{"controller's leaves", controllersLeaf},
	{"VNI", vni},
	{"no identifier of FLAT", noFlatIdentifier},
	{"segment of the first pod", firstPodsSegment},
	{"route distinguisher", routeDistinguisher},
	{"route targets", routeTarget},
	{"no address, no interface", withoutAddress},
	{"port known before it is there", portKnown},
	{"port of its own", ownPort},
	{"MAC address known before the port is there", macKnown},
	{"vpn-interface with the address", vpnInterfaceKnown},
	{"address change followed", addressFollowed},
	{"IPv6 named", ipv6Named},
	{"gateway of the node's pod-cidr", gatewayOfNode},
	{"subnet_id", subnetID},
	{"floating-ip-info", floatingIP},
}

// elanRemoved: an elan-instance is removed with its last pod.
func elanRemoved(l leaf) bool {
	_, had := l.story.elans[l.entry]
	return l.tree == "elan:elan-instances" && l.own == nil && had && l.story.firstOf(l.entry) == nil
}

// vpnRemoved: a vpn-instance is removed with its last pod.
func vpnRemoved(l leaf) bool {
	return l.tree == "l3vpn:vpn-instances" && l.own == nil && l.story.vpns[l.entry] &&
		!slices.ContainsFunc(l.story.mapped(), func(p *pod) bool { return p.namespace == l.entry })
}

// controllersLeaf: Netvirt adds leaves for itself.
func controllersLeaf(l leaf) bool {
	return l.tree == "elan:elan-instances" && (l.path == "elan-tag" || l.path == "mac-timeout") && l.ours == nothing
}

// firstVNI is the first VNI of the pool.
const firstVNI = 70000

// vni: with VXLAN and GRE each elan-instance has its own VNI, from a pool.
func vni(l leaf) bool {
	if l.tree != "elan:elan-instances" || l.path != "segmentation-id" || l.own == nil {
		return false
	}
	ours, err := strconv.Atoi(l.ours)
	tunnel := l.own["segment-type"] == "elan:segment-type-vxlan" || l.own["segment-type"] == "elan:segment-type-gre"
	return err == nil && tunnel && ours >= firstVNI && l.oxygen == strconv.Itoa(l.story.elans[l.entry].ID)
}

// noFlatIdentifier: FLAT has no identifier, even if the pod has one.
func noFlatIdentifier(l leaf) bool {
	return l.tree == "elan:elan-instances" && l.path == "segmentation-id" && l.own["segment-type"] == "elan:segment-type-flat" &&
		l.ours == "0" && l.oxygen == strconv.Itoa(l.story.elans[l.entry].ID)
}

// firstPodsSegment: an elan-instance has the segment of its oldest present pod. In Oxygen it keeps the
// segment of the first pod that it ever had.
func firstPodsSegment(l leaf) bool {
	if l.tree != "elan:elan-instances" || l.own == nil {
		return false
	}
	first, ever := l.story.firstOf(l.entry), l.story.elans[l.entry]
	if first == nil || first.segment == ever {
		return false
	}
	switch l.path {
	case "segment-type":
		return l.ours == segmentType(first.segment) && l.oxygen == segmentType(ever)
	case "segmentation-id":
		return first.segment.Type == "VLAN" && l.ours == strconv.Itoa(first.segment.ID) && l.oxygen == strconv.Itoa(ever.ID)
	}
	return false
}

func segmentType(s segment) string { return "elan:segment-type-" + strings.ToLower(s.Type) }

// firstOf returns the oldest pod in an elan-instance, or nil.
func (s *story) firstOf(elan string) *pod {
	for _, p := range s.mapped() {
		if p.elanName() == elan {
			return p
		}
	}
	return nil
}

var ownDistinguisher = regexp.MustCompile(`^100:([2-9]|\d{2,})$`)

// routeDistinguisher: each vpn-instance has its own route distinguisher.
func routeDistinguisher(l leaf) bool {
	if l.tree != "l3vpn:vpn-instances" || l.own == nil || !strings.HasPrefix(l.path, "ipv4-family/route-distinguisher[") {
		return false
	}
	return l.oxygen == "100:1" && l.ours == nothing || l.oxygen == nothing && ownDistinguisher.MatchString(l.ours)
}

// routeTarget: each vpn-instance has its own route target and, without isolation, the common one.
func routeTarget(l leaf) bool {
	return l.tree == "l3vpn:vpn-instances" && strings.HasPrefix(l.path, "ipv4-family/vpnTargets/vpnTarget[") && l.oxygen == nothing &&
		(l.ours == "both" || l.ours == "100:1" || ownDistinguisher.MatchString(l.ours))
}

// withoutAddress: a pod with a node and without an address has no network yet.
func withoutAddress(l leaf) bool {
	p := l.story.podOf(l.entry)
	switch {
	case l.own != nil:
		return false
	case l.tree == "ietf-interfaces:interfaces", l.tree == "elan:elan-interfaces":
		return p != nil && p.node != nil && !p.address.IsValid()
	}
	return false
}

// podOf returns the present pod of an interface.
func (s *story) podOf(interfaceName string) *pod {
	i := slices.IndexFunc(s.pods, func(p *pod) bool { return p.told && p.interfaceName() == interfaceName })
	if i < 0 {
		return nil
	}
	return s.pods[i]
}

// mappedPod returns the pod of a leaf, if both have its interfaces.
func (l leaf) mappedPod() *pod {
	if p := l.story.podOf(l.entry); p != nil && p.mapped() {
		return p
	}
	return nil
}

// portKnown: the name of the port follows from the interface and the pod.
func portKnown(l leaf) bool {
	p := l.mappedPod()
	return l.tree == "ietf-interfaces:interfaces" && l.path == "odl-interface:parent-interface" && p != nil && !p.attached &&
		l.oxygen == nothing && l.ours == p.portName()
}

// ownPort: each pod has its own port. In Oxygen it can be the port of an earlier pod with that name.
func ownPort(l leaf) bool {
	p := l.mappedPod()
	return l.tree == "ietf-interfaces:interfaces" && l.path == "odl-interface:parent-interface" && p != nil &&
		l.ours == p.portName() && slices.Contains(l.story.left[l.entry], l.oxygen)
}

// macKnown: the MAC address is chosen together with the address.
func macKnown(l leaf) bool {
	p := l.mappedPod()
	if l.tree != "elan:elan-interfaces" || p == nil || p.attached || l.oxygen != nothing {
		return false
	}
	entry := "static-mac-entries[" + p.mac() + "]/"
	return l.path == entry+"mac-address" && l.ours == p.mac() || l.path == entry+"ip-prefix" && l.ours == p.address.String()
}

// vpnInterfaceKnown: the vpn-interface exists as soon as the pod has an address.
func vpnInterfaceKnown(l leaf) bool {
	p := l.mappedPod()
	return l.tree == "l3vpn:vpn-interfaces" && l.theirs == nil && p != nil && p.member == nil
}

// addressFollowed: a vpn-interface has the present address of the pod. In Oxygen it keeps the address
// that the pod had when its port was plugged in.
func addressFollowed(l leaf) bool {
	p := l.mappedPod()
	if l.tree != "l3vpn:vpn-interfaces" || p == nil || p.attached || p.member == nil {
		return false
	}
	now := adjacencyPath(p.address)
	before := adjacencyPath(p.member.address)
	return strings.HasPrefix(l.path, now) && l.oxygen == nothing || strings.HasPrefix(l.path, before) && l.ours == nothing
}

func adjacencyPath(a netip.Addr) string {
	return "odl-l3vpn:adjacency[" + netip.PrefixFrom(a, a.BitLen()).String() + "]/"
}

// ipv6Named: a vpn-interface has the family of its addresses. In Oxygen the family is always IPv4.
func ipv6Named(l leaf) bool {
	p := l.mappedPod()
	return l.tree == "l3vpn:vpn-interfaces" && p != nil && p.ipv6 && l.path == "vpn-instance-names["+p.namespace+"]/associated-subnet-type" &&
		l.ours == "V6Subnet" && l.oxygen == "V4Subnet"
}

// gatewayOfNode: the gateway is the first address of the node's pod-cidr, or a link-local address. In
// Oxygen it is made from the pod's address.
func gatewayOfNode(l leaf) bool {
	p := l.mappedPod()
	return l.tree == "l3vpn:vpn-interfaces" && p != nil && l.path == adjacencyPath(p.address)+"subnet_gateway_ip" &&
		l.ours == p.gateway.String() && l.oxygen == guessedGateway(p.address.String())
}

// subnetID: the UUID only needs to be stable. In Oxygen it is made from the node's address.
func subnetID(l leaf) bool {
	p := l.mappedPod()
	if l.tree != "l3vpn:vpn-interfaces" || p == nil || p.member == nil || l.path != adjacencyPath(p.address)+"subnet_id" {
		return false
	}
	_, err := uuid.Parse(l.ours)
	return err == nil && l.oxygen == namedUUID(p.member.node.String())
}

// namedUUID returns a UUID of version 3 without a namespace.
func namedUUID(name string) string {
	id := uuid.UUID(md5.Sum([]byte(name))) //nolint:gosec // Oxygen makes its UUIDs with MD5
	id[6], id[8] = id[6]&0x0f|0x30, id[8]&0x3f|0x80
	return id.String()
}

// floatingIP: the pods of a service have its address. In Oxygen no pod has it.
func floatingIP(l leaf) bool {
	return l.tree == "odl-nat:floating-ip-info" && l.theirs == nil && l.story.floating(l.entry)[l.path] == l.ours
}

// floating returns the expected floating-ip-info of a vpn-instance: the service's address, which is
// IPv4, for each IPv4 pod among its endpoints.
func (s *story) floating(vpn string) object {
	o := object{}
	for _, v := range s.services {
		if v.namespace != vpn || !v.told {
			continue
		}
		for _, p := range s.mapped() {
			if p.namespace != vpn || p.ipv6 || !slices.Contains(v.endpoints, p.address) {
				continue
			}
			port := "ports[" + p.interfaceName() + "]/"
			entry := port + "internal-to-external-port-map[" + p.address.String() + "]/"
			o["router-id"], o[port+"port-name"] = vpn, p.interfaceName()
			o[entry+"internal-ip"], o[entry+"external-ip"], o[entry+"external-id"] = p.address.String(), v.address.String(), v.uid
		}
	}
	return o
}
