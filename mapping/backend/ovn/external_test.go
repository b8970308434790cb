package ovn_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// addExternal adds external rows to each table that the backend uses.
func addExternal(t *testing.T, server *ovsdb.Server) {
	t.Helper()
	server.NBCtl(t, externalRows()...)
}

// externalRows returns the commands of addExternal.
func externalRows() []string {
	return []string{
		"ls-add", "default:pod-1", "--", "lsp-add", "default:pod-1", "external", "--", "lsp-set-addresses", "external", "0a:00:00:00:00:01 10.1.0.2",
		"--", "lr-add", "default", "--", "lrp-add", "default", "external", "0a:00:00:00:00:02", "10.1.0.1/24",
		"--", "lr-route-add", "default", "10.9.0.0/16", "10.1.0.9",
		"--", "lb-add", "web", "10.96.0.1:80", "10.1.0.2:80", "--", "ls-lb-add", "default:pod-1", "web",
		"--", "dhcp-options-create", "10.1.0.0/24", "--", "static-mac-binding-add", "external", "10.1.0.7", "0a:00:00:00:00:07",
		"--", "create", "Load_Balancer_Group", "name=coe-bridge", "--", "pg-add", "external", "external",
		"--", "acl-add", "external", "to-lport", "1001", "ip4", "drop", "--", "create", "Address_Set", "name=external", "addresses=10.1.0.2", "--", "set", "NB_Global", ".", "external_ids:someone=else",
		// An external row with a copy of our marks, and a row with another owner's mark.
		"--", "set", "Logical_Switch", "default:pod-1", `external_ids:"coe-bridge/owner"=coe-bridge`,
		`external_ids:"coe-bridge/kind"=elan-instance`, `external_ids:"coe-bridge/name"=x`,
		"--", "set", "Logical_Router", "default", `external_ids:"coe-bridge/owner"=another`,
	}
}

// TestExternalRows: after many writes and deletions of the backend, external rows are the
// same, byte for byte.
func TestExternalRows(t *testing.T) {
	server := ovsdb.Start(t)
	addExternal(t, server)
	before := server.Dump(t, append(tables, "NB_Global")...)

	b := open(t, server)
	other := open(t, server, func(c *ovn.Config) { c.Owner = "another" })
	w := backendtest.NewWorld(5)
	for range 20 {
		w.Step()
		write(t, b, w.ModelFor(b))
	}
	has, err := other.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, has, "an owner does not read the rows of another owner")
	write(t, b, netvirt.Model{})
	require.Equal(t, before, server.Dump(t, append(tables, "NB_Global")...))
}

// TestTwoOwners: two backends with different owners can use one database, unless they
// write the same names.
func TestTwoOwners(t *testing.T) {
	server := ovsdb.Start(t)
	one, two := open(t, server), open(t, server, func(c *ovn.Config) { c.Owner = "two" })
	model := someModel(one)
	write(t, one, model)
	err := two.Write(t.Context(), netvirt.Diff(netvirt.Model{}, model))
	require.ErrorIs(t, err, netvirt.ErrRejected)
	write(t, two, netvirt.Model{})
	write(t, one, model)
}

// TestBlockedName: if an external port has the name of a pod's port, the error names it,
// and only that pod is rejected.
func TestBlockedName(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	want := someModel(b)
	var blocked netvirt.Interface
	for _, k := range want.Keys() {
		if i, ok := want[k].(netvirt.Interface); ok {
			blocked = i
			break
		}
	}
	server.NBCtl(t, "ls-add", "external", "--", "lsp-add", "external", blocked.Name)

	err := b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want))
	var rejected *netvirt.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.ErrorContains(t, err, blocked.Name)
	require.ErrorContains(t, err, strings.TrimSpace(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch_Port", fmt.Sprintf("name=%q", blocked.Name))))
	require.Contains(t, rejected.Keys, blocked.Key())
	for _, k := range rejected.Keys {
		o, ok := want[k].(interface{ Scope() netvirt.Scope })
		require.True(t, ok)
		require.Equal(t, netvirt.Scope(blocked.Namespace), o.Scope())
		delete(want, k)
	}
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	backendtest.Agree(t, want, have)

	server.NBCtl(t, "lsp-del", blocked.Name)
	write(t, b, someModel(b))
}

// TestBlockedPolicy: if an external port group has the name of an ACL's, a new pod that must join the ACL
// gets no port, and an existing pod keeps its port as it is. Others are not affected.
func TestBlockedPolicy(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	acl, port := netvirt.ACL{Name: "a:isolated:ingress"}.Key(), netvirt.Interface{Name: livePods[aBlock].iface()}.Key()
	isolated := withGateways(loggedModel(false, false))
	for name, before := range map[string]netvirt.Model{"new pod": {}, "existing pod": withGateways(liveModel(false))} {
		t.Run(name, func(t *testing.T) {
			write(t, b, before)
			server.NBCtl(t, "pg-add", "coe_bridge..a.3aisolated.3aingress")
			have, err := b.Read(t.Context())
			require.NoError(t, err)
			err = b.Write(t.Context(), netvirt.Diff(have, isolated))
			var rejected *netvirt.RejectedError
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, []netvirt.Key{acl}, rejected.Keys)
			have, err = b.Read(t.Context())
			require.NoError(t, err)
			for k, o := range isolated {
				switch {
				case k == acl || k.Kind == netvirt.KindInterfaceACL:
					require.NotContains(t, have, k)
				case k == port:
					require.Equal(t, before[k], have[k])
				case k.Kind == netvirt.KindInterface:
					require.Equal(t, o, have[k])
				}
			}
			server.NBCtl(t, "pg-del", "coe_bridge..a.3aisolated.3aingress")
			write(t, b, isolated)
			write(t, b, netvirt.Model{})
		})
	}
}

// TestBlockedAddressSet: if an external address set has the name of a remote group's, rules with the group have
// no row, so that the external addresses have no effect. The other rules are not affected.
func TestBlockedAddressSet(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	group := netvirt.RemoteGroup{Name: "peers:1"}
	all := withGateways(loggedModel(false, false))
	all.Add(group, netvirt.ACE{
		ACL: "a:pods", Namespace: "a", Name: "ingress:db:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: group.Name,
	})
	rules := func() string { return server.NBCtl(t, "--bare", "--columns=match", "find", "ACL", "priority=1001") }
	const name, match = "coe_bridge..peers.3a1..ip4", "ip4.src == $coe_bridge..peers.3a1..ip4"
	server.NBCtl(t, "create", "Address_Set", "name="+name, "addresses=10.1.0.9")
	var rejected *netvirt.RejectedError
	require.ErrorAs(t, b.Write(t.Context(), netvirt.Diff(nil, all)), &rejected)
	require.Equal(t, []netvirt.Key{group.Key()}, rejected.Keys)
	require.NotContains(t, rules(), match)
	require.Contains(t, rules(), "tcp.dst == {8080}")
	without := maps.Clone(all)
	delete(without, group.Key())
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	backendtest.Agree(t, without, have)

	server.NBCtl(t, "destroy", "Address_Set", name)
	write(t, b, all)
	require.Contains(t, rules(), match)
	write(t, b, without)
	require.NotContains(t, rules(), match)
}

// TestDamage: every change that an external writer makes to a row of ours is found by
// Read and repaired by writing the difference, even if the object is not wanted.
func TestDamage(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) { testDamage(t, layout) })
	}
}

func testDamage(t *testing.T, layout ovn.Layout) {
	server := ovsdb.Start(t)
	b := open(t, server, func(c *ovn.Config) { c.Layout = layout })
	want := someModel(b)
	write(t, b, want)
	whole := server.Dump(t, tables...)

	first := func(table string) string {
		all := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "list", table))
		require.NotEmpty(t, all, table)
		return all[0]
	}
	pod := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch_Port", `type=""`))[0]
	acl := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "ACL", "priority=998"))[0]
	logged := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "ACL", "log=true"))[0]
	group := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Port_Group", "ports!=[]", "acls!=[]"))[0]
	gateway := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Router", "nat!=[]"))[0]
	dhcp := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "DHCP_Options", "options!={}"))[0]
	elan := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch", "load_balancer_group!=[]"))[0]
	marks := []string{
		"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route", "Logical_Router_Policy", "NAT", "ACL",
		"Port_Group", "Address_Set", "Load_Balancer", "DHCP_Options", "Meter", "Meter_Band",
	}
	damages := map[string][]string{
		"addresses":           {"lsp-set-addresses", pod, "0a:00:00:00:00:01 1.2.3.4"},
		"port security":       {"clear", "Logical_Switch_Port", pod, "port_security"},
		"options":             {"set", "Logical_Switch_Port", pod, "options:iface-id-ver=x"},
		"port gone":           {"lsp-del", pod},
		"pod's mark":          {"set", "Logical_Switch_Port", pod, `external_ids:"coe-bridge/pod"=x`},
		"adjacency":           {"set", "Logical_Switch_Port", pod, `external_ids:"coe-bridge/adjacency/1.2.3.4"=x`},
		"switch's groups":     {"clear", "Logical_Switch", elan, "load_balancer_group"},
		"switch's identifier": {"set", "Logical_Switch", first("Logical_Switch"), `external_ids:"coe-bridge/segmentation-id"=x`},
		"switch gone":         {"ls-del", first("Logical_Switch")},
		"router's name":       {"set", "Logical_Router", first("Logical_Router"), "name=x"},
		"router gone":         {"lr-del", first("Logical_Router")},
		"all routes gone":     {"lr-route-del", first("Logical_Router")},
		"router port's MAC":   {"set", "Logical_Router_Port", first("Logical_Router_Port"), `mac="0a:00:00:00:00:99"`},
		"router port gone":    {"lrp-del", first("Logical_Router_Port")},
		"route":               {"set", "Logical_Router_Static_Route", first("Logical_Router_Static_Route"), "nexthop=1.2.3.4"},
		"policy":              {"set", "Logical_Router_Policy", first("Logical_Router_Policy"), "priority=7"},
		"policy's next hop":   {"set", "Logical_Router_Policy", first("Logical_Router_Policy"), "nexthops=1.2.3.4"},
		"policies gone":       {"clear", "Logical_Router", "transit:" + netvirt.CommonRouteTarget, "policies"},
		"gateway's chassis":   {"set", "Logical_Router", gateway, "options:chassis=x"},
		"translation":         {"set", "NAT", first("NAT"), "external_ip=1.2.3.4"},
		"translations gone":   {"lr-nat-del", gateway},
		"DHCP options":        {"clear", "DHCP_Options", dhcp, "options"},
		"DHCP options gone":   {"dhcp-options-del", first("DHCP_Options")},
		"VIPs":                {"clear", "Load_Balancer", first("Load_Balancer"), "vips"},
		"balancer's options":  {"set", "Load_Balancer", first("Load_Balancer"), "options:reject=false"},
		"balancer gone":       {"lb-del", first("Load_Balancer")},
		"group's members":     {"clear", "Load_Balancer_Group", first("Load_Balancer_Group"), "load_balancer"},
		"MAC binding":         {"set", "Static_MAC_Binding", first("Static_MAC_Binding"), `mac="0a:00:00:00:00:99"`},
		"MAC binding gone":    {"destroy", "Static_MAC_Binding", first("Static_MAC_Binding")},
		"port's type":         {"lsp-set-type", pod, "localnet"},
		"ACL":                 {"set", "ACL", acl, "action=allow"},
		"ACL's priority":      {"set", "ACL", acl, "priority=7"},
		"ACL's options":       {"set", "ACL", acl, "options:x=y"},
		"ACL's log":           {"clear", "ACL", logged, "name", "meter", "severity"},
		"meter's band":        {"set", "Meter_Band", first("Meter_Band"), "rate=1"},
		"meter gone":          {"destroy", "Meter", first("Meter")},
		"port group's log":    {"set", "Port_Group", group, `external_ids:"coe-bridge/logs"=x`},
		"ACLs gone":           {"clear", "Port_Group", group, "acls"},
		"ports gone":          {"clear", "Port_Group", group, "ports"},
		"port group's name":   {"set", "Port_Group", group, "name=x"},
		"port group's ACE":    {"set", "Port_Group", group, `external_ids:"coe-bridge/ace/x"="ingress ipv4  tcp:80"`},
		"port group gone":     {"pg-del", group},
		"all port groups":     {"--all", "destroy", "Port_Group"},
		"addresses gone":      {"clear", "Address_Set", first("Address_Set"), "addresses"},
		"another address":     {"add", "Address_Set", first("Address_Set"), "addresses", "10.77.0.1"},
		"another prefix":      {"add", "Address_Set", first("Address_Set"), "addresses", "10.77.0.0/16"},
		"set's prefixes":      {"set", "Address_Set", first("Address_Set"), `external_ids:"coe-bridge/prefixes"="10.0.0.0/8"`},
		"set's namespace":     {"set", "Address_Set", first("Address_Set"), `external_ids:"coe-bridge/namespace"=x`},
		"address set's name":  {"set", "Address_Set", first("Address_Set"), "name=x"},
		"address set gone":    {"destroy", "Address_Set", first("Address_Set")},
		"all address sets":    {"--all", "destroy", "Address_Set"},
	}
	for _, table := range marks {
		damages["marks of "+table] = []string{"clear", table, first(table), "external_ids"}
		damages["owner of "+table] = []string{"remove", table, first(table), "external_ids", `"coe-bridge/owner"`}
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			server.NBCtl(t, damage...)
			require.NotEqual(t, whole, server.Dump(t, tables...), "the command changes nothing")
			have, err := b.Read(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, want, have, "the damage is not found")
			require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
			require.Equal(t, whole, server.Dump(t, tables...), "the damage is not repaired")
		})
	}

	// Damaged rows that are not wanted are deleted.
	server.NBCtl(t, "lsp-set-addresses", pod, "unknown", "--", "clear", "Load_Balancer", first("Load_Balancer"), "vips")
	write(t, b, netvirt.Model{})
	for _, table := range tables {
		require.Empty(t, strings.TrimSpace(server.NBCtl(t, "--bare", "list", table)), table)
	}
}

// TestFormerGroups: in a database from before decision 90, elan-instances and vpn-instances of the layout node are Port_Groups. Only these
// objects differ from the wanted ones, so the interfaces of their pods stay confirmed. Further pods can be written before the groups are replaced.
func TestFormerGroups(t *testing.T) {
	server, fresh := ovsdb.Start(t), ovsdb.Start(t)
	b := open(t, server)
	w := backendtest.NewWorld(7)
	w.AddPods(10)
	first := w.ModelFor(b)
	write(t, b, first)
	replaced := 0
	rows, err := nbrows.Read(t.Context(), server.Endpoint(), "DHCP_Options")
	require.NoError(t, err)
	for _, row := range rows {
		ids := idsOf(row)
		if ids["coe-bridge/kind"] == "subnet" {
			continue
		}
		replaced++
		former := uuid.NewSHA1(uuid.MustParse("5d3b2f0e-6f0c-5a2e-9b6e-0c0eb41d9e00"), []byte(strings.Join(
			[]string{"coe-bridge", "Port_Group", ids["coe-bridge/kind"], ids["coe-bridge/name"], ""}, "\x00")))
		gone := map[string]any{"op": "delete", "table": "DHCP_Options", "where": []any{[]any{"_uuid", "==", row["_uuid"]}}}
		_, err := nbrows.Transact(t.Context(), server.Endpoint(), gone, nbrows.Insert("Port_Group", map[string]any{
			"_uuid": []any{"uuid", former.String()}, "name": fmt.Sprint("former", replaced), "external_ids": row["external_ids"],
		}))
		require.NoError(t, err)
	}
	require.Greater(t, replaced, 2)

	requireOutdated(t, b, first, map[netvirt.Kind]bool{netvirt.KindELANInstance: true, netvirt.KindVPNInstance: true}, replaced)
	requireRenewed(t, server, fresh, b, w)
}

// TestRowsWithAllPairs: in a database from before decision 94, ports, and in the layout node elan-instances and subnets, have all pairs in external_ids. The
// heads differ from the wanted ones, in fields that do not confirm a pod. Further pods can be written before the rows are written again.
func TestRowsWithAllPairs(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			with := func(c *ovn.Config) { c.Layout = layout }
			server, fresh := ovsdb.Start(t), ovsdb.Start(t)
			b := open(t, server, with)
			w := backendtest.NewWorld(7)
			w.AddPods(10)
			first := w.ModelFor(b)
			write(t, b, first)
			written := server.Dump(t, tables...)
			added := addAllPairs(t, server.Endpoint(), first)
			require.NotEqual(t, written, server.Dump(t, tables...))
			requireOutdated(t, b, first, map[netvirt.Kind]bool{netvirt.KindInterface: true, netvirt.KindELANInstance: true, netvirt.KindSubnet: true}, added)
			requireRenewed(t, server, fresh, b, w, with)
		})
	}
}

// requireOutdated requires that a number of objects of some kinds differ from the wanted ones, and nothing else, and that interfaces still confirm
// their pods.
func requireOutdated(t *testing.T, b *ovn.Backend, want netvirt.Model, kinds map[netvirt.Kind]bool, number int) {
	t.Helper()
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	changes := netvirt.Diff(have, want)
	require.Len(t, changes, number)
	for _, c := range changes {
		require.True(t, kinds[c.Key().Kind], "%s", c.Key())
		require.NotNil(t, c.Old, "%s", c.Key())
		if old, is := c.Old.(netvirt.Interface); is {
			old.ParentInterface = netvirt.PortName(old.Name, old.PodUID)
			require.Equal(t, c.New, old)
		}
	}
}

// requireRenewed requires that a backend writes further pods to a server with rows of an earlier release, and then has the same rows as a fresh
// server.
func requireRenewed(t *testing.T, server, fresh *ovsdb.Server, b *ovn.Backend, w *backendtest.World, with ...func(*ovn.Config)) {
	t.Helper()
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	w.AddPods(10)
	want := w.ModelFor(b)
	changes := netvirt.Diff(have, want)
	require.NoError(t, b.Write(t.Context(), slices.DeleteFunc(slices.Clone(changes), func(c netvirt.Change) bool { return c.Old != nil })))
	write(t, b, want)
	write(t, open(t, fresh, with...), want)
	require.Equal(t, fresh.Dump(t, tables...), server.Dump(t, tables...))
}

// addAllPairs adds the pairs of external_ids that rows had until decision 94, and returns how many rows lacked some.
func addAllPairs(t *testing.T, endpoint string, m netvirt.Model) (added int) {
	t.Helper()
	for _, table := range []string{"Logical_Switch_Port", "DHCP_Options"} {
		rows, err := nbrows.Read(t.Context(), endpoint, table)
		require.NoError(t, err)
		for _, row := range rows {
			ids := idsOf(row)
			kind := ids["coe-bridge/kind"]
			if (table == "Logical_Switch_Port") != (kind == "interface") || kind == "subnet" && ids["coe-bridge/vpn"] == "" {
				continue // a row that holds no object
			}
			var pairs []any
			for key, value := range allPairs(m, kind, ids["coe-bridge/name"]) {
				if value != "" && ids["coe-bridge/"+key] == "" {
					pairs = append(pairs, []any{"coe-bridge/" + key, value})
				}
			}
			if len(pairs) == 0 {
				continue
			}
			added++
			_, err := nbrows.Transact(t.Context(), endpoint, map[string]any{
				"op": "mutate", "table": table, "where": []any{[]any{"_uuid", "==", row["_uuid"]}},
				"mutations": []any{[]any{"external_ids", "insert", []any{"map", pairs}}},
			})
			require.NoError(t, err)
		}
	}
	return added
}

// allPairs returns the external_ids that the row of a head had until decision 94, without what their keys begin with.
func allPairs(m netvirt.Model, kind, name string) map[string]string {
	all := map[string]string{}
	for k, o := range m {
		switch o := o.(type) {
		case netvirt.Interface:
			if kind == k.Kind.String() && name == k.Name {
				all["pod"], all["pod-uid"], all["interface-uid"], all["parent-interface"] = o.Pod, o.PodUID, o.UID, o.ParentInterface
			}
		case netvirt.ELANInterface:
			if kind == "interface" && name == o.Name {
				all["elan"], all["chassis"] = o.ELAN, o.Chassis
			}
		case netvirt.VPNInterface:
			if kind == "interface" && name == o.Name {
				all["vpn"] = o.VPN
			}
		case netvirt.MACEntry:
			if kind == "interface" && name == o.Interface {
				all["static-mac-entry/"+o.Address.String()] = o.MAC
			}
		case netvirt.ELANInstance:
			if kind == k.Kind.String() && name == k.Name {
				all["segment-type"] = string(o.SegmentType)
			}
		case netvirt.Subnet:
			if kind == k.Kind.String() && name == k.Name {
				all["elan"], all["prefix"], all["gateway"], all["lease-time"] = o.ELAN, o.Prefix.String(), o.Gateway.String(), fmt.Sprint(o.LeaseTime)
			}
		}
	}
	return all
}

// idsOf returns the external_ids of a row that was read.
func idsOf(row map[string]any) map[string]string {
	ids := map[string]string{}
	for _, pair := range row["external_ids"].([]any)[1].([]any) {
		ids[pair.([]any)[0].(string)] = pair.([]any)[1].(string)
	}
	return ids
}

// TestDamageWaits: a write of creations only does not repair a damaged group, so that
// the network of a running pod does not change.
func TestDamageWaits(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	want := someModel(b)
	write(t, b, want)
	pod := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch_Port", `type=""`))[0]
	server.NBCtl(t, "set", "Logical_Switch_Port", pod, "options:external=true")
	before := server.Dump(t, tables...)

	have, err := b.Read(t.Context())
	require.NoError(t, err)
	var creations []netvirt.Change
	for _, c := range netvirt.Diff(have, want) {
		if c.Old == nil {
			creations = append(creations, c)
		}
	}
	require.NotEmpty(t, creations)
	require.NoError(t, b.Write(t.Context(), creations))
	require.Equal(t, before, server.Dump(t, tables...))
	write(t, b, want)
	require.NotContains(t, server.Dump(t, tables...), "options:external")
}

// TestMarksLost: the port of a pod that has lost its marks is found, also if the pod is gone meanwhile. An external port on
// the same switch stays.
func TestMarksLost(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			server := ovsdb.Start(t)
			configure := func(c *ovn.Config) { c.Layout = layout }
			b := open(t, server, configure)
			w := backendtest.NewWorld(7)
			w.AddPods(10)
			want := w.ModelFor(b)
			write(t, b, want)
			ports := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch_Port", `external_ids:"coe-bridge/kind"=interface`))
			onSwitch := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "list", "Logical_Switch"))[0]
			server.NBCtl(t, "lsp-add", onSwitch, "external", "--", "clear", "Logical_Switch_Port", ports[0], "external_ids",
				"--", "remove", "Logical_Switch_Port", ports[1], "external_ids", "coe-bridge/owner")

			w.Clear()
			later := open(t, server, configure)
			have, err := later.Read(t.Context())
			require.NoError(t, err)
			require.NoError(t, later.Write(t.Context(), netvirt.Diff(have, want)))
			require.Contains(t, server.NBCtl(t, "--bare", "--columns=name", "list", "Logical_Switch_Port"), "external")

			server.NBCtl(t, "clear", "Logical_Switch_Port", ports[0], "external_ids", "--", "remove", "Logical_Switch_Port", ports[1], "external_ids", "coe-bridge/owner")
			write(t, open(t, server, configure), w.ModelFor(b))
			left := server.NBCtl(t, "--bare", "--columns=_uuid", "list", "Logical_Switch_Port")
			for _, port := range ports {
				require.NotContains(t, left, port)
			}
		})
	}
}

// TestRouterLost: the router of a vpn-instance has lost its marks, or is gone, so that nothing says of which namespace it is.
// One reading repairs it.
func TestRouterLost(t *testing.T) {
	for _, damage := range []string{"clear Logical_Router %s external_ids", "lr-del %s"} {
		t.Run(damage, func(t *testing.T) {
			server := ovsdb.Start(t)
			c := start(t, open(t, server, byELAN), 7, reconcile.Config{})
			for range 10 {
				c.step()
			}
			want := rowsOf(t, c.model(), ovsdb.Schema("ovn/ovn-nb"), ovn.LayoutELAN)
			has := func() bool { return c.loop.Status().InSync && server.Dump(t, tables...) == want }
			require.Eventually(t, has, patience.Patience, 10*time.Millisecond)
			routers := strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "find", "Logical_Router", `external_ids:"coe-bridge/kind"=vpn-instance`))
			require.NotEmpty(t, routers)
			for _, router := range routers {
				server.NBCtl(t, strings.Fields(fmt.Sprintf(damage, router))...)
			}
			server.Restart(t)
			require.Eventually(t, has, patience.Patience, 10*time.Millisecond)
		})
	}
}

// TestLeftBinding: an external writer deletes the port of a pod with an address of no pool, and the pod goes too. Its MAC binding
// is replaced by that of the next pod with this address, and goes with the gateway. One of an external writer stays.
func TestLeftBinding(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			server := ovsdb.Start(t)
			configure := func(c *ovn.Config) { c.Layout = layout }
			bindings := func() string {
				return strings.TrimSpace(server.NBCtl(t, "--bare", "--columns=ip,mac", "list", "Static_MAC_Binding"))
			}
			none, first, second := model(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}), withHost("first", "0a:58:ac:10:00:05"), withHost("second", "0a:58:ac:10:00:06")
			if layout == ovn.LayoutNode {
				first, second = withGateways(first), withGateways(second)
			}
			left := func() *ovn.Backend {
				write(t, open(t, server, configure), first)
				server.NBCtl(t, "lsp-del", "a:first")
				return open(t, server, configure)
			}
			b := left()
			write(t, b, second)
			require.Equal(t, "172.16.0.5\n0a:58:ac:10:00:06", bindings())
			write(t, b, none)
			require.Empty(t, bindings())

			b = left()
			write(t, b, none)
			require.Empty(t, bindings())

			b = left()
			at := strings.TrimSpace(server.NBCtl(t, "--bare", "--columns=logical_port", "list", "Static_MAC_Binding"))
			server.NBCtl(t, "static-mac-binding-add", at, "172.16.0.9", "0a:00:00:00:00:09")
			write(t, b, none)
			require.Equal(t, "172.16.0.9\n0a:00:00:00:00:09", bindings())
		})
	}
}

// TestBindingOfDamagedPod: the port of a pod with an address of no pool has lost its marks. The MAC binding is read as the pod's: its
// repair deletes nothing.
func TestBindingOfDamagedPod(t *testing.T) {
	server := ovsdb.Start(t)
	want := withGateways(withHost("first", "0a:58:ac:10:00:05"))
	write(t, open(t, server), want)
	server.NBCtl(t, "clear", "Logical_Switch_Port", "a:first", "external_ids")
	have, err := open(t, server).Read(t.Context())
	require.NoError(t, err)
	changes := netvirt.Diff(have, want)
	require.NotEmpty(t, changes)
	for _, c := range changes {
		require.NotNil(t, c.New, "%s", c.Key())
	}
	write(t, open(t, server), want)
}

// TestBindingOfNoPod: an external writer deletes the port of a pod with an address of no pool, and perhaps all else that says whose the
// MAC binding is, and the pod goes. The binding goes too, and its router port stays if it is wanted. Another owner leaves it alone.
func TestBindingOfNoPod(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		for _, damage := range []string{"", "clear Logical_Router %s static_routes policies", "lr-del %s"} {
			t.Run(fmt.Sprint(layout, damage), func(t *testing.T) {
				server := ovsdb.Start(t)
				configure := func(c *ovn.Config) { c.Layout = layout }
				list := func(table string) []string {
					return strings.Fields(server.NBCtl(t, "--bare", "--columns=_uuid", "list", table))
				}
				with := withHost("first", "0a:58:ac:10:00:05")
				if layout == ovn.LayoutNode {
					with = withGateways(with)
				}
				without := maps.Clone(with)
				for k := range with {
					if k.Name == "a:first" || strings.HasPrefix(k.Name, "a:first ") {
						delete(without, k)
					}
				}
				for _, want := range []netvirt.Model{with, without, model(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})} {
					write(t, open(t, server, configure), with)
					require.Len(t, list("Static_MAC_Binding"), 1)
					server.NBCtl(t, "lsp-del", "a:first")
					for _, router := range list("Logical_Router") {
						if damage != "" {
							server.NBCtl(t, strings.Fields(fmt.Sprintf(damage, router))...)
						}
					}
					if damage != "lr-del %s" { // the router still tells whose the binding is
						write(t, open(t, server, configure, func(c *ovn.Config) { c.Owner = "two" }), netvirt.Model{})
						require.Len(t, list("Static_MAC_Binding"), 1)
					}
					write(t, open(t, server, configure), want)
					fresh := ovsdb.Start(t)
					write(t, open(t, fresh, configure), want)
					require.Equal(t, fresh.Dump(t, tables...), server.Dump(t, tables...))
				}
			})
		}
	}
}

// withHost returns the model of a pod with an address of no pool.
func withHost(pod, mac string) netvirt.Model {
	node, gateway, address := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("169.254.1.1/32"), netip.MustParseAddr("172.16.0.5")
	elan, name := netvirt.ELANName(node, "a"), "a:"+pod
	return model(
		netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget},
		netvirt.Node{Address: node, HostName: "node1"},
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.VPNInstance{Name: "a", Namespace: "a", RouteDistinguisher: "100:2", Transit: netvirt.CommonRouteTarget},
		netvirt.Subnet{ELAN: elan, VPN: "a", Prefix: gateway, Gateway: gateway.Addr()},
		netvirt.Interface{Name: name, Namespace: "a", Pod: pod, PodUID: pod, UID: pod, ParentInterface: netvirt.PortName(name, pod)},
		netvirt.ELANInterface{Name: name, Namespace: "a", ELAN: elan},
		netvirt.VPNInterface{Name: name, Namespace: "a", VPN: "a"},
		netvirt.MACEntry{Interface: name, Namespace: "a", MAC: mac, Address: address},
		netvirt.Adjacency{Interface: name, Namespace: "a", Address: address, MAC: mac, ELAN: elan, Network: gateway, Gateway: gateway.Addr()},
	)
}
