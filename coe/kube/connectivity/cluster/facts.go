package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// defaultKubeletPort is the port of a kubelet whose node does not report it.
const defaultKubeletPort = 10250

// listTimeout bounds the first request to the API server.
const listTimeout = 30 * time.Second

// chooseNodes chooses nodes on which any pod may run, and asks whether there is a name server.
func (t *test) chooseNodes(ctx context.Context) error {
	t.Progress("asking the API server for the nodes")
	listing, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("the API server has not answered within %s", listTimeout))
	defer cancel()
	nodes, err := t.client.CoreV1().Nodes().List(listing, metav1.ListOptions{})
	if listing.Err() != nil {
		err = context.Cause(listing)
	}
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	t.facts.Machine = thisMachine(nodes.Items)
	if len(nodes.Items) == 0 {
		return errors.New("the cluster has no nodes")
	}
	t.facts.AllNodes = len(nodes.Items)
	var refused []string
	for _, n := range nodes.Items {
		if reason, isBroken := unusable(n); reason != "" {
			t.facts.Unused = append(t.facts.Unused, connectivity.UnusedNode{Name: n.Name, Reason: reason, IsBroken: isBroken})
			refused = append(refused, n.Name+" "+reason)
		} else if len(t.facts.Nodes) < t.Nodes {
			t.facts.Nodes = append(t.facts.Nodes, nodeFact(n))
		}
	}
	if len(t.facts.Nodes) == 0 {
		return fmt.Errorf("no node can run the pods of the test: %s", strings.Join(refused, ", "))
	}
	for _, namespace := range []string{metav1.NamespaceSystem, "openshift-dns"} {
		services, err := t.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("find the name server: list services of %s: %w", namespace, err)
		}
		t.facts.DNS = t.facts.DNS || slices.ContainsFunc(services.Items, servesNames)
	}
	return nil
}

// unusable returns why a pod without tolerations does not run on a node; empty if it does. The node is
// broken if nobody has taken it out of service.
func unusable(n corev1.Node) (reason string, isBroken bool) {
	if n.Spec.Unschedulable {
		return "is cordoned", false
	}
	if n.Labels[corev1.LabelOSStable] == "windows" {
		return "is a Windows node", false
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(brokenTaints, taint.Key) {
			return "has the taint " + taint.Key, false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			if c.Reason == "" {
				return "is not ready", true
			}
			return "is not ready: " + c.Reason, true
		}
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return "has the taint " + taint.Key, true
		}
	}
	return "", false
}

// brokenTaints are the taints by which Kubernetes marks nodes that should run pods, but cannot.
var brokenTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable}

func nodeFact(n corev1.Node) connectivity.Node {
	fact := connectivity.Node{Name: n.Name, Port: defaultKubeletPort}
	if port := n.Status.DaemonEndpoints.KubeletEndpoint.Port; port > 0 {
		fact.Port = uint16(port)
	}
	var texts []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			texts = append(texts, a.Address)
		}
	}
	fact.Addresses = addresses(texts)
	return fact
}

// servesNames reports whether a service is a name server.
func servesNames(s corev1.Service) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 53 && p.Protocol == corev1.ProtocolUDP })
}

// addresses parses addresses, without texts like None.
func addresses(texts []string) (parsed []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			parsed = append(parsed, a)
		}
	}
	return parsed
}

func nodeNames(nodes []connectivity.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// awaitPods waits until all pods run, for StartTimeout at most. It adds their addresses to the facts, or
// the reason why they do not run.
func (t *test) awaitPods(ctx context.Context) error {
	started, cancel := context.WithTimeout(ctx, t.StartTimeout)
	defer cancel()
	pods, shown := map[string]*corev1.Pod{}, starting{report: t.Progress, reasons: map[string]bool{}}
	areSettled := func() bool {
		return !slices.ContainsFunc(t.facts.Pods, func(p connectivity.Pod) bool { return p.Problem == "" && !isSettled(pods[p.Name]) })
	}
	objects := cache.NewListWatchFromClient(t.client.CoreV1().RESTClient(), "pods", t.namespace, fields.Everything())
	_, err := toolswatch.UntilWithSync(started, objects, &corev1.Pod{},
		func(cache.Store) (bool, error) { return areSettled(), nil }, // if all pods were refused, there will be no event
		func(event watch.Event) (bool, error) {
			if pod, is := event.Object.(*corev1.Pod); is {
				pods[pod.Name] = pod
				shown.follow(pods, pod, len(t.facts.Pods))
			}
			return areSettled(), nil
		})
	if err != nil && started.Err() == nil {
		return fmt.Errorf("wait for pods: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range t.facts.Pods {
		fact := &t.facts.Pods[i]
		if pod := pods[fact.Name]; fact.Problem == "" && !runs(pod) {
			fact.Problem = t.whyNot(ctx, fact.Name, pod)
		} else if pod != nil {
			var texts []string
			for _, ip := range pod.Status.PodIPs {
				texts = append(texts, ip.IP)
			}
			fact.Addresses = addresses(texts)
		}
	}
	return nil
}

// starting reports how many pods run, and each reason why a pod does not run yet, once.
type starting struct {
	report  func(line string)
	running int
	reasons map[string]bool
}

// follow reports what is new with a pod that has changed.
func (s *starting) follow(pods map[string]*corev1.Pod, changed *corev1.Pod, all int) {
	running := 0
	for _, p := range pods {
		if runs(p) {
			running++
		}
	}
	if running != s.running {
		s.running = running
		s.report(fmt.Sprintf("%d of %d pods run", running, all))
	}
	for _, status := range changed.Status.ContainerStatuses {
		if reason := waitsFor(status); reason != "" && !s.reasons[reason] {
			s.reasons[reason] = true
			s.report(fmt.Sprintf("pod %s on node %s does not run yet: %s", changed.Name, changed.Spec.NodeName, reason))
		}
	}
}

// waitsFor returns why a container waits; empty if it does not wait, or is just being created.
func waitsFor(s corev1.ContainerStatus) string {
	if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		return w.Reason + ": " + w.Message
	}
	return ""
}

// awaitGone waits until the namespace is removed.
func (t *test) awaitGone(ctx context.Context) error {
	selected := fields.OneTermEqualSelector("metadata.name", t.namespace)
	objects := cache.NewListWatchFromClient(t.client.CoreV1().RESTClient(), "namespaces", metav1.NamespaceAll, selected)
	_, err := toolswatch.UntilWithSync(ctx, objects, &corev1.Namespace{},
		func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil },
		func(event watch.Event) (bool, error) { return event.Type == watch.Deleted, nil })
	if err != nil && ctx.Err() != nil {
		return errors.New("the API server still has it after " + cleanupTimeout.String())
	}
	return err
}

// runs reports whether a pod has addresses and its program runs.
func runs(p *corev1.Pod) bool {
	return p != nil && len(p.Status.PodIPs) > 0 && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isSettled reports whether a pod runs, or never will.
func isSettled(p *corev1.Pod) bool {
	return runs(p) || p != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
}

// eventTimeout bounds the request for the events of a pod.
const eventTimeout = 10 * time.Second

// whyNot returns why a pod does not run: what kubelet says about its container or, while it has no
// sandbox, the last warning about it.
func (t *test) whyNot(ctx context.Context, name string, p *corev1.Pod) string {
	if p == nil {
		return "the API server has not listed the pod"
	}
	if p.Status.Message != "" {
		return p.Status.Reason + ": " + p.Status.Message
	}
	for _, s := range p.Status.ContainerStatuses {
		if reason := waitsFor(s); reason != "" {
			return reason
		}
		if e := s.State.Terminated; e != nil {
			return fmt.Sprintf("its program has ended with status %d: %s", e.ExitCode, e.Reason)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	events, err := t.client.CoreV1().Events(t.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": name, "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return fmt.Sprintf("it does not run after %s; list its events: %v", t.StartTimeout, err)
	}
	reason := fmt.Sprintf("it does not run after %s, and has no event that says why", t.StartTimeout)
	var last time.Time
	for _, e := range events.Items {
		if at := latest(e); !at.Before(last) {
			last, reason = at, e.Reason+": "+e.Message
		}
	}
	return reason
}

// latest returns when an event was last seen.
func latest(e corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}
