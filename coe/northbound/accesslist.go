package northbound

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

type accessList struct {
	Type    string `json:"acl-type"`
	Name    string `json:"acl-name"`
	Entries struct {
		List []aclEntry `json:"ace"`
	} `json:"access-list-entries"`
}

type aclEntry struct {
	Name        string     `json:"rule-name"`
	Matches     aclMatches `json:"matches"`
	Actions     aclActions `json:"actions"`
	Direction   string     `json:"aclservice:direction"`
	RemoteGroup string     `json:"aclservice:remote-group-id"`
}

type aclMatches struct {
	From4     string    `json:"source-ipv4-network"`
	To4       string    `json:"destination-ipv4-network"`
	From6     string    `json:"source-ipv6-network"`
	To6       string    `json:"destination-ipv6-network"`
	Protocol  *uint8    `json:"protocol"`
	FromPorts *aclPorts `json:"source-port-range"`
	ToPorts   *aclPorts `json:"destination-port-range"`
	FromMAC   string    `json:"source-mac-address"`
	ToMAC     string    `json:"destination-mac-address"`
}

type aclPorts struct {
	Lower uint16  `json:"lower-port"`
	Upper *uint16 `json:"upper-port"`
}

// aclActions has a permit, or it denies: that is the default of the model.
type aclActions struct {
	Permit json.RawMessage `json:"permit"`
}

// The types of access lists, without their module.
const (
	ipv4ACL = "ietf-access-control-list:ipv4-acl"
	ipv6ACL = "ietf-access-control-list:ipv6-acl"
)

// AccessList reads an entry of ietf-access-control-list:access-lists/acl, a security profile. Its
// UID is its key.
//
// A profile isolates its pods in the directions of its entries, and in both if it has none. Its
// permits add up like rules of a policy, so their order does not matter. A deny changes
// nothing if no permit of its direction follows it, because what is not permitted is denied.
// Another deny, and an entry that a policy cannot express, is an error: Invalid names the
// entry, and the profile isolates its pods in both directions and has no rules.
func AccessList(raw []byte) (*coe.PolicySpec, error) {
	var in accessList
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read access list: %w", err)
	}
	out := &coe.PolicySpec{
		Policy: coe.Policy{UID: JoinKey(in.Type, in.Name), Name: in.Name, Kind: coe.AccessList},
		Pods:   coe.ProfileSelector(in.Name),
	}
	if len(in.Entries.List) == 0 {
		out.Close("")
	}
	if err := in.addTo(out); err != nil {
		out.Close(err.Error())
	}
	closeIf(out, "access-list-entries", nil)
	return out, nil
}

// addTo adds the rules of the entries to a policy. It returns the first error.
func (l *accessList) addTo(out *coe.PolicySpec) error {
	denied := map[coe.Direction]string{} // the first deny
	for i := range l.Entries.List {
		e := &l.Entries.List[i]
		direction, err := e.direction()
		if err == nil {
			side := out.Side(direction)
			side.Isolates = true
			if e.Actions.Permit == nil {
				denied[direction] = cmp.Or(denied[direction], e.Name)
				continue
			}
			if before, found := denied[direction]; found {
				err = fmt.Errorf("it permits after the entry %q has denied: permits add up and have no order; leave that entry out, or put it last", before)
			} else {
				var rule coe.PolicyRule
				rule, err = e.rule(l.Type, direction)
				side.Rules = append(side.Rules, rule)
			}
		}
		if err != nil {
			return within(fmt.Sprintf("ace %q", e.Name), err)
		}
	}
	return nil
}

func (e *aclEntry) direction() (coe.Direction, error) {
	switch e.Direction {
	case "aclservice:direction-ingress":
		return coe.Ingress, nil
	case "aclservice:direction-egress":
		return coe.Egress, nil
	}
	return "", within("direction", errors.New("want direction-ingress or direction-egress (aclservice:direction)"))
}

// rule returns the rule of a permit. The other end of its connections is the source of ingress, and
// the destination of egress.
func (e *aclEntry) rule(listType string, d coe.Direction) (rule coe.PolicyRule, err error) {
	rule.Name = e.Name
	m := &e.Matches
	peer, own := m.network("source", m.From4, m.From6), m.network("destination", m.To4, m.To6)
	if d == coe.Egress {
		peer, own = own, peer
	}
	if m.FromMAC != "" || m.ToMAC != "" {
		return rule, errors.New("MAC addresses cannot be matched: match networks, or remote-group-id")
	}
	if m.FromPorts != nil {
		return rule, within("source-port-range", errors.New("source ports cannot be matched"))
	}
	if rule.Family, err = familyOf(listType, peer, own); err != nil {
		return rule, err
	}
	if rule.Ports, err = m.ports(); err != nil {
		return rule, err
	}
	ownBlock, err := own.prefix()
	if err == nil && ownBlock.Bits() > 0 {
		err = errors.New("the address of the pod itself cannot be matched: want the whole family, or nothing")
	}
	if err != nil {
		return rule, within(own.leaf, err)
	}
	block, err := peer.prefix()
	switch {
	case err != nil:
		return rule, within(peer.leaf, err)
	case block.Bits() > 0 && e.RemoteGroup != "":
		return rule, within(peer.leaf, errors.New("it excludes remote-group-id: want the whole family, or nothing"))
	case block.Bits() > 0:
		rule.Peers = []coe.PolicyPeer{{Block: &coe.AddressBlock{CIDR: block}}}
	case e.RemoteGroup != "":
		rule.Peers = []coe.PolicyPeer{{Namespaces: &coe.Selector{}, Pods: coe.ProfileSelector(e.RemoteGroup)}}
	}
	return rule, nil
}

// aclNetwork is a leaf with the network of one end, if the entry has it.
type aclNetwork struct {
	leaf, text string
	family     coe.Family
}

// network returns the network of the source or the destination.
func (m *aclMatches) network(end, ipv4, ipv6 string) aclNetwork {
	switch {
	case ipv4 != "":
		return aclNetwork{end + "-ipv4-network", ipv4, coe.IPv4}
	case ipv6 != "":
		return aclNetwork{end + "-ipv6-network", ipv6, coe.IPv6}
	}
	return aclNetwork{}
}

// prefix returns the network. It has no bits if it is the whole family, or if there is no leaf.
func (n aclNetwork) prefix() (netip.Prefix, error) {
	if n.leaf == "" {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	p, err := prefixOf(n.text)
	if err == nil && !n.family.Has(p.Addr()) {
		err = fmt.Errorf("%s is not an IPv%d prefix", p, n.family)
	}
	return p, err
}

// familyOf returns the family of an entry: that of its networks; without a network, that of the
// list's type. Like Netvirt, a list of type ipv4-acl can have entries with IPv6 networks.
func familyOf(listType string, networks ...aclNetwork) (coe.Family, error) {
	for _, n := range networks {
		if n.leaf != "" {
			return n.family, nil
		}
	}
	switch listType {
	case ipv4ACL:
		return coe.IPv4, nil
	case ipv6ACL:
		return coe.IPv6, nil
	}
	return 0, fmt.Errorf("a list of type %.60q permits nothing: use a list of type %s or %s", listType, ipv4ACL, ipv6ACL)
}

// aclProtocols are the protocols that have ports, with their numbers.
var aclProtocols = []struct {
	number uint8
	name   string
}{{6, "tcp"}, {17, "udp"}, {132, "sctp"}}

// ports returns the destination ports: of each protocol that has ports, if the entry names none.
// Without a protocol and ports all traffic matches.
func (m *aclMatches) ports() (ports []coe.PolicyPort, err error) {
	if m.Protocol == nil && m.ToPorts == nil {
		return nil, nil
	}
	var first, last uint16
	if m.ToPorts != nil {
		first, last = m.ToPorts.Lower, m.ToPorts.Lower
		if m.ToPorts.Upper != nil {
			last = *m.ToPorts.Upper
		}
		if first == 0 || last < first {
			return nil, within("destination-port-range", fmt.Errorf("%d to %d is not a range of ports; want 1..65535", first, last))
		}
	}
	for _, p := range aclProtocols {
		if m.Protocol == nil || *m.Protocol == p.number {
			ports = append(ports, coe.PolicyPort{Protocol: p.name, First: first, Last: last})
		}
	}
	if len(ports) == 0 {
		return nil, within("protocol", fmt.Errorf("protocol %d cannot be matched; want 6 (TCP), 17 (UDP), 132 (SCTP), or no protocol for all traffic", *m.Protocol))
	}
	return ports, nil
}
