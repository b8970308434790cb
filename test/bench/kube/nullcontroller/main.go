// Command nullcontroller is the reference for annotations: a usual controller of client-go. It
// patches one annotation of each pod that is created after its start, and does nothing else. It
// prints "ready" when it watches pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coe-bridge/coe-bridge/coe/kube"
)

const (
	workers = 16
	// backlog is the number of pods that can wait for a worker before the informer is blocked.
	backlog = 100_000
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nullcontroller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	queue := make(chan *corev1.Pod, backlog)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(o any, there bool) {
			if pod, ok := o.(*corev1.Pod); ok && !there {
				queue <- pod
			}
		}},
	})
	var all sync.WaitGroup
	all.Go(func() { informer.RunWithContext(ctx) })
	for range workers {
		all.Go(func() { patchAll(ctx, client, queue) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("watch pods: the program was ended before the first list was complete")
	}
	fmt.Println("ready")
	all.Wait()
	return nil
}

// patchAll patches pods until ctx is done.
func patchAll(ctx context.Context, client kubernetes.Interface, queue <-chan *corev1.Pod) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-queue:
			_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patchOf(p), metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "nullcontroller: patch pod %s/%s: %v\n", p.Namespace, p.Name, err)
			}
		}
	}
}

// patchOf returns a patch of the same size as a patch of the bridge.
func patchOf(p *corev1.Pod) []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"[{\"name\":\"%s:%s\",\"network\":\"10.200.0.1:%s\",\"ips\":[\"10.11.0.3/29\"],`+
		`\"mac\":\"0a:58:0a:0b:00:03\",\"gateways\":[\"10.11.0.1\"],\"default\":true}]"}}}`,
		kube.InterfacesAnnotation, p.Namespace, p.Name, p.Namespace)
}
