package netvirtjson

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// AccessLists is the top container of ACLs, in which clients have lists of their own.
const AccessLists = "ietf-access-control-list:access-lists"

// GroupID returns the UUID (RFC 9562, section 5.8) of an ACL or a RemoteGroup, which Netvirt
// requires as the name of a security group. It depends only on the key.
func GroupID(key netvirt.Key) string { return uuidOf(key.String()) }

// IsGroupID reports whether a text has the form of a GroupID.
func IsGroupID(text string) bool {
	return len(text) == 36 && text[8] == '-' && text[13] == '-' && text[14] == '8' && text[18] == '-' && text[23] == '-'
}

// uuidOf returns a UUID of version 8 that depends only on a text.
func uuidOf(text string) string {
	h := sha256.Sum256([]byte(text))
	h[6] = h[6]&0x0f | 0x80
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

type jsonACL struct {
	Type    string    `json:"acl-type"`
	Name    string    `json:"acl-name"`
	Entries *jsonACEs `json:"access-list-entries,omitempty"`
}

type jsonACEs struct {
	List []jsonACE `json:"ace"`
}

type jsonACE struct {
	Name        string      `json:"rule-name"`
	Matches     jsonMatches `json:"matches"`
	Actions     jsonPermit  `json:"actions"`
	Direction   string      `json:"aclservice:direction"`
	RemoteGroup string      `json:"aclservice:remote-group-id,omitempty"`
}

type jsonMatches struct {
	From4    string         `json:"source-ipv4-network,omitempty"`
	To4      string         `json:"destination-ipv4-network,omitempty"`
	From6    string         `json:"source-ipv6-network,omitempty"`
	To6      string         `json:"destination-ipv6-network,omitempty"`
	Protocol uint8          `json:"protocol,omitempty"`
	Ports    *jsonPortRange `json:"destination-port-range,omitempty"`
}

type jsonPortRange struct {
	Lower uint16 `json:"lower-port"`
	Upper uint16 `json:"upper-port"`
}

type jsonPermit struct {
	Permit [1]any `json:"permit"`
}

func accessLists(objects iter.Seq[netvirt.Object]) any {
	entries := map[string][]jsonACE{}
	for _, o := range of[netvirt.ACE](objects) {
		entries[o.ACL] = append(entries[o.ACL], aces(o)...)
	}
	return list("acl", sorted(each(objects, func(o netvirt.ACL) jsonACL {
		out := jsonACL{Type: "ietf-access-control-list:ipv4-acl", Name: GroupID(o.Key())}
		if own := entries[o.Name]; own != nil {
			out.Entries = &jsonACEs{own}
		}
		return out
	}), func(e jsonACL) string { return e.Name }))
}

// sorted sorts entries by their key, a GroupID.
func sorted[E any](entries []E, key func(E) string) []E {
	slices.SortFunc(entries, func(a, b E) int { return cmp.Compare(key(a), key(b)) })
	return entries
}

// aces returns the entries of a rule: one for each range of its ports, because an entry has
// room for one.
func aces(o netvirt.ACE) []jsonACE {
	out := jsonACE{Name: o.Name, Direction: "aclservice:direction-" + string(o.Direction), Matches: everyone(o)}
	if o.Remote != "" {
		out.RemoteGroup = GroupID(netvirt.RemoteGroup{Name: o.Remote}.Key())
	}
	ports := o.Ports.All()
	if len(ports) == 0 {
		return []jsonACE{out}
	}
	var all []jsonACE
	for _, r := range ports {
		one := out
		if len(ports) > 1 {
			one.Name += " " + r.String()
		}
		one.Matches.Protocol = protocolNumbers[r.Protocol]
		if r.Last != 0 {
			one.Matches.Ports = &jsonPortRange{r.First, r.Last}
		}
		all = append(all, one)
	}
	return all
}

// protocolNumbers are the numbers that IANA has assigned.
var protocolNumbers = map[netvirt.Protocol]uint8{netvirt.TCP: 6, netvirt.UDP: 17, netvirt.SCTP: 132}

// everyone matches every address of the rule's family at the other end.
func everyone(o netvirt.ACE) (m jsonMatches) {
	switch {
	case o.Family == netvirt.IPv4 && o.Direction == netvirt.Ingress:
		m.From4 = "0.0.0.0/0"
	case o.Family == netvirt.IPv4:
		m.To4 = "0.0.0.0/0"
	case o.Direction == netvirt.Ingress:
		m.From6 = "::/0"
	default:
		m.To6 = "::/0"
	}
	return m
}

type jsonSecurityGroup struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Isolates  netvirt.Direction `json:"isolates,omitempty"`
	Withholds []string          `json:"withholds,omitempty"`
	Yields    bool              `json:"yields,omitempty"`
	Logs      bool              `json:"logs,omitempty"`
}

func securityGroups(objects iter.Seq[netvirt.Object]) any {
	return list("security-group", sorted(each(objects, func(o netvirt.ACL) jsonSecurityGroup {
		group := jsonSecurityGroup{ID: GroupID(o.Key()), Name: o.Name, Namespace: o.Namespace, Isolates: o.Isolates, Yields: o.Yields, Logs: o.Logs}
		for _, r := range o.Withholds.All() {
			group.Withholds = append(group.Withholds, r.String())
		}
		return group
	}), func(e jsonSecurityGroup) string { return e.ID }))
}

type jsonRemoteGroup struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace,omitempty"`
	Prefixes  []netip.Prefix `json:"prefixes,omitempty"`
}

func remoteGroups(objects iter.Seq[netvirt.Object]) any {
	return list("remote-group", sorted(each(objects, func(o netvirt.RemoteGroup) jsonRemoteGroup {
		return jsonRemoteGroup{GroupID(o.Key()), o.Name, o.Namespace, o.Prefixes.All()}
	}), func(e jsonRemoteGroup) string { return e.ID }))
}

// jsonInterfaceACL is what an InterfaceACL adds to its interface.
type jsonInterfaceACL struct {
	Secured        *bool    `json:"aclservice:port-security-enabled,omitempty"`
	SecurityGroups []string `json:"aclservice:security-groups,omitempty"`
	RemoteGroups   []string `json:"coe-netvirt:remote-groups,omitempty"`
}

func interfaceACL(o netvirt.InterfaceACL) (out jsonInterfaceACL) {
	secured := o.SecurityGroups != ""
	out.Secured = &secured
	for _, name := range o.SecurityGroups.All() {
		out.SecurityGroups = append(out.SecurityGroups, GroupID(netvirt.ACL{Name: name}.Key()))
	}
	for _, name := range o.RemoteGroups.All() {
		out.RemoteGroups = append(out.RemoteGroups, GroupID(netvirt.RemoteGroup{Name: name}.Key()))
	}
	slices.Sort(out.SecurityGroups)
	slices.Sort(out.RemoteGroups)
	return out
}
