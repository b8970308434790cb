package netvirtjson_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/yang"
)

// policies has two ACLs of a namespace, remote groups, and their members.
var policies = []netvirt.Object{
	netvirt.ACL{Name: "shop.1", Namespace: "shop", Isolates: netvirt.Ingress, Logs: true},
	netvirt.ACL{Name: "shop.2", Namespace: "shop"},
	netvirt.ACE{ACL: "shop.2", Namespace: "shop", Name: "web 0", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: "r1",
		Ports: netvirt.NewPortList(netvirt.PortRange{Protocol: netvirt.TCP, First: 80, Last: 90}, netvirt.PortRange{Protocol: netvirt.SCTP})},
	netvirt.ACE{ACL: "shop.2", Namespace: "shop", Name: "web 1", Direction: netvirt.Egress, Family: netvirt.IPv6},
	netvirt.RemoteGroup{Name: "r1", Namespace: "shop", Prefixes: netvirt.NewPrefixList(netip.MustParsePrefix("10.0.0.0/8"))},
	netvirt.Interface{Name: "shop:a", Namespace: "shop", Pod: "a"},
	netvirt.Interface{Name: "shop:b", Namespace: "shop", Pod: "b"},
	netvirt.Interface{Name: "shop:c", Namespace: "shop", Pod: "c"},
	netvirt.InterfaceACL{Interface: "shop:a", Namespace: "shop", SecurityGroups: "shop.1,shop.2", RemoteGroups: "r1,r2"},
	netvirt.InterfaceACL{Interface: "shop:b", Namespace: "shop", RemoteGroups: "r1"},
}

func TestPolicies(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	acl1, acl2 := netvirtjson.GroupID(policies[0].Key()), netvirtjson.GroupID(policies[1].Key())
	r1, r2 := netvirtjson.GroupID(policies[4].Key()), netvirtjson.GroupID(netvirt.RemoteGroup{Name: "r2"}.Key())
	for top, want := range map[string]string{
		"ietf-access-control-list:access-lists": `{"acl": [
			{"acl-type": "ietf-access-control-list:ipv4-acl", "acl-name": "` + acl2 + `", "access-list-entries": {"ace": [
				{"rule-name": "web 0 sctp", "aclservice:direction": "aclservice:direction-ingress", "aclservice:remote-group-id": "` + r1 + `",
				 "matches": {"source-ipv4-network": "0.0.0.0/0", "protocol": 132}, "actions": {"permit": [null]}},
				{"rule-name": "web 0 tcp:80-90", "aclservice:direction": "aclservice:direction-ingress", "aclservice:remote-group-id": "` + r1 + `",
				 "matches": {"source-ipv4-network": "0.0.0.0/0", "protocol": 6, "destination-port-range": {"lower-port": 80, "upper-port": 90}},
				 "actions": {"permit": [null]}},
				{"rule-name": "web 1", "aclservice:direction": "aclservice:direction-egress",
				 "matches": {"destination-ipv6-network": "::/0"}, "actions": {"permit": [null]}}]}},
			{"acl-type": "ietf-access-control-list:ipv4-acl", "acl-name": "` + acl1 + `"}]}`,
		"coe-netvirt:security-groups": `{"security-group": [
			{"id": "` + acl2 + `", "name": "shop.2", "namespace": "shop"},
			{"id": "` + acl1 + `", "name": "shop.1", "namespace": "shop", "isolates": "ingress", "logs": true}]}`,
		"coe-netvirt:remote-groups": `{"remote-group": [{"id": "` + r1 + `", "name": "r1", "namespace": "shop", "prefixes": ["10.0.0.0/8"]}]}`,
		"ietf-interfaces:interfaces": `{"interface": [
			{"name": "shop:a", "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk",
			 "aclservice:port-security-enabled": true, "aclservice:security-groups": ["` + acl2 + `", "` + acl1 + `"],
			 "coe-netvirt:remote-groups": ["` + r1 + `", "` + r2 + `"]},
			{"name": "shop:b", "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk",
			 "aclservice:port-security-enabled": false, "coe-netvirt:remote-groups": ["` + r1 + `"]},
			{"name": "shop:c", "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk"}]}`,
	} {
		got, err := netvirtjson.Tree(top, func(yield func(netvirt.Object) bool) {
			for _, o := range policies {
				if !yield(o) {
					return
				}
			}
		})
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
		requireValid(t, schema, top, got)
	}
}

// requireValid requires that the content of a top container is valid in its YANG module.
func requireValid(t *testing.T, schema *yang.Schema, top string, content []byte) {
	t.Helper()
	document, err := json.Marshal(map[string]json.RawMessage{top: content})
	require.NoError(t, err)
	decoded, err := schema.DecodeJSON(document, nil, "", yang.Strict)
	require.NoError(t, err)
	for _, d := range decoded {
		require.NoError(t, schema.Validate(d, "", func(*yang.Node, string) bool { return true }))
	}
	var canonical bytes.Buffer
	yang.EncodeObject(&canonical, decoded[0])
	require.JSONEq(t, string(content), canonical.String(), "it is not canonical")
}

func TestGroupID(t *testing.T) {
	acl, group := netvirt.ACL{Name: "a"}.Key(), netvirt.RemoteGroup{Name: "a"}.Key()
	require.NotEqual(t, netvirtjson.GroupID(acl), netvirtjson.GroupID(group))
	require.True(t, netvirtjson.IsGroupID(netvirtjson.GroupID(acl)))
	for _, other := range []string{"", "deny all", "8f2a6d5e-0000-4000-8000-000000000001"} {
		require.False(t, netvirtjson.IsGroupID(other), other)
	}
}
