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

// podWatch is the measurement's own watch. It notes the times at which pods are created and
// annotated.
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
	p := &podWatch{came: newMoments("watch events"), annotated: newMoments("annotations"), cancel: cancel}
	events, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	p.done.Go(func() { p.follow(ctx, client, events, now.ResourceVersion) })
	return p, nil
}

// follow reads events until ctx is done. The API server ends the watch of a slow watcher; follow
// then opens another watch.
func (p *podWatch) follow(ctx context.Context, client kubernetes.Interface, events watch.Interface, revision string) {
	for {
		revision = p.read(events, revision)
		if ctx.Err() != nil {
			return
		}
		var err error
		events, err = client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		if err != nil {
			return // await reports that the event is missing
		}
	}
}

// read reads events until the watch ends, and returns the revision of the last one.
func (p *podWatch) read(events watch.Interface, revision string) string {
	defer events.Stop()
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		revision = pod.ResourceVersion
		if e.Type == watch.Deleted {
			continue
		}
		p.came.note(key(pod.Namespace, pod.Name))
		if pod.Annotations[kube.InterfacesAnnotation] != "" {
			p.annotated.note(key(pod.Namespace, pod.Name))
		}
	}
	return revision
}

func (p *podWatch) stop() {
	p.cancel()
	p.done.Wait()
}
