package codec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// The names of rules. A record holds an object of the model and matches no packet:
//
//	coe-bridge acl=shop:pods:HASH namespace=shop isolates=ingress
//	coe-bridge ace=ingress:web:0:ipv4 direction=ingress family=ipv4 remote=peers:HASH ports=tcp:80
//	coe-bridge remote-group=peers:HASH prefixes=10.0.0.0/8,192.0.2.7/32
//
// All other rules permit what their name says. The ID of the list is a part of the name, because
// the names must differ on an interface:
//
//	ID ingress ipv4 tcp:80 10.0.0.0/8
const noMAC = "ff:ff:ff:ff:ff:ff" // the source of no packet

// record returns a record of a list.
func record(words ...word) rule {
	return rule{Name: describe(words...), Matches: matches{SourceMAC: noMAC}, Actions: permit, Direction: direction(netvirt.Ingress)}
}

func direction(d netvirt.Direction) string { return "aclservice:direction-" + string(d) }

// optional returns a word, or none if the value is empty.
func optional(name, value string) []word {
	if value == "" {
		return nil
	}
	return []word{{name, value}}
}

// encodeAccessList returns the list of an ACL with its ACEs, or of a RemoteGroup.
func (c *codec) encodeAccessList(u Unit, objects []netvirt.Object) Entry {
	if d, open := openDirection(u.Name); open {
		return openList(d)
	}
	if o, ok := head[netvirt.RemoteGroup](objects); ok {
		words := append([]word{{"remote-group", o.Name}}, optional("namespace", o.Namespace)...)
		return newAccessList(u.Name, record(append(words, optional("prefixes", string(o.Prefixes))...)...))
	}
	o, ok := head[netvirt.ACL](objects)
	if !ok {
		return nil
	}
	words := append([]word{{"acl", o.Name}}, optional("namespace", o.Namespace)...)
	words = append(words, optional("isolates", string(o.Isolates))...)
	words = append(words, optional("withholds", string(o.Withholds))...) // only nodes that are joined have such ports
	if o.Yields {
		words = append(words, word{"yields", "true"})
	}
	if o.Logs {
		words = append(words, word{"logs", "true"})
	}
	all := []rule{record(words...)}
	for _, object := range objects {
		if ace, ok := object.(netvirt.ACE); ok {
			words := []word{{"ace", ace.Name}, {"direction", string(ace.Direction)}, {"family", string(ace.Family)}}
			words = append(append(words, optional("remote", ace.Remote)...), optional("ports", string(ace.Ports))...)
			all = append(append(all, record(words...)), c.permits(u.Name, ace)...)
		}
	}
	return newAccessList(u.Name, all...)
}

// newAccessList returns a list with rules. Several ACEs may permit the same.
func newAccessList(id string, all ...rule) *accessList {
	e := &accessList{Name: id, Type: accessListType, Rules: rules{all}}
	e.Normalize()
	e.Rules.Rule = slices.CompactFunc(e.Rules.Rule, func(a, b rule) bool { return a.Name == b.Name })
	return e
}

// permits returns the rules that permit what an ACE allows: one for each of its ports, and for the
// members and each prefix of its RemoteGroup. Netvirt cannot match ports of SCTP.
func (c *codec) permits(id string, o netvirt.ACE) (all []rule) {
	ports := o.Ports.All()
	if len(ports) == 0 {
		ports = []netvirt.PortRange{{}}
	}
	for _, p := range ports {
		if p.Protocol == netvirt.SCTP && p.Last != 0 {
			continue
		}
		if o.Remote == "" {
			all = append(all, permitRule(id, o, p, everyone(o.Family), ""))
			continue
		}
		group, found := c.groups[o.Remote]
		if !found {
			continue
		}
		all = append(all, permitRule(id, o, p, everyone(o.Family), netvirtjson.GroupID(group.Key())))
		for _, prefix := range group.Prefixes.All() {
			if prefix.Addr().Is4() == (o.Family == netvirt.IPv4) {
				all = append(all, permitRule(id, o, p, prefix, ""))
			}
		}
	}
	return all
}

func everyone(f netvirt.Family) netip.Prefix {
	if f == netvirt.IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

var protocols = map[netvirt.Protocol]uint8{netvirt.TCP: 6, netvirt.UDP: 17, netvirt.SCTP: 132}

// permitRule returns the rule that permits some ports to or from a prefix; if a group is given, to
// or from its members.
func permitRule(id string, o netvirt.ACE, p netvirt.PortRange, remote netip.Prefix, group string) rule {
	r := rule{Actions: permit, Direction: direction(o.Direction), RemoteGroup: group}
	r.Matches.Protocol = protocols[p.Protocol]
	if p.Last != 0 {
		r.Matches.Ports = &portRange{p.First, p.Last}
	}
	prefix := remote.String()
	switch {
	case o.Family == netvirt.IPv4 && o.Direction == netvirt.Ingress:
		r.Matches.SourceV4 = prefix
	case o.Family == netvirt.IPv4:
		r.Matches.DestinationV4 = prefix
	case o.Direction == netvirt.Ingress:
		r.Matches.SourceV6 = prefix
	default:
		r.Matches.DestinationV6 = prefix
	}
	if group != "" {
		prefix = group
	}
	r.Name = fmt.Sprintf("%s %s %s %s %s", id, o.Direction, o.Family, cmp.Or(p.String(), "all"), prefix)
	return r
}

// Netvirt denies both directions of an interface with port security. So there are two lists that
// are not in the model and permit everything in one direction. An interface that is isolated in
// the other direction only has one of them.
func openID(d netvirt.Direction) string { return openIDs[d] }

var openIDs = map[netvirt.Direction]string{
	netvirt.Ingress: netvirtjson.GroupID(openKey(netvirt.Ingress)), netvirt.Egress: netvirtjson.GroupID(openKey(netvirt.Egress)),
}

// openKey returns the key by which operations refer to such a list. No object has it.
func openKey(d netvirt.Direction) netvirt.Key { return netvirt.ACL{Name: "open:" + string(d)}.Key() }

// openLists returns the keys of the lists that permit everything, as far as the interface names them.
func (e *IETFInterface) openLists() (keys []netvirt.Key) {
	for _, id := range e.Groups {
		if d, ok := openDirection(id); ok {
			keys = append(keys, openKey(d))
		}
	}
	return keys
}

// lacksOpenList reports whether the interface names a list that permits everything and is not as it must be.
func (c *codec) lacksOpenList(e *IETFInterface) bool {
	return slices.ContainsFunc(e.Groups, func(id string) bool {
		d, ok := openDirection(id)
		return ok && !c.open[d]
	})
}

// openDirection returns the direction of a list, if it is such a list.
func openDirection(id string) (d netvirt.Direction, ok bool) {
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		if id == openID(d) {
			return d, true
		}
	}
	return "", false
}

func openList(d netvirt.Direction) *accessList {
	id := openID(d)
	var all []rule
	for _, f := range []netvirt.Family{netvirt.IPv4, netvirt.IPv6} {
		all = append(all, permitRule(id, netvirt.ACE{Direction: d, Family: f}, netvirt.PortRange{}, everyone(f), ""))
	}
	return newAccessList(id, all...)
}

// decodeAccessList appends the objects that the records of a list hold.
func decodeAccessList(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[AccessLists].(*accessList)
	if !ok {
		return objects
	}
	var acl netvirt.ACL
	for _, r := range e.Rules.Rule {
		if o, ok := decodeRecord(r); ok {
			if o, ok := o.(netvirt.ACL); ok {
				acl = o
			}
			objects = append(objects, o)
		}
	}
	for i, o := range objects {
		if ace, ok := o.(netvirt.ACE); ok {
			ace.ACL, ace.Namespace = acl.Name, acl.Namespace
			objects[i] = ace
		}
	}
	return objects
}

// decodeRecord returns the object of a record; an ACE without its ACL.
func decodeRecord(r rule) (o netvirt.Object, ok bool) {
	get := func(name string) string {
		value, _ := find(r.Name, name)
		return value
	}
	if name, ok := find(r.Name, "acl"); ok {
		return netvirt.ACL{
			Name: name, Namespace: get("namespace"), Isolates: netvirt.Direction(get("isolates")),
			Withholds: netvirt.PortList(get("withholds")), Yields: get("yields") == "true", Logs: get("logs") == "true",
		}, true
	}
	if name, ok := find(r.Name, "ace"); ok {
		return netvirt.ACE{
			Name: name, Direction: netvirt.Direction(get("direction")), Family: netvirt.Family(get("family")),
			Remote: get("remote"), Ports: netvirt.PortList(get("ports")),
		}, true
	}
	if name, ok := find(r.Name, "remote-group"); ok {
		return netvirt.RemoteGroup{Name: name, Namespace: get("namespace"), Prefixes: netvirt.PrefixList(get("prefixes"))}, true
	}
	return nil, false
}

// listObject returns the ACL or RemoteGroup of a list; nil if its record is missing.
func listObject(e Entry) netvirt.Object {
	list, ok := e.(*accessList)
	if !ok {
		return nil
	}
	for _, r := range list.Rules.Rule {
		o, ok := decodeRecord(r)
		if _, isACE := o.(netvirt.ACE); ok && !isACE && netvirtjson.GroupID(o.Key()) == list.Name {
			return o
		}
	}
	return nil
}

// addressPairs returns the addresses of the MACEntries, which an interface may use. They are
// always set, because without them aclservice does not notice that an interface leaves a list. An
// interface whose elan-interface does not exist keeps the addresses that it has.
func addressPairs(addresses []netvirt.MACEntry, there Content) []addressPair {
	if e, ok := there[Interfaces].(*IETFInterface); ok && there[ELANInterfaces] == nil && len(addresses) == 0 {
		return slices.Clone(e.Pairs)
	}
	pairs := make([]addressPair, len(addresses))
	for i, m := range addresses {
		pairs[i] = addressPair{m.MAC, m.Address.String()}
	}
	return pairs
}

// secure sets the leaves of aclservice in the entry of an interface, and returns the words of its
// description. Port security is always set, because Oxygen's aclservice fails at an interface that
// gets it later. An interface needs it to be isolated, and to be a member of remote groups.
func (c *codec) secure(e *IETFInterface, objects []netvirt.Object) []word {
	secured := false
	e.Secured = &secured
	o, ok := head[netvirt.InterfaceACL](objects)
	if !ok {
		return nil
	}
	isolated := map[netvirt.Direction]bool{}
	for _, name := range o.SecurityGroups.All() {
		direction, known := c.acls[name]
		if netvirt.IsOfNode(name) && !known {
			continue // aclservice would never look for the list again; the interface is encoded again when it comes
		}
		isolated[direction] = true
		e.Groups = append(e.Groups, netvirtjson.GroupID(netvirt.ACL{Name: name}.Key()))
	}
	secured = isolated[netvirt.Ingress] || isolated[netvirt.Egress]
	for _, name := range o.RemoteGroups.All() {
		if group, found := c.groups[name]; !found || group.Admits(o.Namespace) {
			secured = true
			e.Groups = append(e.Groups, netvirtjson.GroupID(netvirt.RemoteGroup{Name: name}.Key()))
		}
	}
	if !secured {
		e.Groups = nil
	}
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		if secured && !isolated[d] {
			e.Groups = append(e.Groups, openID(d))
		}
	}
	return append(optional("acls", string(o.SecurityGroups)), optional("remote-groups", string(o.RemoteGroups))...)
}

// interfaceACLOf returns the InterfaceACL in the entry of an interface; ok is false if it has
// none.
func interfaceACLOf(e *IETFInterface) (o netvirt.InterfaceACL, ok bool) {
	acls, hasACLs := find(e.Description, "acls")
	groups, hasGroups := find(e.Description, "remote-groups")
	namespace, _, _, _ := netvirt.ParseInterfaceName(e.Name)
	return netvirt.InterfaceACL{
		Interface: e.Name, Namespace: namespace, SecurityGroups: netvirt.NameList(acls), RemoteGroups: netvirt.NameList(groups),
	}, hasACLs || hasGroups
}

// dependsOn returns the keys of the ACLs and RemoteGroups whose content decides on an entry of another
// unit: an interface depends on its own, and a list on the RemoteGroups of its rules. An interface also depends on the lists that permit
// everything, as far as it names them.
func dependsOn(e Entry) (keys []netvirt.Key) {
	switch e := e.(type) {
	case *IETFInterface:
		o, _ := interfaceACLOf(e)
		for _, name := range o.SecurityGroups.All() {
			keys = append(keys, netvirt.ACL{Name: name}.Key())
		}
		for _, name := range o.RemoteGroups.All() {
			keys = append(keys, netvirt.RemoteGroup{Name: name}.Key())
		}
		keys = append(keys, e.openLists()...)
	case *accessList:
		for _, r := range e.Rules.Rule {
			if !strings.HasPrefix(r.Name, Mark) {
				continue
			}
			if o, _ := decodeRecord(r); o != nil {
				if ace, ok := o.(netvirt.ACE); ok && ace.Remote != "" {
					keys = append(keys, netvirt.RemoteGroup{Name: ace.Remote}.Key())
				}
			}
		}
	}
	return keys
}
