package yang

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is the schema of this package's modules and testdata/sample.yang.
func sample(t testing.TB) *Schema {
	t.Helper()
	sources, err := readSources()
	require.NoError(t, err)
	text, err := os.ReadFile("testdata/sample.yang")
	require.NoError(t, err)
	sources["sample.yang"] = string(text)
	schema, err := compile(sources)
	require.NoError(t, err)
	return schema
}

func load(t testing.TB) *Schema {
	t.Helper()
	schema, err := Load()
	require.NoError(t, err)
	return schema
}

// find returns the node at a path of names from a top-level node "module:name".
func find(t testing.TB, s *Schema, top string, names ...string) *Node {
	t.Helper()
	module, name := cutPrefix(top)
	require.NotNil(t, s.Module(module), module)
	node := s.Module(module).Child(name)
	for _, name := range names {
		require.NotNil(t, node, "above %s", name)
		node = node.Child("", name)
	}
	require.NotNil(t, node, "%s %v", top, names)
	return node
}

func childNames(nodes []*Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Module.Name+":"+n.Name)
	}
	return out
}

func TestLoadHasTheModulesOfUpstream(t *testing.T) {
	schema := load(t)
	var got [][4]string
	for _, m := range schema.Modules {
		got = append(got, [4]string{m.Name, m.Namespace, m.Prefix, m.Revision})
		require.Same(t, m, schema.Module(m.Name))
	}
	require.Subset(t, got, [][4]string{
		{"aclservice", "urn:opendaylight:netvirt:aclservice", "aclservice", "2016-06-08"},
		{"dhcp_allocation_pool", "urn:opendaylight:netvirt:dhcp_allocation_pool", "dhcp_allocation_pool", "2016-12-14"},
		{"elan", "urn:opendaylight:netvirt:elan", "elan", "2015-06-02"},
		{"iana-if-type", "urn:ietf:params:xml:ns:yang:iana-if-type", "ianaift", "2014-05-08"},
		{"ietf-access-control-list", "urn:ietf:params:xml:ns:yang:ietf-access-control-list", "acl", "2016-02-18"},
		{"ietf-interfaces", "urn:ietf:params:xml:ns:yang:ietf-interfaces", "if", "2014-05-08"},
		{"k8s", "urn:opendaylight:k8s", "k8s", "2018-12-05"},
		{"k8s-cluster", "urn:opendaylight:coe:northbound:k8s-cluster", "coe", "2018-11-27"},
		{"k8s-node", "urn:opendaylight:coe:northbound:k8s-node", "coe", "2017-08-29"},
		{"l3vpn", "urn:huawei:params:xml:ns:yang:l3vpn", "l3vpn", "2014-08-15"},
		{"odl-interface", "urn:opendaylight:genius:interfacemanager", "odlif", "2016-04-06"},
		{"odl-l3vpn", "urn:opendaylight:netvirt:l3vpn", "odl-l3vpn", "2013-09-11"},
		{"odl-nat", "urn:opendaylight:netvirt:natservice", "odl-nat", "2016-01-11"},
		{"pod", "urn:opendaylight:coe:northbound:pod", "coe", "2017-06-11"},
		{"service", "urn:opendaylight:coe:northbound:service", "coe", "2017-06-11"},
	})
	require.IsIncreasing(t, childNamesOf(schema.Modules))
	require.Nil(t, schema.Module("none"))
}

func childNamesOf(modules []*Module) []string {
	var out []string
	for _, m := range modules {
		out = append(out, m.Name)
	}
	return out
}

func TestLoadKeepsTheOrderOfTheFile(t *testing.T) {
	schema := sample(t)
	require.Equal(t, []string{
		"pod:uid", "pod:version", "pod:name", "pod:host-ip-address", "pod:cluster-id", "pod:network-NS",
		"pod:port-mac-address", "pod:interface", "coe-profiles:security-profiles",
	}, childNames(find(t, schema, "pod:coe", "pods").Children))
	require.Equal(t, []string{"sample:string", "sample:left", "sample:right", "sample:short"},
		childNames(find(t, schema, "sample:types").Children)[:4], "a grouping stands where it is used")
	require.Equal(t, []string{"sample:name", "sample:implied", "sample:optional", "sample:road", "sample:toll",
		"sample:rail", "sample:plane", "sample:balloon", "sample:airport", "sample:server", "sample:pair"},
		childNames(find(t, schema, "sample:wants").Children), "what is in a choice stands where the choice is")
	require.Equal(t, []string{
		"ietf-interfaces:name", "ietf-interfaces:description", "ietf-interfaces:type", "ietf-interfaces:enabled",
		"aclservice:port-security-enabled", "aclservice:security-groups", "aclservice:allowed-address-pairs",
		"coe-netvirt:remote-groups",
		"odl-interface:override-split-horizon-protection", "odl-interface:datapath-node-identifier",
		"odl-interface:parent-interface", "odl-interface:node-identifier", "odl-interface:vlan-id",
		"odl-interface:l2vlan-mode", "odl-interface:external", "sample:own", "sample:name-of-sample",
	}, childNames(find(t, schema, "ietf-interfaces:interfaces", "interface").Children), "augments stand last")
}

func TestLoadKindsKeysAndConfig(t *testing.T) {
	schema := load(t)
	pods := find(t, schema, "pod:coe", "pods")
	require.Equal(t, List, pods.Kind)
	require.Equal(t, []*Node{pods.Child("pod", "uid")}, pods.Keys)
	require.True(t, pods.Config)
	require.Equal(t, "The pods.", pods.Description)
	require.Same(t, find(t, schema, "pod:coe"), find(t, schema, "pod:coe", "pods", "interface", "uid").Top())
	require.Nil(t, pods.Child("service", "uid"))
	require.Nil(t, schema.Module("pod").Child("pods"))

	acl := find(t, schema, "ietf-access-control-list:access-lists", "acl")
	require.Equal(t, []string{"ietf-access-control-list:acl-type", "ietf-access-control-list:acl-name"}, childNames(acl.Keys))
	require.True(t, find(t, schema, "ietf-access-control-list:access-lists", "acl", "access-list-entries", "ace").OrderedByUser)

	require.False(t, find(t, schema, "coe-status:status").Config)
	require.False(t, find(t, schema, "coe-status:status", "scope", "name").Config, "inherited")
	require.False(t, find(t, schema, "dhcp_allocation_pool:dhcp_allocation_pool", "network", "allocations").Config)
	require.False(t, find(t, schema, "odl-nat:floating-ip-info", "router-ports", "ports", "internal-to-external-port-map", "label").Config)

	ports := find(t, schema, "service:service-information", "services", "service-ports")
	require.True(t, ports.Config, "unkeyed takes config false back")
	require.Empty(t, ports.Keys)
	require.True(t, ports.Child("", "port").Config)
	require.Equal(t, LeafList, find(t, schema, "service:service-information", "services", "endpoints").Kind)
}

func TestCompileRefusesUnsupported(t *testing.T) {
	header := `module m { yang-version 1.1; namespace "urn:m"; prefix m; `
	for name, test := range map[string]struct{ body, want string }{
		"must":        {`leaf a { type string; must "1"; }`, "must is not supported"},
		"feature":     {`feature f; leaf a { if-feature f; type string; }`, "if-feature is not supported"},
		"bits":        {`leaf a { type bits { bit one; } }`, "type bits is not supported"},
		"anydata":     {`anydata a;`, "AnyData is not supported"},
		"mixed union": {`leaf a { type union { type string; type uint8; } }`, "union with a member uint8"},
		"when of a leaf": {`container c { leaf b { type string; } leaf a { when "../b = 'x'"; type string; } }`,
			"supported only in augments"},
		"other when": {`container c { leaf b { type string; } } augment /c { when "count(b) = 1"; leaf a { type string; } }`,
			"want leaf = 'value'"},
		"subtraction":  {`leaf a { type string { pattern '[a-z-[aeiou]]'; } }`, "subtraction"},
		"name escapes": {`leaf a { type string { pattern '\i\c*'; } }`, `\i is not supported`},
		"bad key":      {`container c { list l { key b; leaf a { type string; } } }`, "no leaf b"},
		"syntax":       {`leaf a {`, "parse YANG module"},
		"unknown type": {`leaf a { type other; }`, "resolve YANG modules"},
		"bad leafref":  {`container c { leaf a { type leafref { path "../b"; } } }`, "does not name a leaf"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compile(map[string]string{"m.yang": header + test.body + "}"})
			require.ErrorContains(t, err, test.want)
		})
	}
}
