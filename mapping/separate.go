package mapping

import (
	"fmt"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// With IsolationACLs, ACLs keep the pods of a namespace apart from everything but each other and their own node. All pods are
// isolated in both directions. A pod that no policy isolates in a direction is allowed the pods of its namespace. The peers
// of a rule are pods of the namespace alone, also if the rule has a block of addresses, or allows everyone.

// Separates reports whether ACLs keep namespaces apart.
func (s Settings) Separates() bool { return s.Isolation == IsolationACLs }

// OnSwitches returns how a backend keeps namespaces apart, given whether the pods of several namespaces share a switch.
func (i Isolation) OnSwitches(shared bool) Isolation {
	switch {
	case shared && i == IsolationNamespace:
		return IsolationACLs
	case !shared && i == IsolationACLs:
		return IsolationNamespace
	}
	return i
}

// withinACLName returns the name of the ACL of the pods of a namespace that no policy isolates in a direction.
func withinACLName(namespace string, d netvirt.Direction) string {
	return netvirt.NamePart(namespace) + ":within:" + string(d)
}

// ownGroup returns the group of all pods of a namespace.
func (c *policies) ownGroup(namespace string) *group {
	return c.newGroup(namespace, []coe.PolicyPeer{{}})
}

// seeOwnGroup makes the pods of a namespace members of its group.
func (n *namespacePolicies) seeOwnGroup(c *policies, namespace string) {
	if !c.separates {
		return
	}
	n.own = c.ownGroup(namespace)
	if c.groups[n.own.name] == nil {
		n.groups = append(n.groups, &membersGroup{group: n.own, selectors: []*coe.Selector{{}}})
	}
}

// within adds the ACLs for pods that no policy isolates, and notes that all pods are isolated.
func (b *builder) within(isolated map[netvirt.Direction]bool, log coe.PolicyLog) {
	if b.policies.own == nil {
		return
	}
	for _, d := range directions {
		isolated[d.acl] = true
		name := withinACLName(b.Namespace, d.acl)
		b.rest.Add(netvirt.ACL{Name: name, Namespace: b.Namespace, Logs: log == coe.LogAll})
		for _, f := range b.families.all() {
			b.rest.Add(netvirt.ACE{
				ACL: name, Namespace: b.Namespace, Name: fmt.Sprintf("%s:%s", d.acl, f), Direction: d.acl, Family: f, Remote: b.policies.own.name,
			})
		}
	}
}
