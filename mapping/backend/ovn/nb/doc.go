// Package nb is the part of OVN's northbound database that is in use, as Go
// structs: the tables and columns of ovn-nb.ovsschema, which is the schema of
// OVN 23.03 without those that are not. Its other files are generated from it.
package nb

//go:generate go run github.com/ovn-kubernetes/libovsdb/cmd/modelgen -p nb -o . ovn-nb.ovsschema
