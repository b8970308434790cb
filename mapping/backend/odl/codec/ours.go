package codec

import (
	"regexp"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// Forms that distinguish our names and values from Neutron's, which names everything
// by a UUID.
var (
	distinguisherForm = regexp.MustCompile(`^100:[0-9]+$`)
	uuidForm          = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// hasInterfaceForm reports whether a name has two or three parts that are not empty,
// separated by colons.
func hasInterfaceForm(name string) bool {
	colons := strings.Count(name, ":")
	return colons >= 1 && colons <= 2 && name[0] != ':' && name[len(name)-1] != ':' && !strings.Contains(name, "::")
}

// hashedSubnet reports whether a subnet_id is ours: a UUID of version 8, the version for
// custom formats (RFC 9562, section 5.8).
func hashedSubnet(id string) bool { return len(id) == 36 && id[14] == '8' }

// isOurs reports whether the entries of a unit are ours (decision 24).
func (c *codec) isOurs(u Unit, have Content) bool {
	switch u.Kind {
	case netvirt.KindELANInstance:
		_, _, err := netvirt.ParseELANName(u.Name)
		return err == nil && marked(have[ELANInstances].(*ELANInstance).Description)
	case netvirt.KindNodeNetwork:
		return marked(have[ELANInstances].(*ELANInstance).Description)
	case netvirt.KindManagementPort, netvirt.KindNodePort:
		return slices.ContainsFunc(have[:], CarriesMark)
	case netvirt.KindTransit, netvirt.KindVPNInstance:
		if e, ok := have[VPNInstances].(*vpnInstance); ok {
			return marked(e.Description)
		}
		return hasOurShape(have[VPNInstances])
	case netvirt.KindACL:
		_, open := openDirection(u.Name)
		return open || listObject(have[AccessLists]) != nil
	case netvirt.KindFloatingIP:
		return hasOurPorts(have[floatingIPs].(*routerPorts))
	}
	return hasInterfaceForm(u.Name) && slices.ContainsFunc(have[:], CarriesMark)
}

// MayBeOurs reports whether an entry can be ours, before the other entries of its unit are
// known.
func (c *codec) MayBeOurs(l int, e Entry) bool {
	u := UnitAt(l, e.Key())
	if u.Kind == netvirt.KindInterface {
		return hasInterfaceForm(u.Name)
	}
	if OfNode(u.Kind) {
		return true
	}
	var have Content
	have[l] = e
	return c.isOurs(u, have)
}

// CarriesMark reports whether an entry of an interface has our mark.
func CarriesMark(e Entry) bool {
	switch e := e.(type) {
	case *IETFInterface:
		return marked(e.Description)
	case *ELANInterface:
		return marked(e.Description)
	case *VPNInterface:
		return slices.ContainsFunc(e.Adjacencies, func(a adjacency) bool { return hashedSubnet(a.SubnetID) })
	}
	return false
}

// hasOurShape reports whether a vpn-instance could be ours: it has one route distinguisher of
// our form, only its own and the common route target, and its name is not a UUID.
func hasOurShape(e Entry) bool {
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
	if len(distinguishers) != 1 || !distinguisherForm.MatchString(distinguishers[0]) || uuidForm.MatchString(e.Key()) {
		return false
	}
	return !slices.ContainsFunc(to.Target, func(t target) bool {
		return t.Value != distinguishers[0] && t.Value != netvirt.CommonRouteTarget
	})
}

// hasOurPorts reports whether all ports of a router are interfaces of the router's
// namespace.
func hasOurPorts(e *routerPorts) bool {
	return len(e.Ports) > 0 && !slices.ContainsFunc(e.Ports, func(p routerPort) bool {
		namespace, _, _, _ := netvirt.ParseInterfaceName(p.Name)
		return !hasInterfaceForm(p.Name) || !netvirt.MayName(e.Router, namespace)
	})
}

// MayTake reports whether a wanted entry that exists without our mark may become ours. The
// names of elan-instances and interfaces are defined by Netvirt COE Integration. So an entry
// with such a name and without a description was written for the same pod by an external
// writer, or has lost its description.
func MayTake(e Entry) bool {
	switch e := e.(type) {
	case *ELANInstance:
		return e.Description == "" || marked(e.Description)
	case *vpnInstance:
		return marked(e.Description) || e.Description == "" && hasOurShape(e)
	case *flatVPNInstance:
		return hasOurShape(e)
	case *IETFInterface:
		return e.Description == "" || marked(e.Description)
	case *ELANInterface:
		return e.Description == "" || marked(e.Description)
	case *accessList:
		return netvirtjson.IsGroupID(e.Name)
	case *routerPorts:
		return len(e.Ports) == 0 || hasOurPorts(e)
	}
	return true
}
