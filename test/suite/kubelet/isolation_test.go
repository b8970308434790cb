package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// isolatingPolicies isolate all pods of the namespace in both directions. The pod web may connect to db.
const isolatingPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: work}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: work}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 8080}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: work}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]
`

// testIsolation: the bridge is restarted with --isolation namespace. Pods that policies isolate become ready,
// because kubelet probes them, and they and their own node reach each other. The policies between pods of the
// namespace are in force.
func (c *cluster) testIsolation(t *testing.T) {
	patch := []byte(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--isolation=namespace"}]`)
	_, err := c.Client().AppsV1().Deployments(kubelab.Namespace).Patch(t.Context(), "coe-bridge", types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = c.Run(t.Context(), "", "--namespace="+kubelab.Namespace, "rollout", "status", "deployment/coe-bridge", "--timeout=90s")
	require.NoError(t, err)
	require.NoError(t, c.ApplyManifest(t.Context(), isolatingPolicies))

	pods := []*corev1.Pod{newPod("web", "n1"), newPod("other", "n1"), newPod("db", "n2")}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	web, other, db := places[0], places[1], places[2]
	n1, n2 := c.Node("n1").Place(), c.Node("n2").Place()
	eventually(t, func(ctx context.Context) error { return fetch(ctx, web, db) })
	for _, way := range [][2]kubelab.Place{{other, db}, {web, other}, {db, web}} {
		c.refused(t, func(ctx context.Context) error {
			err := fetch(ctx, way[0], way[1])
			if err != nil && !strings.Contains(err.Error(), "timed out") {
				require.NoError(t, err)
			}
			return err
		}, "%s to %s", way[0].Name, way[1].Name)
	}
	c.refused(t, func(ctx context.Context) error { return web.Ping(ctx, db.Address) }, "the rule is about one port")
	for _, own := range [][2]kubelab.Place{{n1, web}, {n1, other}, {n2, db}} {
		reach(t, own[0], own[1])
		reach(t, own[1], own[0])
	}
	c.refused(t, func(ctx context.Context) error { return n1.Ping(ctx, db.Address) }, "a node reaches its own pods only")
	require.NoError(t, c.Client().NetworkingV1().NetworkPolicies(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually(t, func(ctx context.Context) error { return fetch(ctx, other, db) })
	c.delete(t, pods...)
}

// refused requires that a request fails. OpenDaylight can write the rules of a new pod moments after its ADD; OVN has them before
// the first packet.
func (c *cluster) refused(t *testing.T, request func(context.Context) error, what ...any) {
	t.Helper()
	if c.OpenDaylight == nil {
		require.Error(t, request(t.Context()), what...)
		return
	}
	require.True(t, assertEventually(t, func() bool { return request(t.Context()) != nil }), what...)
}

// fetch fetches a page from a pod. Its error has what curl prints about the connection.
func fetch(ctx context.Context, from, to kubelab.Place) error {
	_, err := from.Exec(ctx, "curl", "--silent", "--verbose", "--fail", "--max-time", "2", fmt.Sprintf("http://%s:8080/healthz", to.Address))
	return err
}
