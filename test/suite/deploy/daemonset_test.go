package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// The API server accepts all manifests of deploy/, twice. They cause an agent on every node, even if
// the node is not ready.
func TestAgentsAreEverywhere(t *testing.T) {
	plane := kube.ForTest(t, kube.Config{RBAC: true, ControllerManager: true, Scheduler: true})
	c := &cluster{ControlPlane: plane}
	for _, n := range nodes {
		c.join(t, n.name, n.address)
	}
	worker := newNode("worker", "10.0.0.21")
	delete(worker.Labels, "node-role.kubernetes.io/control-plane")
	worker.Spec.Taints = append(worker.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute})
	_, err := plane.Client().CoreV1().Nodes().Create(t.Context(), worker, metav1.CreateOptions{})
	require.NoError(t, err)
	for range 2 {
		_, err = plane.Kubectl(t.Context(), "apply", "--server-side", "--kustomize", root+"/deploy")
		require.NoError(t, err)
	}
	pods := c.pods(t, "agent", len(nodes)+1)
	for _, p := range pods {
		require.True(t, p.Spec.HostNetwork)
		require.Equal(t, "system-node-critical", p.Spec.PriorityClassName)
	}
	agents, err := plane.Client().AppsV1().DaemonSets(namespace).Get(t.Context(), "coe-bridge-agent", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, agents.Spec.UpdateStrategy.Type)
	agentMay(t, plane)
}

// agentMay asks the API server for the rights of an agent. An agent can only find out whether it is
// uninstalled.
func agentMay(t *testing.T, plane *kube.ControlPlane) {
	t.Helper()
	account := "--as=system:serviceaccount:" + namespace + ":coe-bridge-agent"
	for question, want := range map[string]string{
		"coe-bridge get daemonsets.apps": "yes", "coe-bridge get namespaces": "yes", // a namespace belongs to itself
		"default get daemonsets.apps": "no", "default get namespaces": "no",
		"coe-bridge list daemonsets.apps": "no", "coe-bridge patch daemonsets.apps": "no", "coe-bridge delete daemonsets.apps": "no",
		"coe-bridge list pods": "no", "coe-bridge get pods": "no", "coe-bridge get secrets": "no", "coe-bridge get nodes": "no", "coe-bridge patch nodes": "no",
		"coe-bridge create tokenreviews.authentication.k8s.io": "no", "coe-bridge create serviceaccounts/token": "no", "coe-bridge * *": "no",
	} {
		words := strings.Fields(question)
		answer, err := plane.Kubectl(t.Context(), "auth", "can-i", "--namespace="+words[0], words[1], words[2], account)
		require.Equal(t, want, strings.TrimSpace(answer), question)
		require.Equal(t, want == "yes", err == nil, question)
	}
}
