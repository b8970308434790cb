package codec

import (
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// Northbound holds the tables that the backend has rows in. Rows of various groups
// are members of the link columns.
var Northbound = ovsdb.NewDatabase(nb.Schema(), []ovsdb.TableType{
	{Name: nb.LogicalSwitchTable, Zero: nb.LogicalSwitch{}},
	{Name: nb.LogicalSwitchPortTable, Zero: nb.LogicalSwitchPort{}},
	{Name: nb.ACLTable, Zero: nb.ACL{}},
	{Name: nb.MeterTable, Zero: nb.Meter{}},
	{Name: nb.MeterBandTable, Zero: nb.MeterBand{}},
	{Name: nb.PortGroupTable, Zero: nb.PortGroup{}},
	{Name: nb.AddressSetTable, Zero: nb.AddressSet{}},
	{Name: nb.LogicalRouterTable, Zero: nb.LogicalRouter{}},
	{Name: nb.LogicalRouterPortTable, Zero: nb.LogicalRouterPort{}},
	{Name: nb.GatewayChassisTable, Zero: nb.GatewayChassis{}},
	{Name: nb.LogicalRouterStaticRouteTable, Zero: nb.LogicalRouterStaticRoute{}},
	{Name: nb.LogicalRouterPolicyTable, Zero: nb.LogicalRouterPolicy{}},
	{Name: nb.NATTable, Zero: nb.NAT{}},
	{Name: nb.LoadBalancerTable, Zero: nb.LoadBalancer{}},
	{Name: nb.LoadBalancerGroupTable, Zero: nb.LoadBalancerGroup{}},
	{Name: nb.DHCPOptionsTable, Zero: nb.DHCPOptions{}},
	{Name: nb.StaticMACBindingTable, Zero: nb.StaticMACBinding{}},
}, map[string][]string{
	nb.LogicalSwitchTable:     {"ports", "acls", "load_balancer"},
	nb.LogicalRouterTable:     {"ports", "static_routes", "policies", "nat", "load_balancer"},
	nb.LoadBalancerGroupTable: {"load_balancer"},
	nb.PortGroupTable:         {"ports", "acls"},
	nb.AddressSetTable:        {"addresses"},
})

// ReadOrder lists the tables in the order in which they are read. A table comes after
// the tables whose rows its rows are compared with and that its groups look up. The
// switch ports, the largest table, are decoded while the server works on the rest.
var ReadOrder = tablesOf(
	nb.LoadBalancerGroupTable, nb.StaticMACBindingTable, nb.LogicalRouterTable, nb.LogicalSwitchTable,
	nb.AddressSetTable, nb.PortGroupTable, nb.DHCPOptionsTable, nb.LogicalSwitchPortTable,
	nb.LogicalRouterPortTable, nb.GatewayChassisTable, nb.LogicalRouterStaticRouteTable, nb.LogicalRouterPolicyTable, nb.NATTable, nb.ACLTable, nb.MeterTable, nb.MeterBandTable,
	nb.LoadBalancerTable,
)

func tablesOf(names ...string) (all []*ovsdb.Table) {
	for _, name := range names {
		all = append(all, Northbound.Table(name))
	}
	return all
}
