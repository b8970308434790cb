package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// The names of ACLs, ACEs and RemoteGroups. Their parts have no colon, except an address at the
// end, so different parts give different names.
//
//	shop:pods:HASH                  ACL of the pods that a selector selects
//	shop:pods:HASH:tcp:8080:http    ACL of its pods that have a named port
//	shop:isolated:ingress           ACL that isolates
//	:node:192.168.33.12             ACL for what isolated pods and their own node may do
//	ingress:web:0:ipv4              ACE of rule 0 of policy web
//	egress:web:0:ipv4:tcp:8080:http the same, for one number of a named port
//	peers:HASH                      RemoteGroup of the peers of a rule
//	peers:HASH:tcp:8080:http        the pods of peers:HASH that have a named port
//	peers:HASH:tcp:8080:http:ipv4   the same, for one family
//	shop:peers:HASH                 RemoteGroup of one namespace, if namespaces are isolated or a policy
//	                                exceeds coe.MaxOtherNumbers
//	node:192.168.33.12              RemoteGroup of the addresses of a node
//	egress:NAME                     RemoteGroup of the pods of an EgressIP; it keeps its name if the selectors
//	                                change, so that a pod that stays selected stays a member

// aclName returns the name of the ACL of the pods of a namespace that a selector selects.
func aclName(namespace, selector string, port *coe.ContainerPort) string {
	return netvirt.NamePart(namespace) + ":pods:" + digest(selector) + portSuffix(port)
}

func egressGroupName(name string) string { return "egress:" + name }

// aceName returns the name of the ACE of an entry for a family.
func (e *entry) aceName(f netvirt.Family) string {
	return fmt.Sprintf("%s:%s:%d:%s%s", e.direction, e.policy, e.rule, f, e.suffix)
}

// portSuffix returns the end of a name that is about a named port; empty if port is nil.
func portSuffix(port *coe.ContainerPort) string {
	if port == nil {
		return ""
	}
	return fmt.Sprintf(":%s:%d:%s", port.Protocol, port.Port, netvirt.NamePart(port.Name))
}

// groupName returns the name of a group without a port: a hash of its content. Equal peers of
// several rules have one group.
func groupName(g *group) string {
	var lines []string
	for _, p := range g.peers {
		where := fmt.Sprintf("in %q", p.own)
		if p.namespaces != nil {
			where = "where " + canonical(p.namespaces)
		}
		lines = append(lines, where+" pods "+canonical(p.pods))
	}
	if g.prefixes != nil {
		for _, p := range g.prefixes.Prefixes() {
			lines = append(lines, p.String())
		}
	}
	slices.Sort(lines)
	name := "peers:" + digest(strings.Join(slices.Compact(lines), "\n"))
	if g.namespace != "" {
		name = netvirt.NamePart(g.namespace) + ":" + name
	}
	return name
}

// canonical returns a text that is equal for selectors that differ only in order and repetition.
func canonical(s *coe.Selector) string {
	texts := make([]string, len(s.Requirements))
	for i, r := range s.Requirements {
		values := slices.Compact(slices.Sorted(slices.Values(r.Values)))
		texts[i] = fmt.Sprintf("%q %s %q", r.Key, r.Operator, values)
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), " and ")
}

// policyNames returns the names of policies in names of ACEs. A UID is part of the name if
// another policy of the namespace has the same name, as clients of RESTCONF can do.
func policyNames(all []*coe.PolicySpec) map[*coe.PolicySpec]string {
	type name struct{ namespace, name string }
	count := map[name]int{}
	for _, p := range all {
		count[name{p.Namespace, p.Name}]++
	}
	names := make(map[*coe.PolicySpec]string, len(all))
	for _, p := range all {
		names[p] = netvirt.NamePart(p.Name)
		if count[name{p.Namespace, p.Name}] > 1 {
			names[p] += "~" + netvirt.NamePart(p.UID)
		}
	}
	return names
}

// digest returns 128 bits of a hash.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
