package odl

import (
	"regexp"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Forms that names and values of ours have, and those of others do not: Neutron calls
// everything by a uuid.
var (
	distinguisherForm = regexp.MustCompile(`^100:[0-9]+$`)
	uuidForm          = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// hasInterfaceForm tells whether a name is two or three parts, none of them empty, with colons
// between them.
func hasInterfaceForm(name string) bool {
	colons := strings.Count(name, ":")
	return colons >= 1 && colons <= 2 && name[0] != ':' && name[len(name)-1] != ':' && !strings.Contains(name, "::")
}

// hashedSubnet tells whether a subnet_id is one of ours: a uuid of version 8, which is for
// whoever likes it.
func hashedSubnet(id string) bool { return len(id) == 36 && id[14] == '8' }

// isOurs tells whether the entries of a unit are ours (docs/decisions/0024).
func (c *codec) isOurs(u unit, have content) bool {
	switch u.kind {
	case netvirt.KindELANInstance:
		_, _, err := netvirt.ParseELANName(u.name)
		return err == nil && marked(have[elanInstances].(*elanInstance).Description)
	case netvirt.KindTransit, netvirt.KindVPNInstance:
		if e, ok := have[vpnInstances].(*vpnInstance); ok {
			return marked(e.Description)
		}
		return hasOurShape(have[vpnInstances])
	case netvirt.KindFloatingIP:
		return hasOurPorts(have[floatingIPs].(*routerPorts))
	}
	return hasInterfaceForm(u.name) && slices.ContainsFunc(have[:], carriesMark)
}

// mayBeOurs tells whether an entry can be ours, before the others of its unit are known.
func (c *codec) mayBeOurs(l int, e entry) bool {
	u := unitAt(l, e.key())
	if u.kind == netvirt.KindInterface {
		return hasInterfaceForm(u.name)
	}
	var have content
	have[l] = e
	return c.isOurs(u, have)
}

// carriesMark tells whether an entry of an interface says that it is ours.
func carriesMark(e entry) bool {
	switch e := e.(type) {
	case *ietfInterface:
		return marked(e.Description)
	case *elanInterface:
		return marked(e.Description)
	case *vpnInterface:
		return slices.ContainsFunc(e.Adjacencies, func(a adjacency) bool { return hashedSubnet(a.SubnetID) })
	}
	return false
}

// hasOurShape tells whether a vpn-instance could have been made by us: one route
// distinguisher of the kind that we give, no other routes but its own and the common ones,
// and no uuid for a name.
func hasOurShape(e entry) bool {
	var (
		distinguishers []string
		to             targets
	)
	switch e := e.(type) {
	case *vpnInstance:
		distinguishers, to = e.IPv4.RouteDistinguishers, e.IPv4.Targets
	case *flatVPNInstance:
		distinguishers, to = e.RouteDistinguishers, e.Targets
	}
	if len(distinguishers) != 1 || !distinguisherForm.MatchString(distinguishers[0]) || uuidForm.MatchString(e.key()) {
		return false
	}
	return !slices.ContainsFunc(to.Target, func(t target) bool {
		return t.Value != distinguishers[0] && t.Value != netvirt.CommonRouteTarget
	})
}

// hasOurPorts tells whether all ports of a router are interfaces of the namespace that the
// router is the vpn-instance of.
func hasOurPorts(e *routerPorts) bool {
	return len(e.Ports) > 0 && !slices.ContainsFunc(e.Ports, func(p routerPort) bool {
		namespace, _, _, _ := netvirt.ParseInterfaceName(p.Name)
		return !hasInterfaceForm(p.Name) || !netvirt.MayName(e.Router, namespace)
	})
}

// mayTake tells whether an entry that is there and not known as ours may be made ours,
// because it is wanted under that name: the names of elan-instances and interfaces are the
// specification's own, so one that nobody describes was made for the same pods by another
// hand, or lost its description.
func mayTake(e entry) bool {
	switch e := e.(type) {
	case *elanInstance:
		return e.Description == "" || marked(e.Description)
	case *vpnInstance:
		return marked(e.Description) || e.Description == "" && hasOurShape(e)
	case *flatVPNInstance:
		return hasOurShape(e)
	case *ietfInterface:
		return e.Description == "" || marked(e.Description)
	case *elanInterface:
		return e.Description == "" || marked(e.Description)
	case *routerPorts:
		return len(e.Ports) == 0 || hasOurPorts(e)
	}
	return true
}
