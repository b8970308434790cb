package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

func event(name, reason, message string, last time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x"}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: corev1.ObjectReference{Name: "client-1"}, LastTimestamp: metav1.NewTime(last),
	}
}

// A pod that does not run has the most precise reason that Kubernetes gives.
func TestWhyNot(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	now := time.Now()
	series := event("c", "Failed", "again", time.Time{})
	series.EventTime = metav1.NewMicroTime(now)
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(now.Add(time.Minute))}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		events []runtime.Object
		want   string
	}{
		"refused by kubelet": {corev1.PodStatus{Reason: "OutOfpods", Message: "Node didn't have enough resource"}, nil, "OutOfpods: Node didn't have enough resource"},
		"no image":           {waiting("ImagePullBackOff", "Back-off pulling image"), nil, "ImagePullBackOff: Back-off pulling image"},
		"ended": {
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
			}}},
			nil, "its program has ended with status 1: Error",
		},
		"no network": {
			waiting("ContainerCreating", ""),
			[]runtime.Object{event("a", "FailedCreatePodSandBox", "plugin failed", now), event("b", "FailedMount", "timed out", now.Add(-time.Minute))},
			"FailedCreatePodSandBox: plugin failed",
		},
		"repeated": {
			waiting("ContainerCreating", ""), []runtime.Object{event("a", "FailedCreatePodSandBox", "plugin failed", now), series}, "Failed: again",
		},
		"unknown": {waiting("ContainerCreating", ""), nil, "it does not run after 2m0s, and has no event that says why"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, fakeTest(test.events...).whyNot(t.Context(), "client-1", &corev1.Pod{Status: test.status}))
		})
	}
	require.Equal(t, "the API server has not listed the pod", fakeTest().whyNot(t.Context(), "client-1", nil))
}

// While pods start, there is a line for each change of their number, and for each reason.
func TestProgressOfStart(t *testing.T) {
	var lines []string
	shown := starting{report: func(line string) { lines = append(lines, line) }, reasons: map[string]bool{}}
	pods := map[string]*corev1.Pod{}
	change := func(name string, status corev1.PodStatus) {
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: status}
		shown.follow(pods, pods[name], 2)
	}
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "not found"}},
		}}}
	}
	ready := corev1.PodStatus{
		PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	change("client-1", waiting("ContainerCreating"))
	change("client-1", waiting("ErrImagePull"))
	change("server-1", waiting("ErrImagePull"))
	change("client-1", ready)
	change("client-1", ready)
	change("server-1", ready)
	require.Equal(t, []string{"pod client-1 on node n1 does not run yet: ErrImagePull: not found", "1 of 2 pods run", "2 of 2 pods run"}, lines)
}

// fakeTest returns a test of a cluster that has some objects.
func fakeTest(objects ...runtime.Object) *test {
	silent := func(string) {}
	cfg := Config{StartTimeout: 2 * time.Minute, Nodes: 3, Progress: silent, Interrupted: silent}
	t := newTest(cfg, fake.NewClientset(objects...), minLife)
	t.namespace = "x"
	return t
}
