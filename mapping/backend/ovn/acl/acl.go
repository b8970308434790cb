// Package acl turns the ACLs and the remote groups of network policies into rows of OVN's northbound database, and these rows into
// objects: Port_Groups with their ACLs and Meters, and Address_Sets. It knows the matches and the priorities of these ACLs, and which
// ports and addresses are members of the groups and the sets.
//
// The package does not know the rows of ports, nor the ACLs of switches: see package codec. It knows neither a connection nor what
// the database has. Package identity gives the rows their UUIDs and marks.
package acl

import (
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Priorities of ACLs. An ACL that allows has precedence over each that isolates. Between them, one that
// withholds has precedence over one that yields.
const (
	priorityIsolate  = 998
	priorityYield    = 999
	priorityWithhold = 1000
	priorityAllow    = 1001
)

// Roles of the ACLs of a port group.
const (
	roleIsolate   = "isolate"
	roleWithhold  = "withhold"
	roleDiscovery = "discovery" // allows neighbour and router discovery
	roleHairpin   = "hairpin"   // allows a pod to reach itself through a service
	roleDHCP      = "dhcp"      // allows requests for an address
	roleACE       = "ace "      // and the name of the ACE
	roleMeter     = "meter "    // and the verdict of the packets that it counts
)

// Fields of an ACL in the external_ids of its port group.
const (
	idIsolates  = "coe-bridge/isolates"
	idLogs      = "coe-bridge/logs"
	idWithholds = "coe-bridge/withholds"
	idYields    = "coe-bridge/yields"
	idACE       = "coe-bridge/ace/" // and the name
)

// HairpinAddresses are the source addresses that a pod sees if it reaches itself through a service.
const HairpinAddresses = "169.254.169.5 fd69::5"

func aclKey(name string) netvirt.Key { return netvirt.Key{Kind: netvirt.KindACL, Name: name} }

func portGroupUUID(owner identity.Owner, acl string) string {
	return owner.UUID(nb.PortGroupTable, aclKey(acl), "")
}

// portGroup adds the rows of an ACL to a set.
type portGroup struct {
	identity.Owner
	set *ovsdb.RowSet
	key netvirt.Key // of the ACL
}

// Encode adds the port group of an ACL, with an ACL of OVN for each ACE, and those that
// isolate. Ports are added to the group by Join. An ACE whose remote group does not exist has no
// row, because an external address set could have the name of the group's.
func Encode(owner identity.Owner, set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look func(netvirt.Key) netvirt.Object) {
	o, ok := objects[k].(netvirt.ACL)
	if !ok {
		return
	}
	g := portGroup{owner, set, k}
	row := &nb.PortGroup{
		UUID: portGroupUUID(owner, o.Name), Name: matchName(owner, o.Name),
		ExternalIDs: owner.Mark(k, "", identity.IDNamespace, o.Namespace, idIsolates, string(o.Isolates)),
	}
	if o.Logs {
		row.ExternalIDs[idLogs] = "true"
	}
	if o.Withholds != "" {
		row.ExternalIDs[idWithholds] = string(o.Withholds)
	}
	if o.Yields {
		row.ExternalIDs[idYields] = "true"
	}
	if o.Isolates != "" {
		g.isolate(o)
	}
	for _, key := range objects.Keys() {
		e, ok := objects[key].(netvirt.ACE)
		if !ok {
			continue
		}
		row.ExternalIDs[idACE+e.Name] = aceText(e)
		if e.Remote == "" || look(remoteGroupKey(e.Remote)) != nil {
			g.allow(o, e)
		}
	}
	set.Add(row)
}

// isolate adds the ACLs by which a port group drops new connections in a direction. They match
// IP traffic only, so they never drop ARP.
//
// OVN answers DHCP requests after the ACLs for traffic from a pod, and it exempts its answers
// itself. Only requests to the link are allowed: a client that cannot renew its lease with the
// server asks the link (RFC 2131, section 4.4.5). Traffic from a pod to itself through a service
// never meets the ACLs for traffic from the pod.
func (g portGroup) isolate(o netvirt.ACL) {
	at, related := o.Isolates, nb.ACLActionAllowRelated
	drops := []*nb.ACL{g.acl(roleIsolate, at, priorityIsolate, nb.ACLActionDrop, "ip")}
	if o.Withholds != "" {
		drops = append(drops, g.acl(roleWithhold, at, priorityWithhold, nb.ACLActionDrop, "ip && ("+matchPorts(o.Withholds)+")"))
	}
	if o.Logs {
		for _, row := range drops {
			log(row, o.Name, nb.ACLSeverityWarning, meterName(g.Owner, o.Name, dropped))
		}
		g.meter(dropped)
		g.meter(allowed)
	}
	g.acl(roleDiscovery, at, priorityAllow, related, "(nd || nd_rs || nd_ra)")
	if at == netvirt.Ingress {
		v4, v6, _ := strings.Cut(HairpinAddresses, " ")
		g.acl(roleHairpin, at, priorityAllow, related, fmt.Sprintf("(ip4.src == %s || ip6.src == %s)", v4, v6))
	} else {
		g.acl(roleDHCP, at, priorityAllow, related, "((ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67) || "+
			"(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547))")
	}
}

// allow adds the ACL by which a port group allows what an ACE does.
func (g portGroup) allow(o netvirt.ACL, e netvirt.ACE) {
	priority := priorityAllow
	if o.Yields {
		priority = priorityYield
	}
	row := g.acl(roleACE+e.Name, e.Direction, priority, nb.ACLActionAllowRelated, aceMatch(g.Owner, e))
	if o.Logs {
		log(row, o.Namespace+":"+e.Name, nb.ACLSeverityInfo, meterName(g.Owner, netvirt.IsolatingACLName(o.Namespace, e.Direction), allowed))
	}
}

// acl adds an ACL to a port group, and returns it. Traffic from pods is judged after load balancing: by
// the endpoint of a service, not by its address.
func (g portGroup) acl(role string, at netvirt.Direction, priority int, action, match string) *nb.ACL {
	row := &nb.ACL{
		UUID: g.UUID(nb.ACLTable, g.key, role), Direction: nb.ACLDirectionToLport, Priority: priority, Action: action,
		Match: "outport == @" + matchName(g.Owner, g.key.Name) + " && " + match, ExternalIDs: g.Mark(g.key, role),
	}
	if at == netvirt.Egress {
		row.Direction = nb.ACLDirectionFromLport
		row.Match = "inport == @" + matchName(g.Owner, g.key.Name) + " && " + match
		row.Options = map[string]string{"apply-after-lb": "true"}
	}
	g.set.Add(row)
	g.set.Link(nb.PortGroupTable, portGroupUUID(g.Owner, g.key.Name), "acls", row.UUID)
	return row
}

// aceText returns the fields of an ACE for the external_ids of its port group.
func aceText(e netvirt.ACE) string {
	return strings.Join([]string{string(e.Direction), string(e.Family), e.Remote, string(e.Ports)}, " ")
}

// Decode decodes the port group of Encode.
func Decode(k netvirt.Key, group *nb.PortGroup) []netvirt.Object {
	ids, namespace := group.ExternalIDs, group.ExternalIDs[identity.IDNamespace]
	if netvirt.IsOfNode(k.Name) {
		namespace = ""
	}
	acl := netvirt.ACL{
		Name: k.Name, Namespace: namespace, Isolates: netvirt.Direction(ids[idIsolates]),
		Yields: ids[idYields] == "true", Logs: ids[idLogs] == "true",
	}
	if validPorts(ids[idWithholds]) {
		acl.Withholds = netvirt.PortList(ids[idWithholds])
	}
	objects := []netvirt.Object{acl}
	for key, value := range ids {
		name, found := strings.CutPrefix(key, idACE)
		fields := strings.SplitN(value, " ", 4)
		if found && len(fields) == 4 && validPorts(fields[3]) {
			objects = append(objects, netvirt.ACE{
				ACL: k.Name, Namespace: namespace, Name: name, Direction: netvirt.Direction(fields[0]),
				Family: netvirt.Family(fields[1]), Remote: fields[2], Ports: netvirt.PortList(fields[3]),
			})
		}
	}
	return objects
}
