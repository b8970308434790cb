package replicas

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestUpgradeOfNodeACLs: an older bridge has written an ACL for each node and namespace (before decision 87). After each transaction of
// the newer one, isolated pods and their own node reach each other. Then the database has exactly the rows that the newer
// one writes to an empty one.
func TestUpgradeOfNodeACLs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs child processes: run without -short")
	}
	for name, c := range map[string]struct {
		args []string
		pod  object
	}{
		"security profile": {pod: object{"coe-profiles:security-profiles": []string{"web"}}},
		"isolation":        {args: []string{"--ovn-layout", "node", "--isolation", "namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upgradeNodeACLs(t, c.args, c.pod)
		})
	}
}

func upgradeNodeACLs(t *testing.T, args []string, settings object) {
	t.Helper()
	nb := ovsdb.Start(t)
	journal := nb.Journal(t)
	args = append(args, "--data-dir", t.TempDir(), "--backend", "ovn", "--ovn-nb", nb.Endpoint())
	older := startProgram(t, previousProgram(t), "the older bridge", args...)
	putPool(older, "10.42.0.0/16")
	for n, address := range nodes {
		older.change(http.MethodPut, "k8s-node:k8s-nodes-info/k8s-nodes/"+podUID(1000+n), object{
			"k8s-nodes": []object{{"uid": podUID(1000 + n), "host-name": fmt.Sprint("host", n), "internal-ip-address": address}},
		})
	}
	const list = "ietf-access-control-list:ipv4-acl"
	older.change(http.MethodPut, "ietf-access-control-list:access-lists/acl/"+list+"/web", object{"acl": []object{{
		"acl-type": list, "acl-name": "web", "access-list-entries": object{"ace": []object{{
			"rule-name": "none", "matches": object{"source-ipv4-network": "198.51.100.0/24"}, "actions": object{"permit": []any{nil}},
			"aclservice:direction": "aclservice:direction-ingress",
		}}},
	}}})
	for n := range 12 {
		body := podBody(n)
		pods, _ := body["pods"].([]object)
		maps.Copy(pods[0], settings)
		older.change(http.MethodPut, podPath(n), body)
	}
	older.awaitSync()
	require.Contains(t, nb.Dump(t, "Port_Group"), "ns_0.3anode.3a", "the older bridge has an ACL for each namespace")
	first, err := journal.Since()
	require.NoError(t, err)
	older.Stop()

	newer := startProgram(t, bridgetest.Program(t), "the newer bridge", args...)
	newer.awaitSync()
	all, err := journal.Since()
	require.NoError(t, err)
	require.Greater(t, len(all), len(first), "the newer bridge has written")
	rows := policyRows{}
	for n, transaction := range all {
		rows.apply(t, transaction)
		if n >= len(first)-1 {
			rows.requireNodes(t, fmt.Sprintf("after %d of %d transactions of the newer bridge: %s", n-len(first)+1, len(all)-len(first), transaction.Tables()))
		}
	}
	tables := []string{"Logical_Switch_Port", "Port_Group", "ACL", "Address_Set", "Logical_Switch", "Logical_Router", "Static_MAC_Binding"}
	upgraded := nb.Dump(t, tables...)
	require.NotContains(t, upgraded, "ns_0.3anode.3a")
	nb.Wipe(t)
	bridgetest.Await(t, interval, patience, "the rows are written again", func() error {
		if again := nb.Dump(t, tables...); again != upgraded {
			return fmt.Errorf("they are %s", again)
		}
		return nil
	})
}

// policyRows are the rows of tables that decide on policies, by UUID.
type policyRows map[string]map[string]*policyRow

// policyRow is a row of such a table, with the columns that decide.
type policyRow struct {
	Name, Match, Direction, Action string
	Ports, ACLs, Addresses         members
}

// members is a set. In a file of ovsdb-server, a changed set has the elements that come or go.
type members map[string]bool

func (m *members) UnmarshalJSON(text []byte) error {
	var set struct {
		kind string
		all  []json.RawMessage
	}
	pair := []any{&set.kind, &set.all}
	if json.Unmarshal(text, &pair) != nil || set.kind != "set" { // a single element
		set.all = []json.RawMessage{text}
	}
	if *m == nil {
		*m = members{}
	}
	for _, one := range set.all {
		if key := string(one); (*m)[key] {
			delete(*m, key)
		} else {
			(*m)[key] = true
		}
	}
	return nil
}

// apply makes a transaction.
func (all policyRows) apply(t *testing.T, transaction ovsdb.Record) {
	t.Helper()
	for _, table := range []string{"Logical_Switch_Port", "Port_Group", "ACL", "Address_Set"} {
		if all[table] == nil {
			all[table] = map[string]*policyRow{}
		}
		for uuid, change := range transaction[table] {
			if string(change) == "null" {
				delete(all[table], uuid)
				continue
			}
			if all[table][uuid] == nil {
				all[table][uuid] = &policyRow{}
			}
			require.NoError(t, json.Unmarshal(change, all[table][uuid]), "%s", change)
		}
	}
}

// requireNodes requires that each pod and its own node are allowed to reach each other.
func (all policyRows) requireNodes(t *testing.T, when string) {
	t.Helper()
	for n := range 12 {
		for _, direction := range []string{"to-lport", "from-lport"} {
			require.True(t, all.allows(podName(n), nodes[n%len(nodes)], direction), "%s of %s and its node, %s", direction, podName(n), when)
		}
	}
}

// allows reports whether an ACL of a group of a port allows an address.
func (all policyRows) allows(port, address, direction string) bool {
	for uuid, row := range all["Logical_Switch_Port"] {
		if row.Name != port {
			continue
		}
		for _, group := range all["Port_Group"] {
			if !group.Ports[reference(uuid)] {
				continue
			}
			for uuid, acl := range all["ACL"] {
				if group.ACLs[reference(uuid)] && acl.Direction == direction && acl.Action == "allow-related" && all.names(acl.Match, address) {
					return true
				}
			}
		}
	}
	return false
}

// names reports whether a match names an address set that has an address.
func (all policyRows) names(match, address string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(all["Address_Set"])), func(set *policyRow) bool {
		return strings.HasSuffix(match, "$"+set.Name) && set.Addresses[fmt.Sprintf("%q", address+"/32")]
	})
}

func reference(uuid string) string { return fmt.Sprintf(`["uuid",%q]`, uuid) }
