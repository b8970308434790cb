package plan

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// PolicyRows are the rows of OVN by which network policies apply to a pod. They are without the
// members of groups and sets.
type PolicyRows struct {
	// PortGroups have the pod's port as a member; sorted by name.
	PortGroups []PortGroup `json:"portGroups"`
	// Peers are the names of the Address_Sets in the ACLs of PortGroups. Memberships are the names
	// of those that have an address of the pod, for other pods' ACLs. Both are sorted.
	Peers       []string `json:"peers"`
	Memberships []string `json:"memberships"`
}

// PortGroup is a Port_Group with its ACLs.
type PortGroup struct {
	Name string      `json:"name"`
	UUID string      `json:"uuid"`
	ACLs []PolicyACL `json:"acls"` // sorted by direction, priority and role
}

// PolicyACL is an ACL of OVN.
type PolicyACL struct {
	UUID string `json:"uuid"`
	// Role says what the ACL is for: "ace" and the name of an ACE of the model, or "isolate",
	// "discovery", "hairpin" or "dhcp".
	Role      string `json:"role"`
	Direction string `json:"direction"`
	Priority  int    `json:"priority"`
	Action    string `json:"action"`
	Match     string `json:"match"`
	LogName   string `json:"logName,omitempty"` // if it is logged
}

// everywhere has all addresses.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// RowsOfPolicies computes the PolicyRows of a pod in a cluster whose pods have the addresses in their
// status. The problems say why the pod has no rows, if it has none.
func RowsOfPolicies(ctx context.Context, cluster *manifest.Set, settings mapping.Settings, namespace, name string) (*PolicyRows, []coe.Problem, error) {
	const layout = codec.LayoutELAN // it gives nodes no blocks of addresses
	settings.Limits = layout.Limits()
	n := newNetwork(Config{Mapping: settings, Layout: layout, Nodes: ranges.NodesConfig{Pods: everywhere}})
	s, err := n.put(ctx, &input{manifests: *cluster})
	if err != nil {
		return nil, nil, fmt.Errorf("list rows of policies: %w", err)
	}
	var problems []coe.Problem
	for _, p := range s.problems {
		if p.Kind == "pod" && p.Namespace == namespace && p.Name == name && p.Reason != coe.NotEnforced {
			problems = append(problems, p)
		}
	}
	return policyRows(s.rows, s.written.Joined(netvirt.InterfaceName(namespace, name, "", true))), problems, nil
}

// policyRows selects the rows of a pod, given the UUIDs of the groups and sets that it is a member of.
func policyRows(rows []preview.Row, joined []string) *PolicyRows {
	p := &PolicyRows{PortGroups: []PortGroup{}, Peers: []string{}, Memberships: []string{}}
	acls := map[string]PolicyACL{}
	for _, r := range rows {
		if r.Table == nb.ACLTable {
			acls[r.UUID] = policyACL(r)
		}
	}
	var matches strings.Builder
	for _, r := range rows {
		if r.Table != nb.PortGroupTable || !slices.Contains(joined, r.UUID) {
			continue
		}
		group := PortGroup{Name: r.Name, UUID: r.UUID, ACLs: []PolicyACL{}}
		uuids, _ := r.Columns["acls"].([]string)
		for _, uuid := range uuids {
			group.ACLs = append(group.ACLs, acls[uuid])
			matches.WriteString(acls[uuid].Match + "\n")
		}
		slices.SortFunc(group.ACLs, comparePolicyACLs)
		p.PortGroups = append(p.PortGroups, group)
	}
	for _, r := range rows {
		if r.Table != nb.AddressSetTable {
			continue
		}
		if strings.Contains(matches.String(), "$"+r.Name) {
			p.Peers = append(p.Peers, r.Name)
		}
		if slices.Contains(joined, r.UUID) {
			p.Memberships = append(p.Memberships, r.Name)
		}
	}
	return p
}

func policyACL(r preview.Row) PolicyACL {
	text := func(column string) string {
		value, _ := r.Columns[column].(string)
		return value
	}
	priority, _ := r.Columns["priority"].(int)
	return PolicyACL{
		UUID: r.UUID, Role: r.Role(), Direction: text("direction"), Priority: priority, Action: text("action"), Match: text("match"),
		LogName: text("name"),
	}
}

func comparePolicyACLs(a, b PolicyACL) int {
	return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Role, b.Role))
}
