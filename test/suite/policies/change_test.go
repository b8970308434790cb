package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// changing is a cluster that changes. The namespace shop has the pods a, b and c.
type changing struct {
	*cluster
	labels   map[string]map[string]string // of namespaces
	policies []*networkingv1.NetworkPolicy
}

// TestChanges probes every connection after changes of pods, namespaces and policies.
func TestChanges(t *testing.T) {
	t.Parallel()
	c := &changing{cluster: startCluster(t), labels: map[string]map[string]string{"shop": nil, "guest": nil}}
	for name := range c.labels {
		c.makeNamespace(name, nil)
	}
	c.makeNamespace(marked, nil)
	c.create(&pod{namespace: marked, name: "pod", host: hosts[0]})
	c.runThree("shop")
	for _, step := range []struct {
		name string
		run  func(*changing)
	}{
		{"namespace relabelled while a pod starts", (*changing).relabelWhileStarting},
		{"pod re-created with its address", (*changing).recreate},
		{"finished pod", (*changing).finish},
		{"pod on the host network", (*changing).hostNetwork},
		{"policy deleted and re-created under traffic", (*changing).underTraffic},
		{"pod that reaches itself through a service", (*changing).hairpin},
	} {
		t.Run(step.name, func(t *testing.T) {
			c.t = t
			step.run(c)
		})
		c.t = t
	}
}

// apply replaces the policies by one for the pods with app=a of the namespace shop.
func (c *changing) apply(spec networkingv1.NetworkPolicySpec) {
	c.t.Helper()
	spec.PodSelector.MatchLabels = map[string]string{"app": "a"}
	c.policies = []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: spec}}
	c.replacePolicies(c.policies)
}

// allow is the rule of ingress with a peer.
func allow(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}}
}

// labelled returns a selector.
func labelled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// compare compares all cells with the evaluator.
func (c *changing) compare() {
	c.t.Helper()
	w := c.world(c.labels)
	for _, p := range c.policies {
		spec, err := kube.PolicySpec(p)
		require.NoError(c.t, err)
		w.Policies = append(w.Policies, spec)
	}
	cells := c.table()
	judge(cells, w)
	c.agree(cells)
}

// remove deletes a pod and unplugs it.
func (c *changing) remove(p *pod) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Pods(p.namespace).Delete(c.t.Context(), p.name, metav1.DeleteOptions{}))
	c.unplug(p)
}

func (c *changing) unplug(p *pod) {
	c.t.Helper()
	require.NoError(c.t, c.lab.Unplug(c.t.Context(), p.plugged))
	c.pods = slices.DeleteFunc(c.pods, func(one *pod) bool { return one == p })
}

func (c *changing) relabelWhileStarting() {
	c.apply(allow(networkingv1.NetworkPolicyPeer{NamespaceSelector: labelled("team", "x")}))
	for i, team := range []string{"x", "y", "x", ""} {
		c.labels["guest"] = map[string]string{"team": team}
		relabelled := make(chan error, 1)
		go func() {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "guest", Labels: map[string]string{"team": team}}}
			_, err := c.Client().CoreV1().Namespaces().Update(c.t.Context(), namespace, metav1.UpdateOptions{})
			relabelled <- err
		}()
		c.run(&pod{namespace: "guest", name: fmt.Sprint("pod-", i), host: hosts[i%2]})
		require.NoError(c.t, <-relabelled)
		c.compare()
	}
	for _, p := range slices.Clone(c.pods) {
		if p.namespace == "guest" {
			c.remove(p)
		}
	}
}

// recreate: a pod that is allowed is replaced by one with its name and addresses, and other labels.
func (c *changing) recreate() {
	c.apply(allow(networkingv1.NetworkPolicyPeer{PodSelector: labelled("role", "allowed")}))
	first := &pod{namespace: "shop", name: "again", host: hosts[1], labels: map[string]string{"role": "allowed"}}
	c.run(first)
	c.compare()
	c.remove(first)
	second := &pod{namespace: "shop", name: "again", host: hosts[1], labels: map[string]string{"role": "denied"}, addresses: first.addresses}
	c.run(second)
	require.Equal(c.t, first.addresses, second.addresses)
	c.compare()
	c.remove(second)
}

// finish: the object of a pod that is allowed stays, and another pod has its addresses.
func (c *changing) finish() {
	c.apply(allow(networkingv1.NetworkPolicyPeer{PodSelector: labelled("role", "allowed")}))
	first := &pod{namespace: "shop", name: "finished", host: hosts[1], labels: map[string]string{"role": "allowed"}}
	c.run(first)
	require.NoError(c.t, c.SetPodStatus(c.t.Context(), first.namespace, first.name,
		kubetest.PodStatus{Phase: corev1.PodSucceeded, Addresses: first.addresses}))
	c.unplug(first)
	c.silent = append(c.silent, policy.Pod{
		Namespace: first.namespace, Name: first.name, Node: first.host, Labels: coe.NewLabels(first.labels), Addresses: first.addresses, Finished: true,
	})
	next := &pod{namespace: "shop", name: "next", host: hosts[1], addresses: first.addresses}
	c.run(next)
	require.Equal(c.t, first.addresses, next.addresses)
	c.compare()
	c.remove(next)
}

// hostNetwork: the labels of a pod on the host network open nothing for its node, and a pod is always
// reached from its own node.
func (c *changing) hostNetwork() {
	for _, host := range hosts {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "on-" + host, Labels: map[string]string{"role": "allowed"}}}
		p.Spec = corev1.PodSpec{NodeName: host, HostNetwork: true, Containers: []corev1.Container{{Name: "main", Image: "localhost/none"}}}
		_, err := c.Client().CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
		require.NoError(c.t, err)
		address := c.lab.Host(host).Address
		require.NoError(c.t, c.SetPodStatus(c.t.Context(), p.Namespace, p.Name,
			kubetest.PodStatus{Phase: corev1.PodRunning, Ready: true, Addresses: []netip.Addr{address}}))
		c.silent = append(c.silent, policy.Pod{
			Namespace: p.Namespace, Name: p.Name, Node: host, Labels: coe.NewLabels(p.Labels), Addresses: []netip.Addr{address}, HostNetwork: true,
		})
	}
	c.apply(allow(networkingv1.NetworkPolicyPeer{PodSelector: labelled("role", "allowed")}))
	c.compare()
	c.apply(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}})
	c.compare()
}

// echoPort is the port of a server that returns what it receives over TCP.
const echoPort = 7

// underTraffic: a connection that every version of the policies allows stays, and one that is
// forbidden is cut each time.
func (c *changing) underTraffic() {
	to := c.pods[0]
	c.serveEcho(to)
	c.apply(allow(networkingv1.NetworkPolicyPeer{PodSelector: labelled("app", "b")}))
	kept := c.dial(c.pods[1], to)
	for range 5 {
		again := c.policies
		c.policies = nil
		c.replacePolicies(nil)
		require.NoError(c.t, exchange(kept, converge), "a connection that stays allowed")
		cut := c.dial(c.pods[2], to)
		c.policies = again
		c.replacePolicies(again)
		c.awaitPackets(time.Millisecond, "the connection is cut", func() error {
			if exchange(cut, 2*silence) == nil {
				return errors.New("it is open")
			}
			return nil
		})
		require.NoError(c.t, exchange(kept, converge), "a connection that stays allowed")
	}
	c.compare()
}

func (c *changing) serveEcho(p *pod) {
	c.t.Helper()
	require.NoError(c.t, c.lab.In(p.device(), func() error {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf("[::]:%d", echoPort))
		if err != nil {
			return err
		}
		c.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = conn.Close() }()
					_, _ = io.Copy(conn, conn)
				}()
			}
		}()
		return nil
	}))
}

// dial connects a pod to the echo server of another.
func (c *changing) dial(from, to *pod) (conn net.Conn) {
	c.t.Helper()
	bridgetest.Await(c.t, 5*time.Millisecond, converge, fmt.Sprintf("%s connects to %s", from, to), func() (err error) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		conn, err = c.lab.Dial(ctx, from.device(), "tcp", netip.AddrPortFrom(to.addresses[0], echoPort).String())
		return err
	})
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange sends a byte to an echo server, and receives it within a time.
func exchange(conn net.Conn, within time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// hairpin: a pod without any allowed connection reaches itself through its own service. No other pod
// does.
func (c *changing) hairpin() {
	const manifest = `
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {clusterIP: %[1]s, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: shop, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
ports: [{port: 80, protocol: TCP}]
endpoints: [{addresses: [%[2]s], conditions: {ready: true}, nodeName: %[3]s}]
`
	const vip = "10.96.0.77"
	to := c.pods[0]
	reach := func(from *pod) error {
		ctx, cancel := context.WithTimeout(c.t.Context(), answerTime)
		defer cancel()
		conn, err := c.lab.Dial(ctx, from.device(), "tcp", vip+":80")
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	c.apply(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}})
	require.NoError(c.t, c.Apply(c.t.Context(), fmt.Sprintf(manifest, vip, to.addresses[0], to.host)))
	bridgetest.Await(c.t, 5*time.Millisecond, converge, "the pod reaches itself", func() error { return reach(to) })
	require.Error(c.t, reach(c.pods[1]), "another pod")
	c.compare()
}
