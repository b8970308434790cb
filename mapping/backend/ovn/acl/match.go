package acl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// matchName returns the name of a port group or an address set, for use in the match of an
// ACL, where only letters, digits, "_" and "." are allowed. Different names stay different:
// "-" becomes "_", and each other character "." and two hex digits. Two dots are between the
// owner and the name, because the names of these rows are unique in the database.
func matchName(owner identity.Owner, name string) string {
	return escape(string(owner)) + ".." + escape(name)
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

// aceMatch returns what an ACE matches apart from its port group. The address set is
// compared with "==", and stands alone: only then ovn-controller follows its changes
// incrementally.
func aceMatch(owner identity.Owner, e netvirt.ACE) string {
	ip := matchFamily(e.Family)
	match := ip
	if e.Remote != "" {
		end := ".src"
		if e.Direction == netvirt.Egress {
			end = ".dst"
		}
		match += " && " + ip + end + " == $" + AddressSetName(owner, e.Remote, e.Family)
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
