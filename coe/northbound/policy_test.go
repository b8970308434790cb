package northbound_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
)

func networkPolicy(t *testing.T, spec string) *coe.PolicySpec {
	t.Helper()
	p, err := northbound.NetworkPolicy([]byte(`{"uuid":"u","name":"deny","network-policy-spec":` + spec + `}`))
	require.NoError(t, err)
	return p
}

// ingressRule returns a spec with a rule, whose pods have the label app=web.
func ingressRule(rule string) string {
	return `{"pod-selector":{"match-labels":[{"key":"app","value":"web"}]},"ingress":[{},{"network-policy-ingress-rule":` + rule + `}]}`
}

var appIsWeb = coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{"web"}}}}

// Everything that an entry can say.
func TestNetworkPolicy(t *testing.T) {
	cidr := netip.MustParsePrefix
	tier := &coe.Selector{Requirements: []coe.Requirement{{Key: "example.com/tier", Operator: coe.In, Values: []string{""}}}}
	require.Equal(t, &coe.PolicySpec{
		Policy: coe.Policy{UID: "u", Namespace: "default", Name: "deny", Kind: coe.NetworkPolicy},
		Pods: coe.Selector{Requirements: []coe.Requirement{
			{Key: "a", Operator: coe.In, Values: []string{"v"}}, {Key: "b", Operator: coe.In, Values: []string{"w"}},
		}},
		Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{}, {
			Peers: []coe.PolicyPeer{{}, {Namespaces: &coe.Selector{}}, {Namespaces: tier, Pods: appIsWeb}},
			Ports: []coe.PolicyPort{{Protocol: "tcp"}, {Protocol: "udp", First: 53, Last: 53}, {Protocol: "sctp", Name: "http-2"}},
		}}},
		Egress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Peers: []coe.PolicyPeer{
			{Block: &coe.AddressBlock{CIDR: cidr("10.0.0.0/8"), Except: []netip.Prefix{cidr("10.1.0.0/16")}}},
			{Block: &coe.AddressBlock{CIDR: cidr("192.0.2.0/24")}},
			{Block: &coe.AddressBlock{CIDR: cidr("fd00::/8")}},
		}}}},
	}, networkPolicy(t, `{
		"pod-selector":{"match-labels":[{"key":"b","value":"w"},{"key":"a","value":"v"},{"key":"b","value":"w"}]},
		"ingress":[{},{"network-policy-ingress-rule":{
			"from":[
				{"network-policy-peer":{"peer-pod-selector":{}}},
				{"network-policy-peer":{"peer-namespace-selector":{}}},
				{"network-policy-peer":{"peer-namespace-selector":{"match-labels":[{"key":"example.com/tier"}]},"peer-pod-selector":{"match-labels":[{"key":"app","value":"web"}]}}}
			],
			"ingress-ports":[{},{"network-policy-port":{"protocol":"UDP","port":"53"}},{"network-policy-port":{"protocol":"SCTP","port":"http-2"}}]
		}}],
		"egress":[{"network-policy-egress-rule":{"to":[
			{"network-policy-peer":{"ip-block":{"cidr":"10.1.2.3/8","except":["10.1.0.0/16"]}}},
			{"network-policy-peer":{"ip-block":{"cidr":"::ffff:192.0.2.1/120"}}},
			{"network-policy-peer":{"ip-block":{"cidr":"fd00::1/8"}}}
		]}}]
	}`))
}

// Absent values mean what they mean in Kubernetes.
func TestNetworkPolicyTypes(t *testing.T) {
	for spec, want := range map[string][2]bool{
		`{}`:                          {true, false},
		`{"egress":[{}]}`:             {true, true},
		`{"policy-types":["egress"]}`: {false, true},
		`{"policy-types":["ingress"],"egress":[{}]}`: {true, false},
	} {
		p := networkPolicy(t, spec)
		require.Equal(t, want, [2]bool{p.Ingress.Isolates, p.Egress.Isolates}, spec)
		require.True(t, p.Egress.Isolates || len(p.Egress.Rules) == 0, spec)
		require.Empty(t, p.Invalid)
	}
}

// A policy with a wrong value names it, isolates its pods, and allows nothing.
// A policy or an access list above a limit isolates its pods and allows nothing.
func TestPoliciesAboveALimit(t *testing.T) {
	closed := coe.PolicySide{Isolates: true}
	port := `{"network-policy-port":{"protocol":"TCP","port":"80"}},`
	rule := func(ports int) string {
		return ingressRule(`{"ingress-ports":[` + strings.TrimSuffix(strings.Repeat(port, ports), ",") + `]}`)
	}
	require.Empty(t, networkPolicy(t, rule(coe.MaxPolicyEntries-4)).Invalid)
	p := networkPolicy(t, rule(coe.MaxPolicyEntries-3))
	require.Contains(t, p.Invalid, "network-policy-spec: its rules, peers and ports have more than 2500 entries")
	require.Equal(t, []coe.PolicySide{closed, closed}, []coe.PolicySide{p.Ingress, p.Egress})
	require.Equal(t, appIsWeb, p.Pods)

	entries := func(n int) *coe.PolicySpec {
		entry := `{"rule-name":"e","aclservice:direction":"aclservice:direction-ingress","actions":{"permit":[null]}},`
		p, err := northbound.AccessList([]byte(`{"acl-type":"ietf-access-control-list:ipv4-acl","acl-name":"l","access-list-entries":{"ace":[` +
			strings.TrimSuffix(strings.Repeat(entry, n), ",") + `]}}`))
		require.NoError(t, err)
		return p
	}
	require.Empty(t, entries(coe.MaxPolicyEntries/2).Invalid)
	p = entries(coe.MaxPolicyEntries + 1)
	require.Contains(t, p.Invalid, "access-list-entries: its rules, peers and ports have more than 2500 entries")
	require.Equal(t, []coe.PolicySide{closed, closed}, []coe.PolicySide{p.Ingress, p.Egress})
}

func TestNetworkPolicyFailsClosed(t *testing.T) {
	peer := func(peer string) string { return ingressRule(`{"from":[{"network-policy-peer":` + peer + `}]}`) }
	port := func(port string) string {
		return ingressRule(`{"ingress-ports":[{},{"network-policy-port":{"port":"` + port + `"}}]}`)
	}
	for name, c := range map[string]struct {
		spec, invalid string
		all           bool // it selects all pods
	}{
		"port 0":         {port("0"), `ingress[1]/ingress-ports[1]/port: "0" is neither`, false},
		"port 65536":     {port("65536"), `ingress[1]/ingress-ports[1]/port: "65536" is neither`, false},
		"no port":        {port(""), `ingress[1]/ingress-ports[1]/port: "" is neither`, false},
		"port name":      {port("a--b"), `ingress[1]/ingress-ports[1]/port: "a--b" is neither`, false},
		"long port name": {port(strings.Repeat("a", 16)), `ingress[1]/ingress-ports[1]/port: "aaaaaaaaaaaaaaaa" is neither`, false},
		"no peer":        {peer(`{}`), `ingress[1]/from[0]: want peer-pod-selector, peer-namespace-selector or ip-block`, false},
		"two peers":      {peer(`{"peer-pod-selector":{},"ip-block":{"cidr":"10.0.0.0/8"}}`), `ingress[1]/from[0]: ip-block excludes`, false},
		"address":        {peer(`{"ip-block":{"cidr":"10.0.0.1"}}`), `ingress[1]/from[0]/ip-block/cidr: "10.0.0.1" is not a prefix`, false},
		"except":         {peer(`{"ip-block":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}}`), `ingress[1]/from[0]/ip-block/except[0]: 10.0.0.0/8 is not a part of`, false},
		"except, family": {peer(`{"ip-block":{"cidr":"10.0.0.0/8","except":["fd00::/9"]}}`), `ingress[1]/from[0]/ip-block/except[0]: fd00::/9 is not a part of`, false},
		"two values": {
			peer(`{"peer-pod-selector":{"match-labels":[{"key":"a","value":"b"},{"key":"a","value":"c"}]}}`),
			`ingress[1]/from[0]/peer-pod-selector/match-labels[1]: the label a cannot have two values`, false,
		},
		"key": {
			peer(`{"peer-namespace-selector":{"match-labels":[{"value":"b"}]}}`),
			`ingress[1]/from[0]/peer-namespace-selector/match-labels[0]/key: "" is not the key`, false,
		},
		"without effect": {
			`{"pod-selector":{"match-labels":[{"key":"app","value":"web"}]},"policy-types":["ingress"],"egress":[{"network-policy-egress-rule":{"to":[{}]}}]}`,
			`egress[0]/to[0]: want`, false,
		},
		"selector": {
			`{"pod-selector":{"match-labels":[{"key":"a","value":"b"},{"key":"a","value":"b,c=d"}]}}`,
			`pod-selector/match-labels[1]/value: "b,c=d" is not the value of a label`, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := networkPolicy(t, c.spec)
			require.Contains(t, p.Invalid, "network-policy-spec/"+c.invalid)
			p.Invalid = ""
			closed := coe.PolicySide{Isolates: true}
			want := &coe.PolicySpec{
				Policy: coe.Policy{UID: "u", Namespace: "default", Name: "deny", Kind: coe.NetworkPolicy},
				Pods:   appIsWeb, Ingress: closed, Egress: closed,
			}
			if c.all {
				want.Pods = coe.Selector{}
			}
			require.Equal(t, want, p)
		})
	}
}
