// Package nb has Go structs for the tables and columns of OVN's northbound database that
// are in use. They are generated from ovn-nb.ovsschema: the schema of OVN 23.03, without
// the tables and columns that are not in use.
package nb

import (
	_ "embed" // the schema
	"encoding/json"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

//go:generate go test . -run TestGenerated -update

//go:embed ovn-nb.ovsschema
var schema []byte

// Schema returns the schema of the tables and columns in use.
func Schema() ovsdb.DatabaseSchema {
	var s ovsdb.DatabaseSchema
	if err := json.Unmarshal(schema, &s); err != nil {
		panic(err)
	}
	return s
}

// FullDatabaseModel returns the structs of all tables, for a client of libovsdb.
func FullDatabaseModel() (model.ClientDBModel, error) {
	return model.NewClientDBModel("OVN_Northbound", map[string]model.Model{
		ACLTable:                      &ACL{},
		AddressSetTable:               &AddressSet{},
		DHCPOptionsTable:              &DHCPOptions{},
		GatewayChassisTable:           &GatewayChassis{},
		LoadBalancerTable:             &LoadBalancer{},
		LoadBalancerGroupTable:        &LoadBalancerGroup{},
		LogicalRouterTable:            &LogicalRouter{},
		LogicalRouterPolicyTable:      &LogicalRouterPolicy{},
		LogicalRouterPortTable:        &LogicalRouterPort{},
		LogicalRouterStaticRouteTable: &LogicalRouterStaticRoute{},
		LogicalSwitchTable:            &LogicalSwitch{},
		LogicalSwitchPortTable:        &LogicalSwitchPort{},
		MeterTable:                    &Meter{},
		MeterBandTable:                &MeterBand{},
		NATTable:                      &NAT{},
		NBGlobalTable:                 &NBGlobal{},
		PortGroupTable:                &PortGroup{},
		StaticMACBindingTable:         &StaticMACBinding{},
	})
}
