package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/exec"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// answers is a prober whose probes take a second. Each probe of a pod gets the next text of agnhost, and
// then always the last one; an empty text is a connection.
type answers struct {
	mutex sync.Mutex
	texts map[string][]string
	order []string // the pods in the order of their probes
	err   error    // of all probes
}

func (a *answers) exec(ctx context.Context, pod string, _ ...string) (stdout, stderr string, err error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.order = append(a.order, pod)
	if a.err != nil {
		return "", "", a.err
	}
	texts := a.texts[pod]
	if len(texts) == 0 || texts[0] == "" {
		a.texts[pod] = texts[min(len(texts), 1):]
		return "", "", nil
	}
	if len(texts) > 1 {
		a.texts[pod] = texts[1:]
	}
	return "", texts[0], exec.CodeExitError{Err: errors.New("failed"), Code: 1}
}

var (
	path   = connectivity.Check{Kind: connectivity.OtherNode, From: "client-1", To: "server-2", Protocol: connectivity.TCP, Target: "10.3.0.2:8080"}
	denied = connectivity.Check{Kind: connectivity.PolicyDeny, From: "client-1", Protocol: connectivity.TCP, Target: "10.3.0.2:8080", Blocked: true}
)

// check runs a check whose probes get texts.
func check(ctx context.Context, c connectivity.Check, texts ...string) connectivity.Result {
	t := fakeTest()
	t.exec = (&answers{texts: map[string][]string{c.From: texts}}).exec
	return t.check(ctx, c)
}

// A check is repeated for some time, and not longer.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		check  connectivity.Check
		texts  []string
		status connectivity.Status
		reason string
		takes  time.Duration
	}{
		"at once":      {path, []string{""}, connectivity.Passed, "", time.Second},
		"late":         {path, []string{"REFUSED", ""}, connectivity.Passed, "", 4*time.Second + 3*pause},
		"never":        {path, []string{"TIMEOUT"}, connectivity.Failed, "no answer", 8*time.Second + 7*pause},
		"unreliable":   {path, []string{"TIMEOUT", "", "TIMEOUT", ""}, connectivity.Failed, "2 of 3 probes connected: no answer", 4*time.Second + 3*pause},
		"denied":       {denied, []string{"TIMEOUT"}, connectivity.Passed, "", 3*time.Second + 2*pause},
		"never denied": {denied, []string{""}, connectivity.Failed, "connected, although a policy denies it", 8*time.Second + 7*pause},
		"not run":      {path, []string{"unknown flag"}, connectivity.Failed, "the probe did not run: unknown flag", 8*time.Second + 7*pause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := check(t.Context(), test.check, test.texts...)
				require.Equal(t, test.status, r.Status)
				require.Equal(t, test.reason, r.Reason)
				require.Equal(t, test.takes, time.Since(start))
			})
		})
	}
}

// An interrupt ends a check, during a probe and between two of them. Nothing is known then.
func TestCheckInterrupted(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second / 2, time.Second + pause/2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, errors.New("interrupted"))
			defer cancel()
			start := time.Now()
			r := check(ctx, path, "TIMEOUT")
			require.Equal(t, after, time.Since(start))
			require.Equal(t, connectivity.Skipped, r.Status)
			require.Equal(t, "not run: interrupted", r.Reason)
		})
	}
}

// Checks that must not connect wait for those that must.
func TestRunStageOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test, probes := fakeTest(), &answers{texts: map[string][]string{"client-1": {"TIMEOUT", ""}, "client-2": {"TIMEOUT"}}}
		test.exec = probes.exec
		allowed, blocked := path, denied
		allowed.Stage, blocked.Stage, blocked.From = connectivity.Allowed, connectivity.Allowed, "client-2"
		test.checks = []connectivity.Check{blocked, allowed}
		for _, c := range []connectivity.Check{path, blocked} {
			c.Stage = connectivity.Open
			test.results = append(test.results, connectivity.Result{Check: c, Status: connectivity.Passed})
		}
		test.runStage(t.Context(), connectivity.Allowed, test.allowFirst)
		passed, failed, skipped := connectivity.Count(test.results)
		require.Equal(t, []int{4, 0, 0}, []int{passed, failed, skipped})
		require.Equal(t, []string{"client-1", "client-1", "client-1", "client-1", "client-2", "client-2", "client-2"}, probes.order)
	})
}

// A policy that the API server refuses is a failure.
func TestRunStageRefused(t *testing.T) {
	test := fakeTest()
	test.checks = []connectivity.Check{denied}
	test.checks[0].Stage = connectivity.Denied
	test.results = []connectivity.Result{{Check: denied, Status: connectivity.Passed}}
	test.runStage(t.Context(), connectivity.Denied, func(context.Context) error { return errors.New("quota") })
	require.Len(t, test.results, 2)
	require.Equal(t, connectivity.Failed, test.results[1].Status)
	require.Equal(t, "quota", test.results[1].Reason)
}

// node returns a node that is ready.
func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0.1"}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

// Every node that is not used has a reason.
func TestChooseNodes(t *testing.T) {
	change := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := node(name)
		change(n)
		return n
	}
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	test := fakeTest(
		node("a"), node("b"), node("c"), node("d"),
		change("e", func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
			n.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeUnreachable)}
		}),
		change("f", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeNetworkUnavailable)} }),
		change("g", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("gpu")} }),
		change("h", func(n *corev1.Node) {
			n.Spec.Unschedulable, n.Status.Conditions[0].Status = true, corev1.ConditionFalse
		}),
		change("i", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "windows"} }),
	)
	require.NoError(t, test.chooseNodes(t.Context()))
	require.Equal(t, "a, b, c", nodeNames(test.facts.Nodes))
	require.Equal(t, 9, test.facts.AllNodes)
	require.Equal(t, []connectivity.UnusedNode{
		{Name: "e", Reason: "is not ready: NodeStatusUnknown", IsBroken: true},
		{Name: "f", Reason: "has the taint node.kubernetes.io/network-unavailable", IsBroken: true},
		{Name: "g", Reason: "has the taint gpu"}, {Name: "h", Reason: "is cordoned"}, {Name: "i", Reason: "is a Windows node"},
	}, test.facts.Unused)
	require.EqualError(t, fakeTest().chooseNodes(t.Context()), "the cluster has no nodes")
}

// pods returns a test with a client and a server on each of two nodes.
func pods(a *answers) *test {
	t := fakeTest()
	t.exec = a.exec
	for i, name := range []string{"n1", "n2"} {
		t.facts.Nodes = append(t.facts.Nodes, connectivity.Node{Name: name})
		for j, role := range []connectivity.Role{connectivity.Client, connectivity.Server} {
			t.facts.Pods = append(t.facts.Pods, connectivity.Pod{
				Name: fmt.Sprintf("%s-%d", role, i+1), Node: name, Role: role, Addresses: addresses([]string{fmt.Sprintf("10.2.%d.%d", i, j)}),
			})
		}
	}
	return t
}

// reasons returns the numbers of results with a status and reason.
func reasons(results []connectivity.Result, kinds ...connectivity.Kind) map[string]int {
	numbers := map[string]int{}
	for _, r := range results {
		if slices.Contains(kinds, r.Kind) {
			numbers[strings.TrimSuffix(string(r.Status)+": "+r.Reason, ": ")]++
		}
	}
	return numbers
}

// An interrupted test keeps what it has found.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The MTUs take 2 s, and the first probes of the 8 checks between pods another second.
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second+time.Second/2, errors.New("interrupted"))
		defer cancel()
		test := pods(&answers{texts: map[string][]string{"client-2": {"TIMEOUT"}}})
		require.EqualError(t, test.runStages(ctx), "interrupted")
		require.Equal(t, map[string]int{"passed": 4}, reasons(test.results, connectivity.PodStart))
		require.Equal(t, map[string]int{"passed": 4, "skipped: not run: interrupted": 4}, reasons(test.results, connectivity.SameNode, connectivity.OtherNode))
		require.Equal(t, map[string]int{
			"skipped: not run: interrupted": 4, "skipped: the path fails without a policy, or was not checked": 4,
		}, reasons(test.results, connectivity.PolicyDeny, connectivity.PolicyAllow))
	})
}

// An interrupt is the cause of what fails after it.
func TestInterruptedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	test := fakeTest()
	test.client.(*fake.Clientset).PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		cancel(errors.New("interrupted"))
		return true, nil, ctx.Err()
	})
	report, err := test.test(ctx)
	require.EqualError(t, err, "interrupted")
	require.Nil(t, report)
}

// If no probe runs, the test fails as a whole.
func TestNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := pods(&answers{err: errors.New("no tunnel")})
		require.EqualError(t, test.runStages(t.Context()), "the probe did not run: no tunnel")
		require.Equal(t, map[string]int{"failed: the probe did not run: no tunnel": 8}, reasons(test.results, connectivity.SameNode, connectivity.OtherNode))
	})
}

// Without the right to run programs in pods, nothing is created.
func TestMayExec(t *testing.T) {
	for _, isAllowed := range []bool{true, false} {
		test := fakeTest()
		client := test.client.(*fake.Clientset)
		client.PrependReactor("create", "selfsubjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
			review := a.(k8stesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			require.Equal(t, "create x pods/exec", fmt.Sprintf("%s %s %s/%s", review.Spec.ResourceAttributes.Verb, review.Spec.ResourceAttributes.Namespace,
				review.Spec.ResourceAttributes.Resource, review.Spec.ResourceAttributes.Subresource))
			review.Status.Allowed = isAllowed
			return true, review, nil
		})
		if isAllowed {
			require.NoError(t, test.mayExec(t.Context()))
			continue
		}
		require.ErrorContains(t, test.createAndRun(t.Context()), "no right to create pods/exec")
		require.Len(t, client.Actions(), 1)
	}
}

// Without websockets the API server is asked with SPDY.
func TestFallback(t *testing.T) {
	var methods []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method+" "+r.Header.Get("Upgrade"))
		status := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "client-1", errors.New("not yours")).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		assert.NoError(t, json.NewEncoder(w).Encode(status))
	}))
	defer server.Close()
	cfg := Config{API: &rest.Config{Host: server.URL}}
	test := newTest(cfg, kubernetes.NewForConfigOrDie(cfg.API), minLife)
	_, _, err := test.run(t.Context(), "client-1", agnhost)
	require.ErrorContains(t, err, "not yours")
	require.Equal(t, []string{"GET websocket", "POST SPDY/3.1"}, methods)
}

// Only the namespace that the test has created is removed, also after an interrupt, which is then told.
func TestCleanup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var lines []string
	test := fakeTest()
	test.Interrupted = func(line string) { lines = append(lines, line) }
	client := test.client.(*fake.Clientset)
	client.PrependReactor("create", "namespaces", func(a k8stesting.Action) (bool, runtime.Object, error) {
		a.(k8stesting.CreateAction).GetObject().(*corev1.Namespace).UID = "uid"
		return false, nil, nil
	})
	client.PrependReactor("delete", "namespaces", func(a k8stesting.Action) (bool, runtime.Object, error) {
		require.Equal(t, "uid", string(*a.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions.UID))
		return true, nil, errors.New("no")
	})
	require.ErrorIs(t, test.create(ctx), context.Canceled)
	require.EqualError(t, test.cleanup(ctx), "remove namespace x: no: remove it with kubectl delete namespace x")
	require.Equal(t, []string{"removing namespace x"}, lines)
}

// A namespace that was not created is neither removed nor kept.
func TestCleanupNothing(t *testing.T) {
	for _, keep := range []bool{false, true} {
		test := fakeTest()
		test.Keep = keep
		test.Progress = func(line string) { require.NotContains(t, line, "kept") }
		client := test.client.(*fake.Clientset)
		client.PrependReactor("create", "namespaces", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
		require.EqualError(t, test.create(t.Context()), "create namespace x: no")
		require.NoError(t, test.cleanup(t.Context()))
		require.Len(t, client.Actions(), 1)
	}
}

// Pods live longer than their test.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]time.Duration{15 * time.Minute: time.Hour, 2 * time.Hour: 2*time.Hour + 5*time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			require.Equal(t, want, lifeOf(ctx))
			cancel()
		}
		require.Equal(t, time.Hour, lifeOf(t.Context()))
	})
}
