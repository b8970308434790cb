package report_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
	"github.com/coe-bridge/coe-bridge/coe/state"
	cluster "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const pairs = 5

// annotator annotates every pod until ctx is done, and notes in its watch what
// it sees.
type annotator func(ctx context.Context, b *testing.B, c *cluster.ControlPlane, w *watch)

// BenchmarkAnnotations compares the Reporter with a controller that only patches
// one annotation of each pod: five pairs, interleaved. It reports the median of each
// metric, and the median of the pairs' ratios.
func BenchmarkAnnotations(b *testing.B) {
	c := cluster.ForTest(b, cluster.Config{})
	_, err := c.MakeNamespaces(b.Context(), 4)
	require.NoError(b, err)
	for _, one := range []struct {
		name    string
		measure func(*testing.B, *cluster.ControlPlane, annotator) map[string]float64
	}{
		{"created", measureCreated},
		{"there", measureThere},
		{"churn", measureChurn},
	} {
		b.Run(one.name, func(b *testing.B) {
			for b.Loop() {
				compare(b, func(a annotator) map[string]float64 { return one.measure(b, c, a) })
			}
		})
	}
}

func compare(b *testing.B, measure func(annotator) map[string]float64) {
	values := map[string][]float64{}
	for range pairs {
		null, ours := measure(nullController), measure(reporter)
		for unit := range ours {
			values["null-"+unit] = append(values["null-"+unit], null[unit])
			values[unit] = append(values[unit], ours[unit])
			values[unit+"-ratio"] = append(values[unit+"-ratio"], ours[unit]/null[unit])
		}
	}
	for unit, v := range values {
		slices.Sort(v)
		b.ReportMetric(v[len(v)/2], unit)
	}
}

// measureCreated has 2,000 pods annotated while 20 workers create them.
func measureCreated(b *testing.B, c *cluster.ControlPlane, a annotator) map[string]float64 {
	w, stop := start(b, c, a)
	defer stop()
	load := cluster.PodLoad{Count: 2000, Namespaces: 4, Nodes: 10}
	begun := time.Now()
	_, err := c.MakePods(b.Context(), load)
	require.NoError(b, err)
	w.await(b, load.Count)
	took := time.Since(begun)
	_, err = c.DeletePods(b.Context(), load)
	require.NoError(b, err)
	return map[string]float64{"pods/s": float64(load.Count) / took.Seconds()}
}

// measureThere has 2,000 pods annotated that are there, with the processor time
// that it takes.
func measureThere(b *testing.B, c *cluster.ControlPlane, a annotator) map[string]float64 {
	load := cluster.PodLoad{Count: 2000, Namespaces: 4, Nodes: 10}
	_, err := c.MakePods(b.Context(), load)
	require.NoError(b, err)
	begun, before := time.Now(), processorTime()
	w, stop := start(b, c, a)
	w.await(b, load.Count)
	took, cpu := time.Since(begun), processorTime()-before
	stop()
	_, err = c.DeletePods(b.Context(), load)
	require.NoError(b, err)
	return map[string]float64{
		"pods/s":        float64(load.Count) / took.Seconds(),
		"cpu-ms/1kpods": cpu.Seconds() * 1e6 / float64(load.Count),
	}
}

// measureChurn creates 20 pods a second, and measures from a pod's first event to
// that of its annotation.
func measureChurn(b *testing.B, c *cluster.ControlPlane, a annotator) map[string]float64 {
	w, stop := start(b, c, a)
	defer stop()
	load := cluster.PodLoad{Count: 200, Namespaces: 4, Nodes: 10}
	tick := time.NewTicker(time.Second / 20)
	defer tick.Stop()
	for i := range load.Count {
		<-tick.C
		p := load.Pod(i)
		_, err := c.Client().CoreV1().Pods(p.Namespace).Create(b.Context(), p, metav1.CreateOptions{})
		require.NoError(b, err)
	}
	w.await(b, load.Count)
	_, err := c.DeletePods(b.Context(), load)
	require.NoError(b, err)
	return map[string]float64{"p50-ms": w.percentile(0.5), "p99-ms": w.percentile(0.99)}
}

// start runs an annotator until stop.
func start(b *testing.B, c *cluster.ControlPlane, a annotator) (w *watch, stop func()) {
	w = &watch{first: map[string]time.Time{}, took: map[string]time.Duration{}}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); a(ctx, b, c, w) }()
	return w, func() { cancel(); <-done }
}

// watch notes how long after a pod's first event its annotation is seen.
type watch struct {
	mu    sync.Mutex
	first map[string]time.Time
	took  map[string]time.Duration
}

func (w *watch) see(uid string, annotated bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if _, found := w.first[uid]; !found {
		w.first[uid] = now
	}
	if _, found := w.took[uid]; annotated && !found {
		w.took[uid] = now.Sub(w.first[uid])
	}
}

func (w *watch) await(b *testing.B, n int) {
	require.Eventually(b, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.took) == n
	}, patience.Patience, time.Millisecond)
}

func (w *watch) percentile(p float64) (ms float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for _, d := range w.took {
		all = append(all, d)
	}
	slices.Sort(all)
	return all[int(float64(len(all)-1)*p)].Seconds() * 1000
}

// reporter is the Reporter under a source.
func reporter(ctx context.Context, b *testing.B, c *cluster.ControlPlane, w *watch) {
	br := &bridge{leased: map[string]string{}}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	br.store = state.NewStore(func(c state.Changed) { br.reporter.Leased(c.Leased...) }, coe.Kubernetes)
	var err error
	br.reporter, err = report.New(report.Config{AnnotateQPS: math.Inf(1)}, c.RESTConfig(), br.store, prometheus.NewRegistry(), logger)
	require.NoError(b, err)
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	require.NoError(b, err)
	source := kube.NewWatcher(kube.Config{Client: client, Store: br.store, Log: logger, Observe: func(p kube.PodSeen) {
		if !p.Deleted {
			w.see(p.UID, p.Annotation != "")
		}
		br.observe(p)
	}})
	var parts sync.WaitGroup
	parts.Go(func() { _ = source.Run(ctx) })
	parts.Go(func() { br.reporter.Run(ctx) })
	parts.Wait()
}

// nullController patches an annotation of each pod that it sees without, with 16
// workers and no limit.
func nullController(ctx context.Context, b *testing.B, c *cluster.ControlPlane, w *watch) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	require.NoError(b, err)
	queue := make(chan *corev1.Pod, 100000)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for p := range queue {
				_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patchOf(p), metav1.PatchOptions{})
				if err != nil && ctx.Err() == nil {
					b.Errorf("patch pod: %v", err)
				}
			}
		})
	}
	see := func(p *corev1.Pod) {
		annotated := p.Annotations[kube.InterfacesAnnotation] != ""
		w.see(string(p.UID), annotated)
		if !annotated {
			queue <- p
		}
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	require.NoError(b, err)
	for i := range list.Items {
		see(&list.Items[i])
	}
	for revision := list.ResourceVersion; ctx.Err() == nil; {
		watch, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		if err != nil {
			continue
		}
		for e := range watch.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				revision = p.ResourceVersion
				if e.Type == "ADDED" || e.Type == "MODIFIED" && p.DeletionTimestamp == nil {
					see(p)
				}
			}
		}
	}
	close(queue)
	workers.Wait()
}

func patchOf(p *corev1.Pod) []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"[{\"name\":\"%s:%s\",\"network\":\"10.200.0.1:%s\",\"ips\":[\"10.11.0.3/29\"],`+
		`\"mac\":\"0a:58:0a:0b:00:03\",\"gateways\":[\"10.11.0.1\"],\"default\":true}]"}}}`,
		kube.InterfacesAnnotation, p.Namespace, p.Name, p.Namespace)
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
