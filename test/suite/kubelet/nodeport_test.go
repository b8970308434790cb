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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// testNodePorts: a client outside the cluster and nodes reach a pod by the node port of its service, at
// each node. With the policy Local the pod sees the client. Nothing is left after the service. The agents
// run as the guide installs them.
func (c *cluster) testNodePorts(t *testing.T) {
	pod := newPod("exposed", "n2")
	c.create(t, pod)
	place := c.ready(t, pod)[0]
	services := c.Client().CoreV1().Services(namespace)
	service, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "exposed"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "exposed"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	n1, n2, outside := c.Node("n1").Place(), c.Node("n2").Place(), c.Outside()
	seen := func(ctx context.Context, from, node kubelab.Place) (client string, err error) {
		return from.Get(ctx, fmt.Sprintf("http://%s:%d/clientip", node.Address, service.Spec.Ports[0].NodePort))
	}
	for _, node := range []kubelab.Place{n1, n2} {
		for _, from := range []kubelab.Place{outside, n1, n2, place} {
			eventually(t, func(ctx context.Context) error {
				_, err := seen(ctx, from, node)
				return err
			})
		}
	}

	_, err = services.Patch(t.Context(), "exposed", types.MergePatchType, []byte(`{"spec":{"externalTrafficPolicy":"Local"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, func(ctx context.Context) error {
		client, err := seen(ctx, outside, n2)
		if err == nil && !strings.HasPrefix(client, outside.Address.String()+":") {
			err = fmt.Errorf("the pod sees %s", client)
		}
		return err
	})
	require.NoError(t, services.Delete(t.Context(), "exposed", metav1.DeleteOptions{}))
	list, left := []string{"nft", "list", "tables"}, "node-ports"
	if c.OpenDaylight != nil { // the table also has the cluster addresses of other services
		list, left = []string{"nft", "list", "table", "ip", "coe-bridge-node-ports"}, fmt.Sprint(service.Spec.Ports[0].NodePort)
	}
	for _, n := range c.Nodes {
		eventually(t, func(ctx context.Context) error {
			has, err := n.Place().Exec(ctx, list...)
			if err == nil && strings.Contains(has, left) {
				err = fmt.Errorf("node %s still has %s: %s", n.Name, left, has)
			}
			return err
		})
	}
	c.delete(t, pod)
}
