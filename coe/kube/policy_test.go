package kube_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

func networkPolicy(t *testing.T, spec string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("metadata: {name: p, namespace: shop, uid: AB}\nspec: "+spec), p))
	return p
}

// Everything that a policy can say.
func TestPolicySpec(t *testing.T) {
	spec, err := kube.PolicySpec(networkPolicy(t, `
  podSelector: {matchLabels: {b: x, a: ""}, matchExpressions: [{key: a, operator: NotIn, values: [w, v, w]}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist}]}
  policyTypes: [Egress, Ingress]
  ingress:
  - {}
  - from: []
    ports: []
  - from: [{podSelector: {}}, {namespaceSelector: {}}, {namespaceSelector: {matchLabels: {k: m}}, podSelector: {matchLabels: {p: q}}}]
    ports: [{}, {protocol: UDP}, {port: 80}, {port: http, protocol: SCTP}, {port: 1, endPort: 65535}]
  egress:
  - to: [{ipBlock: {cidr: 10.1.2.3/8, except: [10.1.0.0/16, 010.2.0.0/16]}}, {ipBlock: {cidr: "fd00::1/64"}}, {ipBlock: {cidr: "::ffff:192.0.2.0/120"}}]
`))
	require.NoError(t, err)
	cidr := netip.MustParsePrefix
	require.Equal(t, &coe.PolicySpec{
		Policy: coe.Policy{UID: "ab", Namespace: "shop", Name: "p", Kind: coe.NetworkPolicy},
		Pods: coe.Selector{Requirements: []coe.Requirement{
			{Key: "a", Operator: coe.In, Values: []string{""}},
			{Key: "a", Operator: coe.NotIn, Values: []string{"v", "w"}},
			{Key: "b", Operator: coe.In, Values: []string{"x"}},
			{Key: "c", Operator: coe.Exists},
			{Key: "d", Operator: coe.DoesNotExist},
		}},
		Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{}, {}, {
			Peers: []coe.PolicyPeer{
				{},
				{Namespaces: &coe.Selector{}},
				{
					Namespaces: &coe.Selector{Requirements: []coe.Requirement{{Key: "k", Operator: coe.In, Values: []string{"m"}}}},
					Pods:       coe.Selector{Requirements: []coe.Requirement{{Key: "p", Operator: coe.In, Values: []string{"q"}}}},
				},
			},
			Ports: []coe.PolicyPort{
				{Protocol: "tcp"}, {Protocol: "udp"}, {Protocol: "tcp", First: 80, Last: 80},
				{Protocol: "sctp", Name: "http"}, {Protocol: "tcp", First: 1, Last: 65535},
			},
		}}},
		Egress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Peers: []coe.PolicyPeer{
			{Block: &coe.AddressBlock{CIDR: cidr("10.0.0.0/8"), Except: []netip.Prefix{cidr("10.1.0.0/16"), cidr("10.2.0.0/16")}}},
			{Block: &coe.AddressBlock{CIDR: cidr("fd00::/64")}},
			{Block: &coe.AddressBlock{CIDR: cidr("192.0.2.0/24")}},
		}}}},
	}, spec)
	require.Equal(t, "a=,a notin (v,w),b=x,c,!d", spec.Pods.String())
}

// Without policyTypes a policy isolates ingress, and egress if it has egress rules.
func TestPolicySpecTypes(t *testing.T) {
	for _, c := range []struct {
		spec            string
		ingress, egress bool
	}{
		{`{}`, true, false},
		{`{ingress: []}`, true, false},
		{`{egress: []}`, true, false},
		{`{egress: [{}]}`, true, true},
		{`{policyTypes: [], egress: [{}]}`, true, true},
		{`{policyTypes: [Egress]}`, false, true},
		{`{policyTypes: [Ingress], egress: [{}]}`, true, false},
		{`{policyTypes: [Egress, Ingress]}`, true, true},
	} {
		spec, err := kube.PolicySpec(networkPolicy(t, c.spec))
		require.NoError(t, err)
		require.Equal(t, [2]bool{c.ingress, c.egress}, [2]bool{spec.Ingress.Isolates, spec.Egress.Isolates}, c.spec)
		require.True(t, spec.Egress.Isolates || len(spec.Egress.Rules) == 0, c.spec)
	}
}

// A policy with a wrong field isolates its pods and allows nothing.
func TestPolicyFailsClosed(t *testing.T) {
	closed := coe.PolicySide{Isolates: true}
	app := coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{"web"}}}}
	for name, c := range map[string]struct {
		spec, invalid string
		pods          coe.Selector
	}{
		"a rule": {
			`{podSelector: {matchLabels: {app: web}}, ingress: [{}, {ports: [{port: 0}]}]}`,
			`spec.ingress[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`, app,
		},
		"several fields": {
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [in, out, Egress]}`,
			`spec.policyTypes: Too many: 3: must have at most 2 items, and 2 more`, app,
		},
		"the selector": {
			`{podSelector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: In}]}}`,
			`spec.podSelector.matchExpressions[0].values: Required value: must be specified when ` + "`operator`" + ` is 'In' or 'NotIn'`, coe.Selector{},
		},
		"a long value": {
			`{podSelector: {matchLabels: {app: web}}, egress: [{ports: [{protocol: ` + strings.Repeat("p", 1000) + `}]}]}`,
			`spec.egress[0].ports[0].protocol: Unsupported value: "` + strings.Repeat("p", 458) + "…", app,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := &coe.PolicySpec{
				Policy: coe.Policy{UID: "ab", Namespace: "shop", Name: "p", Kind: coe.NetworkPolicy, Invalid: c.invalid},
				Pods:   c.pods, Ingress: closed, Egress: closed,
			}
			require.Equal(t, want, kube.Policy(networkPolicy(t, c.spec)))
		})
	}
	in := networkPolicy(t, `{egress: [{}]}`)
	spec, err := kube.PolicySpec(in)
	require.NoError(t, err)
	require.Equal(t, spec, kube.Policy(in), "a valid policy")
}

// The error of what an API server refuses names the field.
func TestPolicySpecRefuses(t *testing.T) {
	peer := func(text string) string { return `{ingress: [{from: [` + text + `]}]}` }
	port := func(text string) string { return `{egress: [{ports: [` + text + `]}]}` }
	for name, c := range map[string]struct{ spec, want string }{
		"type":                {`{policyTypes: [ingress]}`, `spec.policyTypes[0]: Unsupported value: "ingress"`},
		"three types":         {`{policyTypes: [Ingress, Egress, Ingress]}`, `spec.policyTypes: Too many`},
		"operator":            {`{podSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}}`, `spec.podSelector.matchExpressions[0].operator: Invalid value: "Equals"`},
		"no values":           {`{podSelector: {matchExpressions: [{key: a, operator: In}]}}`, `spec.podSelector.matchExpressions[0].values: Required value`},
		"values":              {peer(`{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`), `spec.ingress[0].from[0].podSelector.matchExpressions[0].values: Forbidden`},
		"label":               {peer(`{namespaceSelector: {matchLabels: {a b: c}}}`), `spec.ingress[0].from[0].namespaceSelector.matchLabels: Invalid value: "a b"`},
		"value":               {peer(`{namespaceSelector: {matchLabels: {a: "c d"}}}`), `spec.ingress[0].from[0].namespaceSelector.matchLabels: Invalid value: "c d"`},
		"no peer":             {peer(`{}`), `spec.ingress[0].from[0]: Required value`},
		"two peers":           {peer(`{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}`), `spec.ingress[0].from[0]: Forbidden`},
		"no cidr":             {peer(`{ipBlock: {cidr: ""}}`), `spec.ingress[0].from[0].ipBlock.cidr: Required value`},
		"address":             {peer(`{ipBlock: {cidr: 10.0.0.1}}`), `spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1"`},
		"except outside":      {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}`), `spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16"`},
		"except of all":       {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}`), `spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8"`},
		"except larger":       {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/7]}}`), `spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "10.0.0.0/7"`},
		"except, family":      {peer(`{ipBlock: {cidr: 0.0.0.0/0, except: ["fd00::/8"]}}`), `spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "fd00::/8"`},
		"protocol":            {port(`{protocol: tcp}`), `spec.egress[0].ports[0].protocol: Unsupported value: "tcp"`},
		"port 0":              {port(`{port: 0}`), `spec.egress[0].ports[0].port: Invalid value: 0`},
		"port 65536":          {port(`{port: 65536}`), `spec.egress[0].ports[0].port: Invalid value: 65536`},
		"port name":           {port(`{port: "80"}`), `spec.egress[0].ports[0].port: Invalid value: "80"`},
		"empty port name":     {port(`{port: ""}`), `spec.egress[0].ports[0].port: Invalid value: ""`},
		"endPort alone":       {port(`{endPort: 80}`), `spec.egress[0].ports[0].endPort: Forbidden`},
		"endPort with a name": {port(`{port: http, endPort: 80}`), `spec.egress[0].ports[0].endPort: Forbidden`},
		"endPort lower":       {port(`{port: 80, endPort: 79}`), `spec.egress[0].ports[0].endPort: Invalid value: 79: want at least port, which is 80`},
		"endPort 65536":       {port(`{port: 80, endPort: 65536}`), `spec.egress[0].ports[0].endPort: Invalid value: 65536`},
		"without effect":      {`{policyTypes: [Egress], ingress: [{ports: [{port: 0}]}]}`, `spec.ingress[0].ports[0].port: Invalid value: 0`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kube.PolicySpec(networkPolicy(t, c.spec))
			require.ErrorContains(t, err, c.want)
		})
	}
}
