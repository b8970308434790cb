// Package vswitch has Go types for the tables and columns of Open vSwitch's database that
// are in use. vswitch.ovsschema is the schema of Open vSwitch 3.1 without the rest; the
// other files are generated from it.
package vswitch

import "github.com/ovn-kubernetes/libovsdb/model"

//go:generate go test . -run TestGenerated -update

// FullDatabaseModel returns the types of all tables, for a client of libovsdb.
func FullDatabaseModel() (model.ClientDBModel, error) {
	return model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		BridgeTable:      &Bridge{},
		ControllerTable:  &Controller{},
		InterfaceTable:   &Interface{},
		ManagerTable:     &Manager{},
		OpenvSwitchTable: &OpenvSwitch{},
		PortTable:        &Port{},
	})
}
