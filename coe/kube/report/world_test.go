package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	podKind     = schema.GroupKind{Kind: "Pod"}
)

// world is a Store, a Reporter, and an API server in memory that the Reporter writes to.
type world struct {
	t        *testing.T
	store    *state.Store
	reporter *Reporter
	log      *bytes.Buffer // read only while all goroutines are idle

	mu       sync.Mutex
	revision int
	pods     map[string]*storedPod // by namespace/name
	patches  []note                // all received patches, including rejected ones
	underway map[string]int        // by namespace/name
	events   map[string]*corev1.Event
	latency  time.Duration
	fail     func() error // nil: nothing fails
}

type storedPod struct{ seen kube.PodSeen }

func newWorld(t *testing.T, cfg Config) *world {
	w := &world{
		t: t, log: &bytes.Buffer{},
		pods: map[string]*storedPod{}, underway: map[string]int{}, events: map[string]*corev1.Event{},
	}
	cfg.setDefaults()
	w.store = state.NewStore(func(c state.Changed) { w.reporter.Leased(c.Leased...) }, coe.RESTCONF, coe.Kubernetes)
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.reporter = newReporter(cfg, w, inbox{w}, w.store, prometheus.NewRegistry(), log)
	return w
}

// run runs the Reporter until stop, or the end of the test.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.reporter.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

// pass waits, and then for all goroutines to become idle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// create creates a pod in the Store and the Reporter.
func (w *world) create(name string, change ...func(*kube.PodSeen, *coe.Pod)) {
	w.mu.Lock()
	w.revision++
	uid := "uid-" + name
	seen := kube.PodSeen{UID: uid, Namespace: "shop", Name: name, ResourceVersion: strconv.Itoa(w.revision)}
	w.mu.Unlock()
	pod := &coe.Pod{UID: uid, Namespace: "shop", Name: name, NodeName: "node1", HostIP: netip.MustParseAddr("10.0.0.1")}
	for _, c := range change {
		c(&seen, pod)
	}
	w.mu.Lock()
	w.pods["shop/"+name] = &storedPod{seen}
	w.mu.Unlock()
	w.store.Update(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, pod) })
	w.reporter.Seen(seen)
}

// lease gives a pod an address, and returns the expected annotation.
func (w *world) lease(name, address string) string {
	l := &coe.Lease{
		PodUID: "uid-" + name, InterfaceUID: "uid-" + name, Namespace: "shop", Pod: name, Name: "shop:" + name, Primary: true,
		Node: netip.MustParseAddr("10.0.0.1"), MAC: "0a:58:0a:0b:00:03",
		Addresses: []coe.LeasedAddress{{Address: netip.MustParseAddr(address), Network: netip.MustParsePrefix(address + "/29")}},
	}
	w.store.Update(func(tx *state.Tx) { tx.PutLease(l) })
	return Encode(interfaces([]*coe.Lease{l}, 0))
}

// tamper changes a pod's annotation, and notifies the Reporter.
func (w *world) tamper(name, value string) {
	w.change(name, func(p *kube.PodSeen) { p.Annotation = value })
	w.tell(name)
}

func (w *world) change(name string, change func(*kube.PodSeen)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	p := w.pods["shop/"+name]
	change(&p.seen)
	p.seen.ResourceVersion = strconv.Itoa(w.revision)
}

// tell notifies the Reporter of the current state of a pod.
func (w *world) tell(name string) { w.reporter.Seen(w.pod(name)) }

func (w *world) pod(name string) kube.PodSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods["shop/"+name].seen
}

func (w *world) annotation(name string) string { return w.pod(name).Annotation }

// patched returns the number of received patches.
func (w *world) patched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.patches)
}

func (w *world) failWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = func() error { return err }
	if err == nil {
		w.fail = nil
	}
}

// slow delays every patch.
func (w *world) slow(latency time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency = latency
}

// drop deletes a pod without a notification.
func (w *world) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, "shop/"+name)
}

func (w *world) forgetEvents() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.events)
}

// annotate implements patcher.
func (w *world) annotate(ctx context.Context, n note) (string, error) {
	key := n.namespace + "/" + n.name
	w.enter(key, 1)
	defer w.enter(key, -1)
	if err := w.delay(ctx); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patches = append(w.patches, n)
	if w.fail != nil {
		return "", w.fail()
	}
	p := w.pods[key]
	switch {
	case p == nil:
		return "", apierrors.NewNotFound(podResource, n.name)
	case p.seen.UID != n.uid:
		return "", otherUID(n.name)
	case p.seen.Annotation != n.value || n.ready && !p.seen.IsReady:
		w.revision++
		p.seen.Annotation, p.seen.ResourceVersion = n.value, strconv.Itoa(w.revision)
		p.seen.IsReady = p.seen.IsReady || n.ready
	}
	return p.seen.ResourceVersion, nil
}

func (w *world) enter(key string, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underway[key] += by
	require.LessOrEqual(w.t, w.underway[key], 1, "concurrent patches of one pod")
}

func (w *world) delay(ctx context.Context) error {
	w.mu.Lock()
	latency := w.latency
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(latency):
		return nil
	}
}

// inbox is the world as a sender.
type inbox struct{ *world }

func (i inbox) create(_ context.Context, e *corev1.Event) error { return i.put(e, false) }
func (i inbox) repeat(_ context.Context, e *corev1.Event) error { return i.put(e, true) }

func (w *world) put(e *corev1.Event, repeated bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail()
	}
	_, found := w.events[e.Name]
	switch {
	case repeated && !found:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, e.Name)
	case !repeated && found:
		return errors.New("event is there already: " + e.Name)
	}
	w.events[e.Name] = e.DeepCopy()
	return nil
}

// told returns the Events as "type reason object message xcount", in any order.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := []string{}
	for _, e := range w.events {
		all = append(all, fmt.Sprintf("%s %s %s/%s: %s x%d", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message, e.Count))
	}
	return all
}

// otherUID is the API server's answer to a patch with another UID.
func otherUID(name string) error {
	err := apierrors.NewInvalid(podKind, name, nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "metadata.uid"}}
	return err
}

func forbiddenByRole() error {
	return apierrors.NewForbidden(podResource, "x", errors.New("no role allows it"))
}

func tooMany() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}}
}

func expired() error { return apierrors.NewUnauthorized("token has expired") }

// tooLong is an answer with the same code as otherUID for another reason.
func tooLong() error {
	err := apierrors.NewInvalid(podKind, "x", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "FieldValueTooLong", Field: "metadata.annotations"}}
	return err
}

func terminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}
