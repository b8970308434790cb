package policies

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	testdb "github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

var (
	churnedPods = flag.Int("churned-pods", 30, "number of further pods whose labels TestChurn changes")
	churnTime   = flag.Duration("churn", 8*time.Second, "how long TestChurn changes policies, 50 times a second")
)

// TestChurn changes policies and labels all the time, and kills the northbound server. The final rows are equal to the rows of
// a bridge that has seen only the end, and all connections are as the evaluator says. A connection that is allowed all
// the time loses no packet. A connection that becomes forbidden is cut.
func TestChurn(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	ch := newChurn(c)
	c.awaitPolicies()
	kept, cut := c.stream("shop/b", "shop/a", 80), c.stream("shop/b", "shop/a", 81)

	done := make(chan error, 1)
	go func() { done <- ch.run(t.Context()) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(*churnTime / 2):
	}
	require.NoError(t, c.lab.NB.Restart(t.Context()))
	require.NoError(t, <-done)
	t.Logf("%d changes of policies, %d of labels", ch.rewritten, ch.relabelled)

	c.awaitPolicies()
	kept.requireComplete()
	require.NoError(t, ch.put(t.Context(), shopPolicy(lasting, 80))) // its further rules may allow port 81
	require.NoError(t, ch.deletePolicy(t.Context(), "shop", temporary))
	c.awaitPolicies()
	cut.requireCut()

	cells := c.table()
	judge(cells, ch.judged())
	c.agree(cells)
	c.requireFreshRows()
}

// churn changes a cluster at random, and knows what it is like.
type churn struct {
	*cluster
	policytest.Generator
	namespaces map[string]map[string]string
	policies   map[types.NamespacedName]*networkingv1.NetworkPolicy
	further    []types.NamespacedName // pods that are not plugged in

	rewritten, relabelled int
}

// The policies of the pod shop/a. The other policies are of other namespaces.
const (
	lasting   = "lasting"   // allows port 80, and changes otherwise
	temporary = "temporary" // allows port 81
)

func newChurn(c *cluster) *churn {
	ch := &churn{
		cluster: c, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
		namespaces: map[string]map[string]string{"shop": {}, "bank": {}, "ops": {}},
	}
	for name := range ch.namespaces {
		c.makeNamespace(name, nil)
		c.runThree(name)
	}
	c.makeNamespace(marked, nil)
	c.create(&pod{namespace: marked, name: "pod", host: hosts[0]})
	var addresses []netip.Addr
	for _, p := range c.pods {
		addresses = append(addresses, p.addresses...)
	}
	ch.Generator = policytest.New(1, addresses...)
	for i := range *churnedPods {
		p := &pod{namespace: ch.Namespace(), name: fmt.Sprintf("further-%d", i), host: hosts[i%len(hosts)], labels: ch.Labels()}
		c.create(p)
		ch.further = append(ch.further, types.NamespacedName{Namespace: p.namespace, Name: p.name})
	}
	require.NoError(c.t, ch.put(c.t.Context(), shopPolicy(lasting, 80)))
	require.NoError(c.t, ch.put(c.t.Context(), shopPolicy(temporary, 81)))
	return ch
}

// shopPolicy allows the pod shop/b to connect to a port of shop/a with UDP. Further rules can be added.
func shopPolicy(name string, port int, more ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}}}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt(port))}},
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			Ingress:     append([]networkingv1.NetworkPolicyIngressRule{rule}, more...),
		},
	}
}

// run changes policies and namespaces 50 times a second, and meanwhile the labels of all further pods.
func (ch *churn) run(ctx context.Context) error {
	labels := make([]map[string]string, len(ch.further))
	for i := range labels {
		labels[i] = ch.Labels()
	}
	flipped := make(chan error, 1)
	go func() {
		_, err := kubetest.Each(ctx, len(labels), 2, func(ctx context.Context, i int) error { return ch.relabel(ctx, ch.further[i], labels[i]) })
		flipped <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(*churnTime); time.Now().Before(end); {
		if err := ch.change(ctx); err != nil {
			return errors.Join(err, <-flipped)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	ch.relabelled += len(labels)
	return <-flipped
}

// change makes one random change.
func (ch *churn) change(ctx context.Context) error {
	switch ch.IntN(10) {
	case 0:
		name := policytest.Pick(ch.Generator, "bank", "ops")
		labels := ch.Labels()
		ch.namespaces[name] = labels
		ch.relabelled++
		return ch.relabelNamespace(ctx, name, labels)
	case 1:
		p := policytest.Pick(ch.Generator, ch.pods...)
		if p.namespace == "shop" && p.name != "c" {
			return nil
		}
		p.labels = ch.Labels()
		ch.relabelled++
		return ch.relabel(ctx, types.NamespacedName{Namespace: p.namespace, Name: p.name}, p.labels)
	}
	ch.rewritten++
	name := fmt.Sprintf("p%d", ch.IntN(10))
	if ch.One(5) {
		return ch.put(ctx, shopPolicy(lasting, 80, ch.Policy(name).Spec.Ingress...))
	}
	p := ch.Policy(name)
	if p.Namespace == "shop" {
		p.Namespace = "ops"
	}
	if ch.One(4) {
		return ch.deletePolicy(ctx, p.Namespace, name)
	}
	return ch.put(ctx, p)
}

// put creates or replaces a policy.
func (ch *churn) put(ctx context.Context, p *networkingv1.NetworkPolicy) error {
	api := ch.Client().NetworkingV1().NetworkPolicies(p.Namespace)
	id := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	var err error
	if ch.policies[id] == nil {
		_, err = api.Create(ctx, p, metav1.CreateOptions{})
	} else {
		_, err = api.Update(ctx, p, metav1.UpdateOptions{})
	}
	ch.policies[id] = p
	return err
}

// deletePolicy deletes a policy, if it exists.
func (ch *churn) deletePolicy(ctx context.Context, namespace, name string) error {
	delete(ch.policies, types.NamespacedName{Namespace: namespace, Name: name})
	err := ch.Client().NetworkingV1().NetworkPolicies(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// replacement returns a patch that replaces all labels.
func replacement(labels map[string]string) ([]byte, error) {
	return json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/labels", "value": labels}})
}

func (ch *churn) relabel(ctx context.Context, pod types.NamespacedName, labels map[string]string) error {
	patch, err := replacement(labels)
	if err != nil {
		return err
	}
	_, err = ch.Client().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

func (ch *churn) relabelNamespace(ctx context.Context, name string, labels map[string]string) error {
	patch, err := replacement(labels)
	if err != nil {
		return err
	}
	_, err = ch.Client().CoreV1().Namespaces().Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// judged returns the cluster for the evaluator.
func (ch *churn) judged() policy.World {
	w := ch.world(ch.namespaces)
	for _, p := range ch.policies {
		spec, err := kube.PolicySpec(p)
		require.NoError(ch.t, err)
		w.Policies = append(w.Policies, spec)
	}
	return w
}

// requireFreshRows requires that the rows of policies and pods are equal to what another bridge writes to an empty
// database.
func (c *cluster) requireFreshRows() {
	c.t.Helper()
	fresh := testdb.Start(c.t)
	c.bridge.AwaitSync(converge)
	have := rowsOf(c.t, c.lab.NB.Remote)
	c.bridge.Restart(bridgetest.OVN(fresh.Endpoint()))
	c.bridge.AwaitSync(converge)
	require.Equal(c.t, rowsOf(c.t, fresh.Endpoint()), have)
}

// rowsOf returns the rows of policies, and what the bridge writes of switch ports.
func rowsOf(t *testing.T, remote string) (rows []string) {
	for _, table := range [][]string{
		{"Port_Group"}, {"ACL"}, {"Address_Set"}, {"Logical_Switch_Port", "_uuid", "name", "addresses", "external_ids", "options"},
	} {
		args := append([]string{"--timeout=30", "--format=csv", "--no-headings", "dump", remote, "OVN_Northbound"}, table...)
		out, err := exec.CommandContext(t.Context(), "ovsdb-client", args...).Output()
		require.NoError(t, err)
		rows = slices.AppendSeq(rows, strings.Lines(string(out)))
	}
	return rows
}
