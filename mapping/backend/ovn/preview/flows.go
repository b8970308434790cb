package preview

import (
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// The logical flows that ovn-northd 23.03 makes of rows, measured on clusters of up to 80 pods in both layouts. docs/mapping.md
// has the same table.
const (
	flowsAlways        = 118 // of the first switch and router
	flowsFirstACL      = 40  // of the first stateful ACL
	flowsFirstBalancer = 35
	flowsFirstDHCP     = 13
	flowsPort          = 4  // of a port of a pod or a node with one address
	flowsPortIPv6      = 3  // of each IPv6 address of a port
	flowsDHCP          = 4  // of a port with DHCP
	flowsDHCPv6        = 3  // of a port with DHCPv6
	flowsGateway       = 33 // of a router port and the port of the switch
	flowsBound         = 26 // the same, bound to a chassis
	flowsPeer          = 27 // of a router port to another router
	flowsACL           = 2
	flowsDrop          = 1 // of an ACL that drops
	flowsRoute         = 1 // of a route or a policy of a router
	flowsVIP           = 2
)

// LogicalFlows estimates the number of logical flows that ovn-northd makes of all rows of a database.
func LogicalFlows(rows []Row) int {
	c := flowCount{all: flowsAlways}
	for _, r := range rows {
		switch r.Table {
		case nb.LogicalSwitchPortTable:
			c.port(r)
		case nb.LogicalRouterPortTable:
			c.all += routerPortFlows(r)
		case nb.LogicalRouterStaticRouteTable, nb.LogicalRouterPolicyTable:
			c.all += flowsRoute
		case nb.ACLTable:
			c.acl(r)
		case nb.LoadBalancerTable:
			vips, _ := r.Columns["vips"].(map[string]string)
			c.all += len(vips) * flowsVIP
			c.first(&c.balancer, flowsFirstBalancer)
		}
	}
	return c.all
}

// flowCount counts logical flows.
type flowCount struct {
	all                      int
	stateful, balancer, dhcp bool // there is one
}

// first adds the flows of the first of some rows.
func (c *flowCount) first(is *bool, flows int) {
	if !*is {
		*is, c.all = true, c.all+flows
	}
}

func (c *flowCount) port(r Row) {
	if _, isOther := r.Columns["type"]; isOther {
		return // part of a router port
	}
	c.all += flowsPort
	addresses, _ := r.Columns["addresses"].([]string)
	for word := range strings.FieldsSeq(strings.Join(addresses, " ")) {
		if addr, err := netip.ParseAddr(word); err == nil && addr.Is6() {
			c.all += flowsPortIPv6
		}
	}
	for column, flows := range map[string]int{"dhcpv4_options": flowsDHCP, "dhcpv6_options": flowsDHCPv6} {
		if _, has := r.Columns[column]; has {
			c.all += flows
			c.first(&c.dhcp, flowsFirstDHCP)
		}
	}
}

func routerPortFlows(r Row) int {
	if _, isPeer := r.Columns["peer"]; isPeer {
		return flowsPeer
	}
	if _, isBound := r.Columns["gateway_chassis"]; isBound {
		return flowsBound
	}
	return flowsGateway
}

func (c *flowCount) acl(r Row) {
	switch r.Columns["action"] {
	case nb.ACLActionDrop:
		c.all += flowsDrop
	case nb.ACLActionAllowRelated:
		c.all += flowsACL
		c.first(&c.stateful, flowsFirstACL)
	default:
		c.all += flowsACL
	}
}
