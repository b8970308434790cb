package odl

import (
	"net/netip"
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
	mirror := encodeAll(t, nested, m)
	require.Equal(t, m, mirror.model())
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
		jsonOf(t, mirror.at(unit{netvirt.KindACL, list})[accessLists]))
	secured := mirror.at(unit{netvirt.KindInterface, "shop:db"})[interfaces].(*ietfInterface)
	require.True(t, *secured.Secured)
	require.ElementsMatch(t, []string{list, isolating, openID(netvirt.Egress)}, secured.Groups)
	require.Equal(t, []addressPair{{"0a:58:0a:0b:02:1c", "10.11.2.28"}}, secured.Pairs)
}

func jsonOf(t *testing.T, e entry) string {
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
		wanted := newAccessList("id", rule{Name: "b"}).own()
		wanted.keep(there)
		var want []rule
		if want = []rule{{Name: "b"}}; marks {
			want = append(want, rule{Name: "a", Deleted: true}, rule{Name: "c", Deleted: true})
		}
		require.Equal(t, want, wanted.(*accessList).Rules.Rule)
	}
	require.Equal(t, newAccessList("id", rule{Name: "a"}, rule{Name: "b"}), there.own())
}

// TestDamagedPolicies: what an external writer changes in lists, and in the leaves of aclservice, is
// restored.
func TestDamagedPolicies(t *testing.T) {
	want, list := withPolicies()
	for name, damage := range map[string]func(l *accessList, i *ietfInterface){
		"port security": func(_ *accessList, i *ietfInterface) { *i.Secured = false },
		"groups":        func(_ *accessList, i *ietfInterface) { i.Groups = i.Groups[1:] },
		"addresses":     func(_ *accessList, i *ietfInterface) { i.Pairs = nil },
		"one more rule": func(l *accessList, _ *ietfInterface) { l.Rules.Rule = append(l.Rules.Rule, rule{Name: "all"}) },
		"one less rule": func(l *accessList, _ *ietfInterface) { l.Rules.Rule = l.Rules.Rule[1:] },
		"direction":     func(l *accessList, _ *ietfInterface) { l.Rules.Rule[0].Direction = direction(netvirt.Egress) },
	} {
		t.Run(name, func(t *testing.T) {
			m := encodeAll(t, nested, want)
			damage(m.at(unit{netvirt.KindACL, list})[accessLists].(*accessList), m.at(unit{netvirt.KindInterface, "shop:db"})[interfaces].(*ietfInterface))
			have := m.model()
			require.NotEqual(t, want, have)
			w := &write{session: &session{lists: listsOf(nested)}, mirror: m, refused: map[netvirt.Key]bool{}}
			for _, list := range w.operations(netvirt.Diff(have, want)) {
				for _, o := range list {
					m.put(o.unit, o.list, o.entry)
				}
			}
			require.Equal(t, want, m.model())
		})
	}
}

// TestDependents: a change of a remote group changes the lists that name it, and a change of the
// direction in which an ACL isolates changes its members.
func TestDependents(t *testing.T) {
	want, list := withPolicies()
	m := encodeAll(t, nested, want)
	w := &write{session: &session{lists: listsOf(nested)}, mirror: m, refused: map[netvirt.Key]bool{}}
	changed := func(o netvirt.Object) (keys []string) {
		before := m.model()
		for l, operations := range w.operations([]netvirt.Change{{Old: before[o.Key()], New: o}}) {
			for _, op := range operations {
				m.put(op.unit, l, op.entry)
				if _, open := openDirection(op.key()); !open {
					keys = append(keys, op.key())
				}
			}
		}
		before.Add(o)
		require.Equal(t, before, m.model())
		return keys
	}
	group := netvirt.RemoteGroup{Name: "peers:1", Prefixes: "192.0.2.0/24"}
	require.ElementsMatch(t, []string{list, netvirtjson.GroupID(group.Key())}, changed(group))
	acl := netvirt.ACL{Name: "shop:isolated:ingress", Namespace: "shop", Isolates: netvirt.Egress}
	require.ElementsMatch(t, []string{"shop:db", netvirtjson.GroupID(acl.Key())}, changed(acl))
	require.Contains(t, m.at(unit{netvirt.KindInterface, "shop:db"})[interfaces].(*ietfInterface).Groups, openID(netvirt.Ingress))
}
