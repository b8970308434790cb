package acl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// tables are the tables of these rows.
var tables = ovsdb.NewDatabase(nb.Schema(), []ovsdb.TableType{
	{Name: nb.ACLTable, Zero: nb.ACL{}}, {Name: nb.MeterTable, Zero: nb.Meter{}}, {Name: nb.MeterBandTable, Zero: nb.MeterBand{}},
	{Name: nb.PortGroupTable, Zero: nb.PortGroup{}}, {Name: nb.AddressSetTable, Zero: nb.AddressSet{}},
}, map[string][]string{nb.PortGroupTable: {"ports", "acls"}, nb.AddressSetTable: {"addresses"}})

// encode returns the rows of the ACLs and the remote groups of a model.
func encode(m netvirt.Model) *ovsdb.RowSet {
	groups := map[netvirt.Key]netvirt.Model{}
	for _, o := range m {
		k := identity.HeadOf(o)
		if groups[k] == nil {
			groups[k] = netvirt.Model{}
		}
		groups[k].Add(o)
	}
	set := tables.NewRowSet()
	for k, objects := range groups {
		Encode("owner", set, k, objects, func(k netvirt.Key) netvirt.Object { return m[k] })
		EncodeRemoteGroup("owner", set, k, objects)
	}
	return set
}

// TestMatchNames: names in matches are valid, and different names stay different.
func TestMatchNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a-b", "a_b", "a.b", "a:b", "a/b", "a.2db", "a..b", "a", "1a", "-1a", "A-b", "a--b", "ü"} {
		m := netvirt.Model{}
		m.Add(netvirt.ACL{Name: name, Namespace: "a"})
		row := encode(m).Rows[0].Value.(*nb.PortGroup)
		require.Regexp(t, `^[A-Za-z_.][A-Za-z0-9_.]*$`, row.Name)
		require.Empty(t, seen[row.Name], name)
		seen[row.Name] = name
	}
	require.Equal(t, "a-b", seen["owner..a_b"])
}

// TestACLRows: policies are encoded to these matches.
func TestACLRows(t *testing.T) {
	m := netvirt.Model{}
	m.Add(
		netvirt.ACL{Name: "web:in", Namespace: "web", Isolates: netvirt.Ingress},
		netvirt.ACL{Name: "web:out", Namespace: "web", Isolates: netvirt.Egress, Withholds: "tcp:30000-32767,udp:30000-32767"},
		netvirt.ACL{Name: "web:node", Namespace: "web", Yields: true},
		netvirt.ACE{ACL: "web:node", Namespace: "web", Name: "egress", Direction: netvirt.Egress, Family: netvirt.IPv4, Remote: "node"},
		netvirt.RemoteGroup{Name: "peers"}, netvirt.RemoteGroup{Name: "node"},
		netvirt.ACE{
			ACL: "web:in", Namespace: "web", Name: "ingress-1", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: "peers",
			Ports: "sctp,tcp:80,tcp:443,udp:50-60",
		},
		netvirt.ACE{ACL: "web:in", Namespace: "web", Name: "ingress-2", Direction: netvirt.Ingress, Family: netvirt.IPv6},
		netvirt.ACE{ACL: "web:out", Namespace: "web", Name: "egress-1", Direction: netvirt.Egress, Family: netvirt.IPv6, Remote: "peers"},
	)
	var have []string
	set := encode(m)
	for _, r := range set.Rows {
		if acl, ok := r.Value.(*nb.ACL); ok {
			have = append(have, fmt.Sprintf("%s %d %s %s %s", acl.Direction, acl.Priority, acl.Action, acl.Match, acl.Options["apply-after-lb"]))
		}
	}
	require.ElementsMatch(t, []string{
		"to-lport 998 drop outport == @owner..web.3ain && ip ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && (nd || nd_rs || nd_ra) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && (ip4.src == 169.254.169.5 || ip6.src == fd69::5) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && ip4 && ip4.src == $owner..peers..ip4" +
			" && (50 <= udp.dst <= 60 || sctp || tcp.dst == {80, 443}) ",
		"to-lport 1001 allow-related outport == @owner..web.3ain && ip6 ",
		"from-lport 998 drop inport == @owner..web.3aout && ip true",
		"from-lport 999 allow-related inport == @owner..web.3anode && ip4 && ip4.dst == $owner..node..ip4 true",
		"from-lport 1000 drop inport == @owner..web.3aout && ip && (30000 <= tcp.dst <= 32767 || 30000 <= udp.dst <= 32767) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && (nd || nd_rs || nd_ra) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && ((ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67) || " +
			"(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547)) true",
		"from-lport 1001 allow-related inport == @owner..web.3aout && ip6 && ip6.dst == $owner..peers..ip6 true",
	}, have)
	require.Len(t, set.Links, len(have))
}

// TestLogRows: an ACL that logs has these columns, and others have none of them. ACLs of a namespace with one
// direction and verdict share a meter.
func TestLogRows(t *testing.T) {
	long := strings.Repeat("n", 60)
	m := netvirt.Model{}
	m.Add(
		netvirt.ACL{Name: "web:isolated:ingress", Namespace: "web", Isolates: netvirt.Ingress, Logs: true},
		netvirt.ACL{Name: "web:isolated:egress", Namespace: "web", Isolates: netvirt.Egress},
		netvirt.ACL{Name: "web:pods", Namespace: "web", Logs: true},
		netvirt.ACL{Name: "long", Namespace: long, Logs: true},
		netvirt.ACL{Name: long + ":isolated:egress", Namespace: long, Isolates: netvirt.Egress, Logs: true},
		netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: "ingress:web:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: `a"\ é`, Direction: netvirt.Ingress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "long", Namespace: long, Name: "egress:1", Direction: netvirt.Egress, Family: netvirt.IPv4},
		netvirt.ACE{ACL: "long", Namespace: long, Name: "egress:2", Direction: netvirt.Egress, Family: netvirt.IPv4},
	)
	var (
		have   []string
		limits = map[string]string{} // by name of the meter
		bands  = map[string]*nb.MeterBand{}
	)
	rows := encode(m).Rows
	for _, r := range rows {
		switch o := r.Value.(type) {
		case *nb.Meter:
			require.Len(t, o.Bands, 1)
			limits[o.Name] = o.Bands[0]
			require.Equal(t, nb.MeterUnitPktps, o.Unit)
		case *nb.MeterBand:
			bands[o.UUID] = o
		}
	}
	require.Len(t, limits, 4)
	used := map[string][]string{}
	for _, r := range rows {
		acl, ok := r.Value.(*nb.ACL)
		switch {
		case !ok:
		case acl.Log:
			have = append(have, *acl.Severity+" "+*acl.Name)
			require.LessOrEqual(t, len(*acl.Name), 63)
			require.Equal(t, 100, bands[limits[*acl.Meter]].Rate)
			used[*acl.Meter] = append(used[*acl.Meter], *acl.Severity+" "+acl.Direction)
		default:
			require.True(t, acl.Name == nil && acl.Severity == nil && acl.Meter == nil)
		}
	}
	require.ElementsMatch(t, []string{
		"warning web:isolated:ingress", "info web:ingress:web:0:ipv4", "info web:a____",
		"info " + long[:54] + "~273c4fbe", "info " + long[:54] + "~e793b83e", "warning " + long[:54] + "~8ad55cde",
	}, have)
	require.Equal(t, map[string][]string{
		"owner..web.3aisolated.3aingress.3adrop":          {"warning to-lport"},
		"owner..web.3aisolated.3aingress.3aallow":         {"info to-lport", "info to-lport"},
		"owner.." + long + ".3aisolated.3aegress.3adrop":  {"warning from-lport"},
		"owner.." + long + ".3aisolated.3aegress.3aallow": {"info from-lport", "info from-lport"},
	}, used)
}
