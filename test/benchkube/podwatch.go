package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// podWatch is a watch of the measurement's own: when pods come, and when their
// annotations do.
type podWatch struct {
	came, annotated *moments

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// watchPods watches pods from now on.
func (w *world) watchPods(ctx context.Context) (*podWatch, error) {
	client, err := kubernetes.NewForConfig(w.plane.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	now, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	p := &podWatch{came: newMoments("watch events"), annotated: newMoments("annotations"), cancel: cancel}
	p.done.Go(func() { p.follow(events) })
	return p, nil
}

// follow takes events until the watch ends. The API server ends none within the
// half hour in which it is used.
func (p *podWatch) follow(events watch.Interface) {
	defer events.Stop()
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted {
			continue
		}
		p.came.note(key(pod.Namespace, pod.Name))
		if pod.Annotations[kube.InterfacesAnnotation] != "" {
			p.annotated.note(key(pod.Namespace, pod.Name))
		}
	}
}

func (p *podWatch) stop() {
	p.cancel()
	p.done.Wait()
}
