package codec

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// defaultLease is the DHCP lease time of a subnet that has none, in seconds: without a
// lease time OVN answers no DHCP request.
const defaultLease = 3600

// roleTransit distinguishes a route on the transit from a route on the vpn's router.
const roleTransit = "transit"

func subnetKey(elan string, prefix netip.Prefix) netvirt.Key {
	return netvirt.Subnet{ELAN: elan, Prefix: prefix}.Key()
}

// gatewayPort returns the name of a subnet's router port.
func gatewayPort(elan string, prefix netip.Prefix) string {
	return "router:" + elan + "/" + prefix.String()
}

// gatewaySwitchPort returns the name of the switch port that connects gatewayPort.
func gatewaySwitchPort(elan string, prefix netip.Prefix) string {
	return "switch:" + elan + "/" + prefix.String()
}

// dhcpUUID returns the UUID of a subnet's DHCP options.
func (c Codec) dhcpUUID(elan string, prefix netip.Prefix) string {
	return c.UUID(nb.DHCPOptionsTable, subnetKey(elan, prefix), "")
}

func (c Codec) encodeSubnet(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	if o, ok := objects[k].(netvirt.Subnet); ok {
		c.arrangement().subnet(set, k, o, look)
	}
}

// subnet adds the subnet's gateway, which is a port of the vpn's router behind a
// port of the elan's switch; the DHCP options of its pods; and the transit's route to it.
// A subnet that holds only its gateway gets neither DHCP options nor a route.
func (c byELAN) subnet(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, look Lookup) {
	c.gateway(set, k, o, vpnKey(o.VPN), c.subnetIDs(k, o))
	if o.Prefix.IsSingleIP() {
		return
	}
	set.Add(c.dhcpOptions(k, o))
	if vpn, ok := lookVPN(look, o.VPN); ok {
		c.transitRoute(set, k, roleTransit, vpn, o.Prefix)
		c.wayOut(set, k, roleWayOut, vpn, o.ELAN, o.Prefix, look)
	}
}

// gateway adds the gateway of a subnet: a port of a router behind a port of the elan's switch.
func (c Codec) gateway(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, router netvirt.Key, ids map[string]string) {
	port := &nb.LogicalRouterPort{
		UUID: c.UUID(nb.LogicalRouterPortTable, k, ""), Name: gatewayPort(o.ELAN, o.Prefix), MAC: gatewayMAC(o.Gateway).String(),
		Networks: []string{netip.PrefixFrom(o.Gateway, o.Prefix.Bits()).String()}, ExternalIDs: ids,
	}
	if o.Gateway.Is6() && !o.Prefix.IsSingleIP() {
		port.Ipv6RaConfigs = raConfigs()
	}
	set.Add(port)
	set.Link(nb.LogicalRouterTable, c.routerUUID(router), "ports", port.UUID)
	c.switchPort(set, k, "", gatewaySwitchPort(o.ELAN, o.Prefix), port.Name, c.switchUUID(o.ELAN))
}

// raConfigs returns the router advertisements of a gateway: a host gets its address by DHCP and its gateway by router
// advertisement.
func raConfigs() map[string]string { return map[string]string{"address_mode": "dhcpv6_stateful"} }

// subnetIDs returns external_ids with all fields of a subnet.
func (c Codec) subnetIDs(k netvirt.Key, o netvirt.Subnet) map[string]string {
	return c.Mark(k, "", idELAN, o.ELAN, idVPN, o.VPN, idPrefix, o.Prefix.String(), idGateway, o.Gateway.String(),
		idDNS, string(o.DNS), idLease, strconv.FormatUint(uint64(o.LeaseTime), 10))
}

// dhcpOptions returns the DHCP options of the pods of a subnet.
func (c Codec) dhcpOptions(k netvirt.Key, o netvirt.Subnet) *nb.DHCPOptions {
	return &nb.DHCPOptions{
		UUID: c.dhcpUUID(o.ELAN, o.Prefix), Cidr: o.Prefix.String(), Options: dhcpOptions(o), ExternalIDs: c.Mark(k, ""),
	}
}

func dhcpOptions(o netvirt.Subnet) map[string]string {
	var dns []string
	for _, a := range o.DNS.All() {
		if a.Is4() == o.Gateway.Is4() {
			dns = append(dns, a.String())
		}
	}
	options := map[string]string{"server_id": gatewayMAC(o.Gateway).String()}
	if o.Gateway.Is4() {
		lease := cmp.Or(o.LeaseTime, defaultLease)
		options = map[string]string{
			"server_id": o.Gateway.String(), "server_mac": gatewayMAC(o.Gateway).String(), "router": o.Gateway.String(),
			"lease_time": strconv.FormatUint(uint64(lease), 10),
		}
	}
	if len(dns) > 0 {
		options["dns_server"] = "{" + strings.Join(dns, ", ") + "}"
	}
	return options
}

// decodeGatewayPort decodes the router port of a subnet in LayoutELAN. Other router ports hold no object.
func decodeGatewayPort(head netvirt.Key, port *nb.LogicalRouterPort) []netvirt.Object {
	if head.Kind != netvirt.KindSubnet || port.ExternalIDs[idELAN] == "" {
		return nil
	}
	return decodeSubnet(port.ExternalIDs)
}

// decodeSubnet decodes the external_ids of subnetIDs. A subnet with unreadable fields
// has no gateway.
func decodeSubnet(ids map[string]string) []netvirt.Object {
	prefix, _ := netip.ParsePrefix(ids[idPrefix])
	gateway, _ := netip.ParseAddr(ids[idGateway])
	dns, _ := netvirt.ParseAddrList(ids[idDNS])
	lease, _ := strconv.ParseUint(ids[idLease], 10, 32)
	return []netvirt.Object{netvirt.Subnet{
		ELAN: ids[idELAN], VPN: ids[idVPN], Prefix: prefix, Gateway: gateway, DNS: dns, LeaseTime: uint32(lease),
	}}
}
