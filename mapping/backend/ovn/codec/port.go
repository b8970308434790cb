package codec

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// port holds the objects of a port's group, by type.
type port struct {
	netvirt.Interface
	elan        netvirt.ELANInterface
	vpn         netvirt.VPNInterface
	acl         netvirt.InterfaceACL
	entries     []netvirt.MACEntry
	adjacencies []netvirt.Adjacency
}

func newPort(objects netvirt.Model) (p port, complete bool) {
	var plugged, attached bool
	for _, o := range objects {
		switch o := o.(type) {
		case netvirt.Interface:
			p.Interface, plugged = o, true
		case netvirt.ELANInterface:
			p.elan, attached = o, true
		case netvirt.VPNInterface:
			p.vpn = o
		case netvirt.InterfaceACL:
			p.acl = o
		case netvirt.MACEntry:
			p.entries = append(p.entries, o)
		case netvirt.Adjacency:
			p.adjacencies = append(p.adjacencies, o)
		}
	}
	slices.SortFunc(p.entries, func(a, b netvirt.MACEntry) int { return a.Key().Compare(b.Key()) })
	slices.SortFunc(p.adjacencies, func(a, b netvirt.Adjacency) int { return a.Key().Compare(b.Key()) })
	return p, plugged && attached
}

// PortUUID returns the UUID of the port of an Interface, given its key.
func (c Codec) PortUUID(k netvirt.Key) string { return c.UUID(nb.LogicalSwitchPortTable, k, "") }

// encodePort adds the port of a pod. An Interface has no port until it is attached to an
// elan-instance: the server deletes a port that is on no switch.
func (c Codec) encodePort(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	p, ok := newPort(objects)
	if !ok {
		return
	}
	switchUUID, ok := c.arrangement().switchOf(p, look)
	if !ok {
		return
	}
	addresses := p.addresses()
	lsp := &nb.LogicalSwitchPort{
		UUID: c.PortUUID(k), Name: k.Name,
		Addresses: addresses, PortSecurity: slices.Clone(addresses), Options: map[string]string{},
	}
	if p.PodUID != "" {
		// OVN binds the port only to an interface with this UID. So an interface that an
		// earlier pod of the same name left behind cannot take the port.
		lsp.Options["iface-id-ver"] = p.PodUID
	}
	if p.elan.Chassis != "" {
		lsp.Options["requested-chassis"] = p.elan.Chassis
	}
	if unasked(p.adjacencies) {
		lsp.Options[optionUnasked] = "true"
	}
	lsp.ExternalIDs = c.portIDs(k, p)
	abridge(lsp.ExternalIDs, impliedByPort(k, lsp))
	for _, a := range p.adjacencies {
		network := c.arrangement().network(a, look)
		if p.DHCP {
			c.dhcp(lsp, a, network)
		}
		if !network.Contains(a.Address) {
			c.arrangement().host(set, k, p, a, look)
		}
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, switchUUID, "ports", lsp.UUID)
	acl.Join(c.Owner, set, lsp.UUID, p.acl, p.ips(), look)
}

// optionUnasked is the option of a port for whose addresses OVN answers no ARP requests and no neighbour solicitations. They reach the pod, which
// answers itself. OVN before 24.09 ignores the option.
const optionUnasked = "disable_arp_nd_rsp"

// unasked reports whether nobody on the switch of a port looks for its MAC address, because all its addresses are outside of their subnets:
// other pods reach them by their gateway, and the router has the MAC addresses in its flows. Only a pod that has the subnet of its node by DHCP
// asks, and gets the answer of the pod.
func unasked(all []netvirt.Adjacency) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(a netvirt.Adjacency) bool { return a.Network.Contains(a.Address) })
}

// dhcp lets DHCP offer the port's first address of each family, if the address is in its
// subnet.
func (c Codec) dhcp(lsp *nb.LogicalSwitchPort, a netvirt.Adjacency, network netip.Prefix) {
	options := &lsp.Dhcpv4Options
	if a.Address.Is6() {
		options = &lsp.Dhcpv6Options
	}
	if *options == nil && network.Contains(a.Address) && !network.IsSingleIP() {
		uuid := c.dhcpUUID(a.ELAN, a.Network)
		*options = &uuid
	}
}

// roleHost, and an address, is the role of the routes to the address of a port that is outside its subnet.
const roleHost = "host "

// host adds the routes to an address that is outside its subnet: on the vpn's
// router, which also needs the MAC address, and on the transit.
func (c byELAN) host(set *ovsdb.RowSet, k netvirt.Key, p port, a netvirt.Adjacency, look Lookup) {
	var (
		role = roleHost + a.Address.String()
		to   = single(a.Address)
		via  = gatewayPort(a.ELAN, a.Network)
	)
	c.route(set, k, role, c.routerUUID(vpnKey(p.vpn.VPN)), to, a.Address, via)
	c.bindMAC(set, k, via, a.Address, a.MAC)
	if vpn, ok := lookVPN(look, p.vpn.VPN); ok {
		c.transitRoute(set, k, roleTransit+" "+role, vpn, to)
		c.wayOut(set, k, roleWayOut+" "+role, vpn, a.ELAN, to, look)
	}
}

// Unmarked returns the UUIDs of the rows that a group of an interface can have in some layout, of tables without
// external_ids.
func (c Codec) Unmarked(head netvirt.Key, objects netvirt.Model) (all []string) {
	if head.Kind != netvirt.KindInterface {
		return nil
	}
	for _, a := range each[netvirt.Adjacency](objects) {
		all = append(all, c.BindingUUID(head, gatewayPort(a.ELAN, a.Network), a.Address))
		if node, _, err := netvirt.ParseELANName(a.ELAN); err == nil {
			all = append(all, c.BindingUUID(head, nodeRouterPort(node, a.Gateway), a.Address))
		}
	}
	return all
}

// bindMAC tells a router port the MAC address of an address that is outside its network, or of another router.
func (c Codec) bindMAC(set *ovsdb.RowSet, head netvirt.Key, port string, address netip.Addr, mac string) {
	set.Add(&nb.StaticMACBinding{UUID: c.BindingUUID(head, port, address), LogicalPort: port, IP: address.String(), MAC: mac, OverrideDynamicMAC: true})
}

// addresses returns the port's addresses in OVN's form: each MAC address, followed by its
// IP addresses.
func (p port) addresses() []string {
	ips := map[string][]string{}
	add := func(mac string, ip netip.Addr) {
		if text := ip.String(); mac != "" && !slices.Contains(ips[mac], text) {
			ips[mac] = append(ips[mac], text)
		}
	}
	for _, e := range p.entries {
		add(e.MAC, e.Address)
	}
	for _, a := range p.adjacencies {
		add(a.MAC, a.Address)
	}
	addresses := make([]string, 0, len(ips))
	for _, mac := range sortedKeys(ips) {
		addresses = append(addresses, mac+" "+strings.Join(ips[mac], " "))
	}
	return addresses
}

// ips returns the port's IP addresses.
func (p port) ips() []netip.Addr {
	var all []netip.Addr
	for _, e := range p.entries {
		all = append(all, e.Address)
	}
	for _, a := range p.adjacencies {
		all = append(all, a.Address)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// portIDs returns external_ids with all fields of the port's objects.
func (c Codec) portIDs(k netvirt.Key, p port) map[string]string {
	ids := c.Mark(k, "", identity.IDNamespace, p.Namespace, idPod, p.Pod, idPodUID, p.PodUID, idUID, p.UID, idParent, p.ParentInterface,
		idDHCP, flag(p.DHCP), idELAN, p.elan.ELAN, idChassis, p.elan.Chassis, idVPN, p.vpn.VPN)
	for _, e := range p.entries {
		ids[idMACEntry+e.Address.String()] = e.MAC
	}
	for _, a := range p.adjacencies {
		ids[idAdjacency+a.Address.String()] = fmt.Sprintf("%s %s %s %s", a.MAC, a.Network, a.Gateway, a.ELAN)
	}
	return ids
}

// impliedByPort returns the pairs that the port of a pod does not have in its external_ids, because its name, its options and its adjacencies
// imply them. ovn-northd copies each pair to the southbound database. The namespace stays: with it, a bridge of the earlier release knows which members
// of address sets belong to the port.
func impliedByPort(k netvirt.Key, lsp *nb.LogicalSwitchPort) map[string]string {
	namespace, pod, uid, _ := netvirt.ParseInterfaceName(k.Name)
	podUID := lsp.Options["iface-id-ver"]
	implied := map[string]string{
		idPod: pod, idPodUID: podUID, idUID: cmp.Or(uid, podUID), idParent: netvirt.PortName(k.Name, podUID),
		idChassis: lsp.Options["requested-chassis"], idVPN: netvirt.VPNName(namespace),
	}
	for key, value := range lsp.ExternalIDs {
		address, found := strings.CutPrefix(key, idAdjacency)
		if fields := strings.SplitN(value, " ", 4); found && len(fields) == 4 {
			implied[idMACEntry+address] = fields[0]
			if elan, has := implied[idELAN]; !has || fields[3] < elan {
				implied[idELAN] = fields[3]
			}
		}
	}
	return implied
}

// decodeSwitchPort decodes the port of encodePort, encodeManagementPort or encodeNodePort. Other switch ports hold no
// object.
func decodeSwitchPort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	switch k.Kind {
	case netvirt.KindInterface:
		return decodePort(k, lsp)
	case netvirt.KindManagementPort:
		return decodeManagementPort(k, lsp)
	case netvirt.KindNodePort:
		return decodeNodePort(k, lsp)
	}
	return nil
}

func decodePort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := impliedByPort(k, lsp)
	maps.Copy(ids, lsp.ExternalIDs)
	namespace := ids[identity.IDNamespace]
	objects := []netvirt.Object{
		netvirt.Interface{
			Name: k.Name, Namespace: namespace, Pod: ids[idPod], PodUID: ids[idPodUID], UID: ids[idUID], ParentInterface: ids[idParent],
			DHCP: ids[idDHCP] != "",
		},
		netvirt.ELANInterface{Name: k.Name, Namespace: namespace, ELAN: ids[idELAN], Chassis: ids[idChassis]},
	}
	if vpn := ids[idVPN]; vpn != "" {
		objects = append(objects, netvirt.VPNInterface{Name: k.Name, Namespace: namespace, VPN: vpn})
	}
	for key, value := range ids {
		if text, found := strings.CutPrefix(key, idMACEntry); found {
			if a, err := netip.ParseAddr(text); err == nil && value != "" {
				objects = append(objects, netvirt.MACEntry{Interface: k.Name, Namespace: namespace, MAC: value, Address: a})
			}
		}
	}
	for _, a := range adjacenciesIn(ids) {
		a.Interface, a.Namespace = k.Name, namespace
		if a.ELAN == ids[idELAN] {
			a.ELAN = ids[idELAN] // shares the memory
		}
		objects = append(objects, a)
	}
	return objects
}

// adjacenciesIn returns the adjacencies in external_ids, without interface and namespace.
func adjacenciesIn(ids map[string]string) (all []netvirt.Adjacency) {
	for key, value := range ids {
		if text, found := strings.CutPrefix(key, idAdjacency); found {
			if a, ok := parseAdjacency(text, value); ok {
				all = append(all, a)
			}
		}
	}
	return all
}

func parseAdjacency(address, value string) (netvirt.Adjacency, bool) {
	fields := strings.SplitN(value, " ", 4)
	if len(fields) != 4 {
		return netvirt.Adjacency{}, false
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netvirt.Adjacency{}, false
	}
	network, err := netip.ParsePrefix(fields[1])
	if err != nil {
		return netvirt.Adjacency{}, false
	}
	gateway, err := netip.ParseAddr(fields[2])
	return netvirt.Adjacency{Address: a, MAC: fields[0], Network: network, Gateway: gateway, ELAN: fields[3]}, err == nil
}
