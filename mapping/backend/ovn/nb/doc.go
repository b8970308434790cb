// Package nb has Go structs for the tables and columns of OVN's northbound database that
// are in use. They are generated from ovn-nb.ovsschema: the schema of OVN 23.03, without
// the tables and columns that are not in use.
package nb

//go:generate go run github.com/ovn-kubernetes/libovsdb/cmd/modelgen -p nb -o . ovn-nb.ovsschema
