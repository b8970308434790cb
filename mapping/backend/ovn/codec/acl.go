package codec

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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

func aclKey(name string) netvirt.Key { return netvirt.Key{Kind: netvirt.KindACL, Name: name} }

func remoteGroupKey(name string) netvirt.Key {
	return netvirt.Key{Kind: netvirt.KindRemoteGroup, Name: name}
}

func (c Codec) portGroupUUID(acl string) string { return c.UUID(nb.PortGroupTable, aclKey(acl), "") }

// matchName returns the name of a port group or an address set, for use in the match of an
// ACL, where only letters, digits, "_" and "." are allowed. Different names stay different:
// "-" becomes "_", and each other character "." and two hex digits. Two dots are between the
// owner and the name, because the names of these rows are unique in the database.
func (c Codec) matchName(name string) string {
	return escape(string(c.Owner)) + ".." + escape(name)
}

func escape(name string) string {
	var b strings.Builder
	for i, ch := range []byte(name) {
		letter := 'a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z'
		switch {
		case letter, '0' <= ch && ch <= '9' && i > 0:
			b.WriteByte(ch)
		case ch == '-':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, ".%02x", ch)
		}
	}
	return b.String()
}

// encodeACL adds the port group of an ACL, with an ACL of OVN for each ACE, and those that
// isolate. Ports are added to the group by encodePort. An ACE whose remote group does not exist has no
// row, because an external address set could have the name of the group's.
func (c Codec) encodeACL(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := head[netvirt.ACL](objects, k)
	if !ok {
		return
	}
	group := &nb.PortGroup{
		UUID: c.portGroupUUID(o.Name), Name: c.matchName(o.Name),
		ExternalIDs: c.Mark(k, "", idNamespace, o.Namespace, idIsolates, string(o.Isolates)),
	}
	if o.Logs {
		group.ExternalIDs[idLogs] = "true"
	}
	if o.Withholds != "" {
		group.ExternalIDs[idWithholds] = string(o.Withholds)
	}
	priority := priorityAllow
	if o.Yields {
		group.ExternalIDs[idYields], priority = "true", priorityYield
	}
	if o.Isolates != "" {
		c.isolate(set, k, o)
	}
	for _, e := range each[netvirt.ACE](objects) {
		group.ExternalIDs[idACE+e.Name] = aceText(e)
		if e.Remote != "" && look(remoteGroupKey(e.Remote)) == nil {
			continue
		}
		row := c.groupACL(set, k, roleACE+e.Name, e.Direction, priority, nb.ACLActionAllowRelated, c.aceMatch(e))
		if o.Logs {
			log(row, o.Namespace+":"+e.Name, nb.ACLSeverityInfo, c.meterName(netvirt.IsolatingACLName(o.Namespace, e.Direction), allowed))
		}
	}
	set.Add(group)
}

// isolate adds the ACLs by which a port group drops new connections in a direction. They match
// IP traffic only, so they never drop ARP.
//
// OVN answers DHCP requests after the ACLs for traffic from a pod, and it exempts its answers
// itself. Only requests to the link are allowed: a client that cannot renew its lease with the
// server asks the link (RFC 2131, section 4.4.5). Traffic from a pod to itself through a service
// never meets the ACLs for traffic from the pod.
func (c Codec) isolate(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ACL) {
	at, related := o.Isolates, nb.ACLActionAllowRelated
	drops := []*nb.ACL{c.groupACL(set, k, roleIsolate, at, priorityIsolate, nb.ACLActionDrop, "ip")}
	if o.Withholds != "" {
		drops = append(drops, c.groupACL(set, k, roleWithhold, at, priorityWithhold, nb.ACLActionDrop, "ip && ("+matchPorts(o.Withholds)+")"))
	}
	if o.Logs {
		for _, row := range drops {
			log(row, o.Name, nb.ACLSeverityWarning, c.meterName(o.Name, dropped))
		}
		c.meter(set, k, dropped)
		c.meter(set, k, allowed)
	}
	c.groupACL(set, k, roleDiscovery, at, priorityAllow, related, "(nd || nd_rs || nd_ra)")
	if at == netvirt.Ingress {
		v4, v6, _ := strings.Cut(hairpinAddresses, " ")
		c.groupACL(set, k, roleHairpin, at, priorityAllow, related, fmt.Sprintf("(ip4.src == %s || ip6.src == %s)", v4, v6))
	} else {
		c.groupACL(set, k, roleDHCP, at, priorityAllow, related, "((ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67) || "+
			"(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547))")
	}
}

// groupACL adds an ACL to a port group, and returns it. Traffic from pods is judged after load balancing: by
// the endpoint of a service, not by its address.
func (c Codec) groupACL(set *ovsdb.RowSet, k netvirt.Key, role string, at netvirt.Direction, priority int, action, match string) *nb.ACL {
	acl := &nb.ACL{
		UUID: c.UUID(nb.ACLTable, k, role), Direction: nb.ACLDirectionToLport, Priority: priority, Action: action,
		Match: "outport == @" + c.matchName(k.Name) + " && " + match, ExternalIDs: c.Mark(k, role),
	}
	if at == netvirt.Egress {
		acl.Direction = nb.ACLDirectionFromLport
		acl.Match = "inport == @" + c.matchName(k.Name) + " && " + match
		acl.Options = map[string]string{"apply-after-lb": "true"}
	}
	set.Add(acl)
	set.Link(nb.PortGroupTable, c.portGroupUUID(k.Name), "acls", acl.UUID)
	return acl
}

// verdict is what an ACL decides about packets.
type verdict string

const (
	dropped verdict = "drop"
	allowed verdict = "allow"
)

// logRate is the number of packets with one verdict that a node logs in a second for a direction of a
// namespace.
const logRate = 100

// log lets ovn-controller log the packets that match an ACL, as far as a Meter allows it.
func log(acl *nb.ACL, name string, severity nb.ACLSeverity, meter string) {
	acl.Log, acl.Name, acl.Severity, acl.Meter = true, new(logName(name)), &severity, &meter
}

// meter adds a Meter for the ACLs of a namespace with a direction and a verdict. They share its rate, so
// that a tenant cannot multiply it by policies. It belongs to the ACL that isolates in this direction: without that
// one there are no ACLs for it.
func (c Codec) meter(set *ovsdb.RowSet, k netvirt.Key, v verdict) {
	role := roleMeter + string(v)
	band := &nb.MeterBand{
		UUID: c.UUID(nb.MeterBandTable, k, role), Action: nb.MeterBandActionDrop, Rate: logRate, ExternalIDs: c.Mark(k, role),
	}
	set.Add(band)
	set.Add(&nb.Meter{
		UUID: c.UUID(nb.MeterTable, k, role), Name: c.meterName(k.Name, v), Unit: nb.MeterUnitPktps, Bands: []string{band.UUID}, ExternalIDs: c.Mark(k, role),
	})
}

// meterName returns the name of a Meter of the ACL that isolates.
func (c Codec) meterName(isolating string, v verdict) string {
	return c.matchName(isolating + ":" + string(v))
}

// maxLogName is the maximum length of ACL.name.
const maxLogName = 63

// logName returns a name for ACL.name. A name that is too long is cut, and ends with a hash. OVN
// puts the name between quotes in its flows, so the result has no quotes and no backslash.
func logName(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' || r == '\\' {
			return '_'
		}
		return r
	}, name)
	if len(plain) <= maxLogName {
		return plain
	}
	hash := sha256.Sum256([]byte(name))
	end := fmt.Sprintf("~%x", hash[:4])
	return plain[:maxLogName-len(end)] + end
}

// aceMatch returns what an ACE matches apart from its port group. The address set is
// compared with "==", and stands alone: only then ovn-controller follows its changes
// incrementally.
func (c Codec) aceMatch(e netvirt.ACE) string {
	ip := matchFamily(e.Family)
	match := ip
	if e.Remote != "" {
		end := ".src"
		if e.Direction == netvirt.Egress {
			end = ".dst"
		}
		match += " && " + ip + end + " == $" + c.addressSetName(e.Remote, ip)
	}
	if ports := matchPorts(e.Ports); ports != "" {
		match += " && (" + ports + ")"
	}
	return match
}

// matchFamily returns OVN's word for an address family.
func matchFamily(f netvirt.Family) string {
	if f == netvirt.IPv6 {
		return "ip6"
	}
	return "ip4"
}

func matchPorts(ports netvirt.PortList) string {
	var (
		terms  []string
		single = map[netvirt.Protocol][]string{}
	)
	for _, r := range ports.All() {
		switch {
		case r.Last == 0:
			terms = append(terms, string(r.Protocol))
		case r.First == r.Last:
			single[r.Protocol] = append(single[r.Protocol], fmt.Sprint(r.First))
		default:
			terms = append(terms, fmt.Sprintf("%d <= %s.dst <= %d", r.First, r.Protocol, r.Last))
		}
	}
	for protocol, numbers := range single {
		terms = append(terms, fmt.Sprintf("%s.dst == {%s}", protocol, strings.Join(numbers, ", ")))
	}
	slices.Sort(terms)
	return strings.Join(terms, " || ")
}

// validPorts reports whether a text is a netvirt.PortList.
func validPorts(text string) bool {
	var ranges []netvirt.PortRange
	for part := range strings.SplitSeq(text, ",") {
		protocol, ports, some := strings.Cut(part, ":")
		r := netvirt.PortRange{Protocol: netvirt.Protocol(protocol)}
		if some {
			first, last, _ := strings.Cut(ports, "-")
			from, _ := strconv.ParseUint(first, 10, 16)
			to, _ := strconv.ParseUint(cmp.Or(last, first), 10, 16)
			r.First, r.Last = uint16(from), uint16(to)
		}
		ranges = append(ranges, r)
	}
	return text == "" || string(netvirt.NewPortList(ranges...)) == text
}

// aceText returns the fields of an ACE for the external_ids of its port group.
func aceText(e netvirt.ACE) string {
	return strings.Join([]string{string(e.Direction), string(e.Family), e.Remote, string(e.Ports)}, " ")
}

// decodeACL decodes the port group of encodeACL.
func decodeACL(k netvirt.Key, group *nb.PortGroup) []netvirt.Object {
	ids, namespace := group.ExternalIDs, group.ExternalIDs[idNamespace]
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

// families are OVN's words for the address families, the roles of a remote group's rows.
var families = [...]string{"ip4", "ip6"}

func (c Codec) addressSetUUID(group, family string) string {
	return c.UUID(nb.AddressSetTable, remoteGroupKey(group), family)
}

func (c Codec) addressSetName(group, family string) string {
	return c.matchName(group) + ".." + family
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return families[0]
	}
	return families[1]
}

// encodeRemoteGroup adds the address sets of a remote group, with its prefixes. A prefix has
// always a length, so it differs from every address of a member.
func (c Codec) encodeRemoteGroup(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := head[netvirt.RemoteGroup](objects, k)
	if !ok {
		return
	}
	for _, family := range families {
		row := &nb.AddressSet{
			UUID: c.addressSetUUID(o.Name, family), Name: c.addressSetName(o.Name, family), ExternalIDs: c.Mark(k, family, idNamespace, o.Namespace),
		}
		if family == families[0] && o.Prefixes != "" {
			row.ExternalIDs[idPrefixes] = string(o.Prefixes)
		}
		set.Add(row)
	}
	for _, p := range o.Prefixes.All() {
		set.Link(nb.AddressSetTable, c.addressSetUUID(o.Name, familyOf(p.Addr())), "addresses", p.String())
	}
}

// decodeRemoteGroup decodes the first address set of encodeRemoteGroup. The other one holds no
// object.
func decodeRemoteGroup(k netvirt.Key, row *nb.AddressSet) []netvirt.Object {
	if row.ExternalIDs[identity.IDRole] != families[0] {
		return nil
	}
	prefixes, ok := parsePrefixes(row.ExternalIDs[idPrefixes])
	if !ok {
		return nil
	}
	return []netvirt.Object{netvirt.RemoteGroup{Name: k.Name, Namespace: row.ExternalIDs[idNamespace], Prefixes: prefixes}}
}

// parsePrefixes parses a list; it is not ok if the text is not canonical.
func parsePrefixes(text string) (list netvirt.PrefixList, ok bool) {
	var prefixes []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil && text != "" {
			return "", false
		}
		if err == nil {
			prefixes = append(prefixes, p)
		}
	}
	list = netvirt.NewPrefixList(prefixes...)
	return list, string(list) == text
}

// join makes a port a member of its port groups, and its addresses members of the address sets
// of its remote groups. The ACL of a node or a remote group that does not exist yet is left out; the port is encoded
// again when it is created. So is a damaged remote group, whose repair adds all its members.
func (c Codec) join(set *ovsdb.RowSet, port string, p port, look Lookup) {
	for _, name := range p.acl.SecurityGroups.All() {
		if netvirt.IsOfNode(name) && look(aclKey(name)) == nil {
			continue
		}
		set.Link(nb.PortGroupTable, c.portGroupUUID(name), "ports", port)
	}
	for _, name := range p.acl.RemoteGroups.All() {
		if group, ok := look(remoteGroupKey(name)).(netvirt.RemoteGroup); !ok || identity.IsDamaged(group) || !group.Admits(p.Namespace) {
			continue
		}
		for _, a := range p.ips() {
			set.Link(nb.AddressSetTable, c.addressSetUUID(name, familyOf(a)), "addresses", a.String())
		}
	}
}

// ips returns the port's IP addresses.
func (p port) ips() []netip.Addr {
	var all []netip.Addr
	for _, e := range p.entries {
		all = append(all, e.Address)
	}
	for _, a := range p.adjacencies {
		all = append(all, a.Address)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
