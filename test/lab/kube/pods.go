package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodLoad is a number of pods in the first namespaces of MakeNamespaces, and in each on the first nodes of MakeNodes.
type PodLoad struct {
	Count      int
	Namespaces int               // default 1
	Nodes      int               // 0 if the scheduler chooses
	Workers    int               // default Workers
	Prefix     string            // of the pods' names, default "pod-"
	Labels     map[string]string // of each pod
}

func (l PodLoad) withDefaults() PodLoad {
	l.Namespaces = max(l.Namespaces, 1)
	if l.Workers == 0 {
		l.Workers = Workers
	}
	if l.Prefix == "" {
		l.Prefix = "pod-"
	}
	return l
}

// Pod returns the pod with a number. It has no grace period, so that the API server deletes it in one call, without a
// kubelet.
func (l PodLoad) Pod(i int) *corev1.Pod {
	l = l.withDefaults()
	node := ""
	if l.Nodes > 0 {
		node = Node(i / l.Namespaces % l.Nodes)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace(i % l.Namespaces),
			Name:      l.Prefix + strconv.Itoa(i),
			Labels:    l.Labels,
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name:  "main",
				Image: "localhost/none",
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			}},
		},
	}
}

// MakePods creates the pods of a load.
func (c *ControlPlane) MakePods(ctx context.Context, l PodLoad) (Timings, error) {
	l = l.withDefaults()
	return Each(ctx, l.Count, l.Workers, func(ctx context.Context, i int) error {
		pod := l.Pod(i)
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil
	})
}

// DeletePods deletes the existing pods of a load.
func (c *ControlPlane) DeletePods(ctx context.Context, l PodLoad) (Timings, error) {
	l = l.withDefaults()
	return Each(ctx, l.Count, l.Workers, func(ctx context.Context, i int) error {
		pod := l.Pod(i)
		err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		if err != nil {
			return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil
	})
}

// PodStatus is the status that a kubelet would set. Zero fields except Ready stay unchanged.
type PodStatus struct {
	Phase     corev1.PodPhase
	Addresses []netip.Addr // one for each family, the default family first
	Ready     bool
}

// SetPodStatus sets the status like a kubelet.
func (c *ControlPlane) SetPodStatus(ctx context.Context, namespace, name string, s PodStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": s.patch()})
	if err != nil {
		return fmt.Errorf("set status of pod %s/%s: %w", namespace, name, err)
	}
	_, err = c.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set status of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

func (s PodStatus) patch() map[string]any {
	condition := map[string]any{"type": corev1.PodReady, "status": corev1.ConditionFalse}
	if s.Ready {
		condition["status"] = corev1.ConditionTrue
	}
	status := map[string]any{"conditions": []any{condition}}
	if s.Phase != "" {
		status["phase"] = s.Phase
	}
	if len(s.Addresses) > 0 {
		ips := make([]corev1.PodIP, len(s.Addresses))
		for i, a := range s.Addresses {
			ips[i].IP = a.String()
		}
		status["podIP"], status["podIPs"] = ips[0].IP, ips
	}
	return status
}
