package codec

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// withPolicies returns an interface that is isolated for ingress, with a rule for a remote group, and
// the ID of the list with the rule.
func withPolicies() (m netvirt.Model, list string) {
	const name, mac = "shop:db", "0a:58:0a:0b:02:1c"
	m = netvirt.Model{}
	m.Add(
		netvirt.Interface{Name: name, Namespace: "shop", Pod: "db", PodUID: "u", UID: "u", ParentInterface: netvirt.PortName(name, "u")},
		netvirt.ELANInterface{Name: name, Namespace: "shop", ELAN: "192.168.33.12:shop"},
		netvirt.MACEntry{Interface: name, Namespace: "shop", MAC: mac, Address: netip.MustParseAddr("10.11.2.28")},
		netvirt.ACL{Name: "shop:isolated:ingress", Namespace: "shop", Isolates: netvirt.Ingress},
		netvirt.ACL{Name: "shop:pods:1", Namespace: "shop"},
		netvirt.ACE{
			ACL: "shop:pods:1", Namespace: "shop", Name: "ingress:db:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4,
			Remote: "peers:1", Ports: "sctp:7,tcp:80-90",
		},
		netvirt.RemoteGroup{Name: "peers:1", Prefixes: "10.0.0.0/8,fd00::/8"},
		netvirt.InterfaceACL{Interface: name, Namespace: "shop", SecurityGroups: "shop:isolated:ingress,shop:pods:1"},
	)
	return m, netvirtjson.GroupID(netvirt.ACL{Name: "shop:pods:1"}.Key())
}

// TestEntriesOfPolicies checks the entries of an isolated pod as they are sent to a controller.
func TestEntriesOfPolicies(t *testing.T) {
	m, list := withPolicies()
	mirror := encodeAll(t, Nested, m)
	require.Equal(t, m, mirror.Model())
	group := netvirtjson.GroupID(netvirt.RemoteGroup{Name: "peers:1"}.Key())
	isolating := netvirtjson.GroupID(netvirt.ACL{Name: "shop:isolated:ingress"}.Key())
	const record = `"matches":{"source-mac-address":"ff:ff:ff:ff:ff:ff"},"actions":{"permit":[null]},"aclservice:direction":"aclservice:direction-ingress"`
	const rest = `"actions":{"permit":[null]},"aclservice:direction":"aclservice:direction-ingress"`
	require.JSONEq(t, `{"acl-name":"`+list+`","acl-type":"ietf-access-control-list:ipv4-acl","access-list-entries":{"ace":[
		{"rule-name":"`+list+` ingress ipv4 tcp:80-90 10.0.0.0/8",`+rest+`,
			"matches":{"protocol":6,"destination-port-range":{"lower-port":80,"upper-port":90},"source-ipv4-network":"10.0.0.0/8"}},
		{"rule-name":"`+list+` ingress ipv4 tcp:80-90 `+group+`",`+rest+`,"aclservice:remote-group-id":"`+group+`",
			"matches":{"protocol":6,"destination-port-range":{"lower-port":80,"upper-port":90},"source-ipv4-network":"0.0.0.0/0"}},
		{"rule-name":"coe-bridge ace=ingress:db:0:ipv4 direction=ingress family=ipv4 remote=peers:1 ports=sctp:7%2Ctcp:80-90",`+record+`},
		{"rule-name":"coe-bridge acl=shop:pods:1 namespace=shop",`+record+`}]}}`,
		jsonOf(t, mirror.At(Unit{netvirt.KindACL, list})[AccessLists]))
	secured := mirror.At(Unit{netvirt.KindInterface, "shop:db"})[Interfaces].(*IETFInterface)
	require.True(t, *secured.Secured)
	require.ElementsMatch(t, []string{list, isolating, openID(netvirt.Egress)}, secured.Groups)
	require.Equal(t, []addressPair{{"0a:58:0a:0b:02:1c", "10.11.2.28"}}, secured.Pairs)
}

// TestLateACLOfNode: an interface has the list of its node's ACL only when the list exists, because aclservice does not look for it again.
func TestLateACLOfNode(t *testing.T) {
	m, list := withPolicies()
	node := netvirt.ACL{Name: netvirt.NodeACLName(netip.MustParseAddr("192.168.33.12"))}
	m.Add(netvirt.InterfaceACL{Interface: "shop:db", Namespace: "shop", SecurityGroups: netvirt.NewNameList("shop:isolated:ingress", "shop:pods:1", node.Name)})
	mirror := encodeAll(t, Nested, m)
	require.Equal(t, m, mirror.Model())
	unit, of := Unit{netvirt.KindInterface, "shop:db"}, netvirt.Model{}
	for k, o := range m {
		if UnitOf(o) == unit {
			of[k] = o
		}
	}
	groups := func() []string {
		content, err := mirror.Encode(unit, slices.Collect(maps.Values(of)), mirror.At(unit))
		require.NoError(t, err)
		return content[Interfaces].(*IETFInterface).Groups
	}
	others := []string{list, netvirtjson.GroupID(netvirt.ACL{Name: "shop:isolated:ingress"}.Key()), openID(netvirt.Egress)}
	require.ElementsMatch(t, others, groups())
	mirror.Learn(netvirt.Change{New: node})
	require.ElementsMatch(t, append(others, netvirtjson.GroupID(node.Key())), groups())
}

func jsonOf(t *testing.T, e Entry) string {
	t.Helper()
	text, err := json.Marshal(e)
	require.NoError(t, err)
	return string(text)
}

// TestKeepRules: a controller that deletes rules by a mark gets the rules of a former version with
// the mark, and those that it has not deleted yet are not read.
func TestKeepRules(t *testing.T) {
	there := newAccessList("id", rule{Name: "a"}, rule{Name: "b"}, rule{Name: "c", Deleted: true})
	for _, marks := range []bool{false, true} {
		there.marks = marks
		wanted := newAccessList("id", rule{Name: "b"}).Own()
		wanted.Keep(there)
		var want []rule
		if want = []rule{{Name: "b"}}; marks {
			want = append(want, rule{Name: "a", Deleted: true}, rule{Name: "c", Deleted: true})
		}
		require.Equal(t, want, wanted.(*accessList).Rules.Rule)
	}
	require.Equal(t, newAccessList("id", rule{Name: "a"}, rule{Name: "b"}), there.Own())
}
