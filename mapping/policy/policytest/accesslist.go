package policytest

import (
	"encoding/json"
	"net/netip"
)

// Profiles returns the names that ProfileName draws. Those of remote groups, which are UUIDs, are
// the last two.
func Profiles() []string {
	return []string{"web", "aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002"}
}

// ProfileName returns the name of a security profile.
func (g Generator) ProfileName() string { return Pick(g, Profiles()...) }

// AccessList returns an entry of ietf-access-control-list:access-lists/acl. Most have only entries
// that a policy can express.
func (g Generator) AccessList(name string) json.RawMessage {
	listType := Pick(g, "ietf-access-control-list:ipv4-acl", "ietf-access-control-list:ipv6-acl")
	entries := []any{}
	for n := range g.IntN(5) {
		entries = append(entries, g.entry(n))
	}
	if g.One(2) { // what is denied at the end is denied anyway
		entries = append(entries, map[string]any{"rule-name": "last", "aclservice:direction": g.direction()})
	}
	raw, err := json.Marshal(map[string]any{
		"acl-type": listType, "acl-name": name, "access-list-entries": map[string]any{"ace": entries},
	})
	if err != nil {
		panic("values of an access list have a JSON form: " + err.Error())
	}
	return raw
}

func (g Generator) direction() string {
	return Pick(g, "aclservice:direction-ingress", "aclservice:direction-egress")
}

// entry returns an entry of an access list.
func (g Generator) entry(n int) map[string]any {
	matches := map[string]any{}
	entry := map[string]any{
		"rule-name": string(rune('a' + n)), "matches": matches, "aclservice:direction": g.direction(),
		"actions": map[string]any{"permit": []any{nil}},
	}
	if g.One(12) {
		entry["actions"] = map[string]any{"deny": []any{nil}}
	}
	end := "source-"
	if entry["aclservice:direction"] == "aclservice:direction-egress" {
		end = "destination-"
	}
	address := Pick(g, g.Addresses...)
	network := end + "ipv6-network"
	if address.Is4() {
		network = end + "ipv4-network"
	}
	switch g.IntN(4) {
	case 0:
		matches[network] = netip.PrefixFrom(address, address.BitLen()-g.IntN(6)).Masked().String()
	case 1:
		matches[network] = netip.PrefixFrom(address, 0).Masked().String()
	}
	if _, whole := matches[network]; g.One(2) && (!whole || g.One(2)) {
		entry["aclservice:remote-group-id"] = Pick(g, Profiles()[1:]...)
	}
	if g.One(2) {
		matches["protocol"] = Pick(g, 6, 6, 17, 132)
	}
	if g.One(2) {
		ports := map[string]any{"lower-port": g.Number()}
		if g.One(2) {
			ports["upper-port"] = 80 + g.IntN(6)
		}
		matches["destination-port-range"] = ports
	}
	return entry
}
