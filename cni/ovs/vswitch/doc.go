// Package vswitch has Go types for the tables and columns of Open vSwitch's database that
// are in use. vswitch.ovsschema is the schema of Open vSwitch 3.1 without the rest; the
// other files are generated from it.
package vswitch

//go:generate go run github.com/ovn-kubernetes/libovsdb/cmd/modelgen -p vswitch -o . vswitch.ovsschema
