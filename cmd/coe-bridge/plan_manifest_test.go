package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const planStory = "testdata/plan/story"

// A story of a node, pods, services with and without an EndpointSlice, and what is
// no business of a bridge, in manifests, with a pool in COE JSON.
func TestPlanOfManifests(t *testing.T) {
	pool := file(t, "pool.json", pool)
	for name, args := range map[string][]string{
		"story.txt":  {"-f", planStory + ".yaml", "-f", pool},
		"story.json": {"-f", pool, "-f", planStory + ".yaml", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", append([]string{"plan"}, args...)...)
			require.NoError(t, err)
			requireGolden(t, "testdata/plan/"+name, out)
		})
	}
	again, err := run(t, "", "plan", "-f", planStory+".yaml", "--pool", "10.11.2.0/24")
	require.NoError(t, err)
	requireGolden(t, "testdata/plan/story.txt", again)
}

func requireGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the file is out of date: run go test ./cmd/coe-bridge -run TestPlan -update")
}

// TestPlanOfDataInYAML: plan also reads the YAML that get --documents writes and apply
// reads.
func TestPlanOfDataInYAML(t *testing.T) {
	out, err := run(t, sheet, "plan", "-f", "-", "--only", "netvirt")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^create +adjacency +shop:api 10\.11\.2\.\d `, out)
	for name, c := range map[string]struct{ text, says string }{
		"invalid value":   {strings.Replace(sheet, "*node", "192.168.33", 1), "standard input:13: pods " + apiUID + `: host-ip-address: "192.168.33"`},
		"unknown top":     {"foo: bar\n", `standard input:1: "foo" is nothing that is written to a bridge`},
		"not mapped":      {"network-policy: [{uuid: " + webUID + "}]\n", `plan standard input:1: "k8s:network-policy" is not the name of input for a bridge`},
		"data, manifests": {sheet + "---\nkind: Pod\napiVersion: v1\n", "standard input:20: it is a manifest for Kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, c.text, "plan", "-f", "-")
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestPlanOfManifestsWithProblems: the problem of a manifest that cannot be mapped says
// what is missing.
func TestPlanOfManifestsWithProblems(t *testing.T) {
	for _, c := range []struct{ name, document, want string }{
		{"no node", "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}", "problem: pod web of namespace shop: NoNode: "},
		{"unknown node", "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeName: n1}}", "problem: pod web of namespace default: NoNode: "},
		{"no pool", "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeName: n1}, status: {hostIP: 192.0.2.1}}", "problem: pod web of namespace default: NoAddress: "},
		{"no cluster address", "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}", "problem: service web of namespace default: NoClusterIP: "},
		{"hidden", "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}}", "skipped: DaemonSet web: its controller creates the pods; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, "---\n"+c.document, "plan", "-f", "-")
			if strings.HasPrefix(c.want, "problem: ") {
				require.ErrorContains(t, err, "not everything can be mapped")
			} else {
				require.NoError(t, err)
			}
			require.Contains(t, out, c.want)
		})
	}
	out, err := run(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"hostNetwork": true}}`, "plan", "-f", "-")
	require.NoError(t, err)
	require.NotContains(t, out, "problem")

	out, err = run(t, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {coe-bridge.io/isolation: \"yes\"}}}", "plan", "-f", "-")
	require.NoError(t, err, "what is not enforced does not count")
	require.Contains(t, out, "problem: namespace shop of namespace shop: NotEnforced: ")
}

func TestPlanOfBadManifests(t *testing.T) {
	for _, c := range []struct{ name, document, want string }{
		{"field", "kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec: {nodeNam: n1}", `plan standard input: document 1: Pod web: unknown field "spec.nodeNam"`},
		{"COE JSON among manifests", "kind: Pod\napiVersion: v1\nmetadata: {name: web}\n---\n" + web, "plan standard input: document 2: want a Kubernetes object with apiVersion and kind"},
		{"text", "hello", "plan standard input: document 1: want a Kubernetes object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, c.document, "plan", "-f", "-")
			require.Empty(t, strings.TrimSpace(out))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The pool "services" stands for the addresses that an API server gives to
// services, and a service leads to the pods that it selects.
func TestPlanOfManifestsChoosesServiceAddresses(t *testing.T) {
	out, err := run(t, `---
{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {nodeName: n1}, status: {hostIP: 192.0.2.1, podIP: 10.1.2.3}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, protocol: UDP}]}}
`, "plan", "-f", "-", "--pool", "services=10.96.0.0/24", "--pod-network", "10.1.2.0/24", "--only", "ovn")
	require.NoError(t, err)
	require.Contains(t, out, "  protocol=udp\n")
	require.Contains(t, out, "  vips={10.96.0.2:80=10.1.2.3:80}\n")
}

// Nodes' pod-cidrs are pools where that is asked for, unless they overlap another.
func TestPlanOfManifestsWithNodePools(t *testing.T) {
	const manifests = `---
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24]}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeName: n1}}
`
	out, err := run(t, manifests, "plan", "-f", "-")
	require.EqualError(t, err, "plan: not everything can be mapped; problems: 1")
	require.Contains(t, out, "problem: pod web of namespace default: NoAddress: ")
	out, err = run(t, manifests, "plan", "-f", "-", "--node-pod-cidrs")
	require.NoError(t, err)
	require.Contains(t, out, "10.244.1.2")
	require.NotContains(t, out, "problem")
	out, err = run(t, manifests, "plan", "-f", "-", "--node-pod-cidrs", "--pool", "other=10.244.0.0/16")
	require.ErrorContains(t, err, "not everything can be mapped")
	require.Contains(t, out, "problem: node n1: PoolOverlaps: its pod-cidr 10.244.1.0/24 is not used as a pool")
}
