package northbound_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
)

func accessList(t *testing.T, entries string) *coe.PolicySpec {
	t.Helper()
	p, err := northbound.AccessList([]byte(`{"acl-type":"ietf-access-control-list:ipv4-acl","acl-name":"web","access-list-entries":{"ace":[` + entries + `]}}`))
	require.NoError(t, err)
	return p
}

// ace returns an entry that permits.
func ace(direction, matches, more string) string {
	return `{"rule-name":"a","matches":{` + matches + `},"actions":{"permit":[null]},"aclservice:direction":"aclservice:direction-` + direction + `"` + more + `}`
}

const (
	denyIngress = `{"rule-name":"drop","aclservice:direction":"aclservice:direction-ingress"}`
	remoteGroup = `,"aclservice:remote-group-id":"aaaaaaaa-0000-4000-8000-000000000001"`
)

// Everything that an access list can say.
func TestAccessList(t *testing.T) {
	cidr := netip.MustParsePrefix
	group := coe.PolicyPeer{Namespaces: &coe.Selector{}, Pods: coe.ProfileSelector("aaaaaaaa-0000-4000-8000-000000000001")}
	block := func(p string) []coe.PolicyPeer { return []coe.PolicyPeer{{Block: &coe.AddressBlock{CIDR: cidr(p)}}} }
	require.Equal(t, &coe.PolicySpec{
		Policy: coe.Policy{UID: "ietf-access-control-list:ipv4-acl web", Name: "web", Kind: coe.AccessList},
		Pods:   coe.ProfileSelector("web"),
		Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{
			{Name: "a", Family: coe.IPv4},
			{Name: "a", Family: coe.IPv4, Peers: block("10.0.0.0/8"), Ports: []coe.PolicyPort{{Protocol: "tcp", First: 80, Last: 80}}},
			{Name: "a", Family: coe.IPv6, Peers: block("fd00::/8"), Ports: []coe.PolicyPort{{Protocol: "udp", First: 53, Last: 54}}},
			{Name: "a", Family: coe.IPv6, Peers: []coe.PolicyPeer{group}, Ports: []coe.PolicyPort{{Protocol: "sctp"}}},
		}},
		Egress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{
			{Name: "a", Family: coe.IPv4, Peers: []coe.PolicyPeer{group}, Ports: []coe.PolicyPort{
				{Protocol: "tcp", First: 1, Last: 2}, {Protocol: "udp", First: 1, Last: 2}, {Protocol: "sctp", First: 1, Last: 2},
			}},
			{Name: "a", Family: coe.IPv4, Peers: block("192.0.2.0/24")},
		}},
	}, accessList(t, strings.Join([]string{
		ace("ingress", `"source-ipv4-network":"0.0.0.0/0","destination-ipv4-network":"0.0.0.0/0"`, ""),
		ace("ingress", `"source-ipv4-network":"10.0.0.0/8","protocol":6,"destination-port-range":{"lower-port":80}`, ""),
		ace("egress", `"destination-port-range":{"lower-port":1,"upper-port":2}`, remoteGroup),
		ace("ingress", `"source-ipv6-network":"fd00::/8","protocol":17,"destination-port-range":{"lower-port":53,"upper-port":54}`, ""),
		ace("ingress", `"source-ipv6-network":"::/0","protocol":132`, remoteGroup),
		denyIngress,
		ace("egress", `"destination-ipv4-network":"192.0.2.0/24"`, ""), // denied in the other direction only
		denyIngress,
	}, ",")))
}

// A list without entries, and one that denies, isolates.
func TestAccessListDenies(t *testing.T) {
	closed := coe.PolicySide{Isolates: true}
	p := accessList(t, "")
	require.Equal(t, [2]coe.PolicySide{closed, closed}, [2]coe.PolicySide{p.Ingress, p.Egress})
	require.Empty(t, p.Invalid)
	p = accessList(t, denyIngress)
	require.Equal(t, [2]coe.PolicySide{closed, {}}, [2]coe.PolicySide{p.Ingress, p.Egress})
	require.Empty(t, p.Invalid)
}

// A list with an entry that cannot be enforced names it, isolates its pods, and permits nothing.
func TestAccessListFailsClosed(t *testing.T) {
	for name, c := range map[string]struct{ entries, invalid string }{
		"deny before permit": {denyIngress + "," + ace("ingress", "", ""), `ace "a": it permits after the entry "drop" has denied`},
		"no direction":       {`{"rule-name":"a"}`, `ace "a"/direction: want direction-ingress or direction-egress`},
		"source ports":       {ace("ingress", `"source-port-range":{"lower-port":1}`, ""), `ace "a"/source-port-range: source ports`},
		"MAC address":        {ace("ingress", `"source-mac-address":"0a:58:00:00:00:01"`, ""), `ace "a": MAC addresses`},
		"ICMP":               {ace("ingress", `"protocol":1`, ""), `ace "a"/protocol: protocol 1 cannot be matched`},
		"port 0":             {ace("ingress", `"destination-port-range":{"lower-port":0,"upper-port":1}`, ""), `ace "a"/destination-port-range: 0 to 1`},
		"range":              {ace("ingress", `"destination-port-range":{"lower-port":2,"upper-port":1}`, ""), `ace "a"/destination-port-range: 2 to 1`},
		"own address":        {ace("ingress", `"destination-ipv4-network":"10.0.0.1/32"`, ""), `ace "a"/destination-ipv4-network: the address of the pod itself`},
		"own address out":    {ace("egress", `"source-ipv6-network":"fd00::1/128"`, ""), `ace "a"/source-ipv6-network: the address of the pod itself`},
		"network and group":  {ace("ingress", `"source-ipv4-network":"10.0.0.0/8"`, remoteGroup), `ace "a"/source-ipv4-network: it excludes remote-group-id`},
		"family":             {ace("ingress", `"source-ipv4-network":"fd00::/8"`, ""), `ace "a"/source-ipv4-network: fd00::/8 is not an IPv4 prefix`},
	} {
		t.Run(name, func(t *testing.T) {
			requireClosed(t, accessList(t, ace("egress", "", "")+","+c.entries), c.invalid)
		})
	}
	p, err := northbound.AccessList([]byte(`{"acl-type":"ietf-access-control-list:eth-acl","acl-name":"web","access-list-entries":{"ace":[` + ace("egress", "", "") + `]}}`))
	require.NoError(t, err)
	requireClosed(t, p, `ace "a": a list of type "ietf-access-control-list:eth-acl" permits nothing`)
}

func requireClosed(t *testing.T, p *coe.PolicySpec, invalid string) {
	t.Helper()
	require.Contains(t, p.Invalid, invalid)
	closed := coe.PolicySide{Isolates: true}
	require.Equal(t, [2]coe.PolicySide{closed, closed}, [2]coe.PolicySide{p.Ingress, p.Egress})
}

// The rules of a valid list allow what the first matching entry permits: a connection without such
// an entry is denied in each direction that the list has entries for.
func FuzzAccessList(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		addresses := []netip.Addr{
			netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.20"), netip.MustParseAddr("fd00::3"), netip.MustParseAddr("fd00::14"),
		}
		g := policytest.New(seed, addresses...)
		raw := g.AccessList("web")
		p, err := northbound.AccessList(raw)
		require.NoError(t, err)
		if p.Invalid != "" {
			requireClosed(t, p, "ace")
			return
		}
		var list firstMatch
		require.NoError(t, json.Unmarshal(raw, &list))
		for _, c := range connections(addresses) {
			for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
				require.Equal(t, list.permits(d, c), !p.Side(d).Isolates || slices.ContainsFunc(p.Side(d).Rules, c.matches), "%s: %s %+v", raw, d, c)
			}
		}
	})
}

// Whatever the datastore has, the reader returns an error or a list.
func FuzzAccessListBytes(f *testing.F) {
	f.Add([]byte(`{"acl-name":"web","access-list-entries":{"ace":[` + ace("egress", `"protocol":6`, remoteGroup) + `]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := northbound.AccessList(raw); err == nil {
			require.True(t, p.Ingress.Isolates || p.Egress.Isolates)
			require.NotNil(t, p.Pods.Requirements)
		}
	})
}

// connection is a connection of a pod with a peer.
type connection struct {
	peer     netip.Addr
	profile  string // of the peer
	protocol string
	port     uint16
}

func connections(peers []netip.Addr) (all []connection) {
	for _, peer := range peers {
		for _, profile := range append(policytest.Profiles(), "other") {
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				for port := uint16(79); port < 87; port++ {
					all = append(all, connection{peer, profile, protocol, port})
				}
			}
		}
	}
	return all
}

// matches reports whether a rule allows the connection.
func (c connection) matches(r coe.PolicyRule) bool {
	labels := coe.Labels{}.WithProfiles(c.profile)
	isPeer := func(p coe.PolicyPeer) bool {
		return p.Block != nil && p.Block.Contains(c.peer) || p.Block == nil && p.Pods.Matches(labels)
	}
	hasPort := func(p coe.PolicyPort) bool {
		return p.Protocol == c.protocol && (p.Last == 0 || p.First <= c.port && c.port <= p.Last)
	}
	return r.Family.Has(c.peer) && (len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, isPeer)) &&
		(len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, hasPort))
}

// firstMatch is an access list as its model defines it: the first entry that matches decides.
type firstMatch struct {
	Type    string `json:"acl-type"`
	Entries struct {
		List []struct {
			Direction string                     `json:"aclservice:direction"`
			Remote    string                     `json:"aclservice:remote-group-id"`
			Actions   map[string]json.RawMessage `json:"actions"`
			Matches   map[string]json.RawMessage `json:"matches"`
		} `json:"ace"`
	} `json:"access-list-entries"`
}

// permits reports whether the list permits a connection in a direction. Without entries for the
// direction it says nothing about it, except if it has none at all.
func (l *firstMatch) permits(d coe.Direction, c connection) bool {
	isolates := len(l.Entries.List) == 0
	for _, e := range l.Entries.List {
		if !strings.HasSuffix(e.Direction, string(d)) {
			continue
		}
		isolates = true
		if matches(e.Matches, l.Type, c) && (e.Remote == "" || e.Remote == c.profile) {
			return e.Actions["permit"] != nil
		}
	}
	return !isolates
}

// matches reports whether a connection has the values of leaves.
func matches(leaves map[string]json.RawMessage, listType string, c connection) bool {
	hasNetwork := false
	for leaf, raw := range leaves {
		switch {
		case strings.HasSuffix(leaf, "-network"):
			var p netip.Prefix
			hasNetwork = true
			if json.Unmarshal(raw, &p) != nil || !p.Contains(c.peer) {
				return false
			}
		case leaf == "protocol":
			if string(raw) != map[string]string{"tcp": "6", "udp": "17", "sctp": "132"}[c.protocol] {
				return false
			}
		case leaf == "destination-port-range":
			var r map[string]uint16
			if json.Unmarshal(raw, &r) != nil || c.port < r["lower-port"] || c.port > max(r["lower-port"], r["upper-port"]) {
				return false
			}
		}
	}
	return hasNetwork || strings.HasSuffix(listType, "ipv4-acl") == c.peer.Is4()
}
