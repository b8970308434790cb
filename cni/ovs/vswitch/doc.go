// Package vswitch is the part of Open vSwitch's database that is in use, as Go
// structs: the tables and columns of vswitch.ovsschema, which is the schema of Open
// vSwitch 3.1 without those that are not. Its other files are generated from it.
package vswitch

//go:generate go run github.com/ovn-kubernetes/libovsdb/cmd/modelgen -p vswitch -o . vswitch.ovsschema
