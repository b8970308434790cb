package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const planPolicy = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: prometheus, namespace: ops}
spec:
  podSelector: {}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]
    ports: [{port: 9090}]
`

// TestPlanOfRunningCluster: a policy closes connections to the pods it selects, except those that
// its rules allow, and those from the pods' own node.
func TestPlanOfRunningCluster(t *testing.T) {
	for name, format := range map[string]string{"running.txt": "table", "running.json": "json"} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, planPolicy, "plan", "-f", "-", "--cluster", policyCluster, "--only", "paths", "-o", format)
			require.NoError(t, err)
			requireGolden(t, "testdata/plan/"+name, out)
		})
	}
	out, err := run(t, planPolicy, "plan", "-f", "-", "--kubeconfig", apiServer(t, policyCluster), "--only", "paths")
	require.NoError(t, err)
	requireGolden(t, "testdata/plan/running.txt", out)
}

// TestPlanOfRunningClusterChanges: a plan of what the cluster has changes nothing, and a pod that
// moves changes only its own objects and rows.
func TestPlanOfRunningClusterChanges(t *testing.T) {
	out, err := run(t, "", "plan", "-f", policyCluster, "--cluster", policyCluster)
	require.NoError(t, err)
	require.Contains(t, out, "no changes\n")
	require.Contains(t, out, "no rows in OVN\n")
	require.Contains(t, out, "close and open:\nnone\n")

	const pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.1.0.2, hostIP: 192.168.0.1}}"
	out, err = run(t, pod, "plan", "-f", "-", "--cluster", policyCluster, "--pool", "10.1.0.0/16")
	require.NoError(t, err)
	require.Contains(t, out, "shop:web")
	require.NotContains(t, out, "prometheus")
}
