package policies

import (
	_ "embed"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

var sets = flag.Int("sets", 24, "number of sets of policies, of all, that TestTruthTables compares with packets")

// randomSets is the number of sets that are drawn.
const randomSets = 85

// recipes are sets of policies by hand: the recipes of the API documentation, and cases at the edges.
//
//go:embed testdata/recipes.yaml
var recipes []byte

// recipe is a named set of policies.
type recipe struct {
	Name     string                        `json:"name"`
	Policies []*networkingv1.NetworkPolicy `json:"policies"`
}

// TestTruthTables probes every connection between nine pods and two nodes, under each set of policies.
func TestTruthTables(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	namespaces := map[string]map[string]string{"shop": {"env": "a"}, "bank": {"env": "b"}, "ops": {"env": "a", "tier": "b"}}
	for name, labels := range namespaces {
		c.makeNamespace(name, labels)
		c.runThree(name)
	}
	cells := c.table()
	w := c.world(namespaces)
	c.makeNamespace(marked, nil)
	c.create(&pod{namespace: marked, name: "pod", host: hosts[0]})
	judge(cells, w)
	c.agree(cells) // without policies
	all := c.allSets()
	n := min(*sets, len(all))
	for i := range n {
		c.try(t, all[i*len(all)/n], w, cells)
	}
}

// allSets returns the recipes, then the random sets.
func (c *cluster) allSets() (all []recipe) {
	require.NoError(c.t, yaml.UnmarshalStrict(recipes, &all))
	for seed := range uint64(randomSets) {
		all = append(all, c.randomSet(seed))
	}
	return all
}

// runThree runs the pods a, b and c of a namespace. They have other numbers for the same names of ports.
func (c *cluster) runThree(namespace string) {
	named := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	c.run(&pod{
		namespace: namespace, name: "a", host: hosts[0], labels: map[string]string{"app": "a", "tier": "a"},
		ports: []corev1.ContainerPort{named("http", 80, corev1.ProtocolTCP), named("dns", 80, corev1.ProtocolUDP), named("sig", 80, corev1.ProtocolSCTP)},
	})
	c.run(&pod{
		namespace: namespace, name: "b", host: hosts[1], labels: map[string]string{"app": "b", "env": "b"},
		ports: []corev1.ContainerPort{named("http", 81, corev1.ProtocolTCP), named("dns", 81, corev1.ProtocolUDP), named("sig", 81, corev1.ProtocolSCTP)},
	})
	c.run(&pod{
		namespace: namespace, name: "c", host: hosts[0], labels: map[string]string{"app": "c", "env": ""},
		ports: []corev1.ContainerPort{named("metrics", 80, corev1.ProtocolTCP), named("http", 81, corev1.ProtocolTCP)},
	})
}

// world is the cluster for the evaluator, without policies.
func (c *cluster) world(namespaces map[string]map[string]string) policy.World {
	var w policy.World
	for name, labels := range namespaces {
		all := map[string]string{corev1.LabelMetadataName: name}
		for k, v := range labels {
			all[k] = v
		}
		w.Namespaces = append(w.Namespaces, policy.Namespace{Name: name, Labels: coe.NewLabels(all)})
	}
	for _, n := range c.nodes {
		w.Nodes = append(w.Nodes, policy.Node{Name: n.host, Addresses: append([]netip.Addr{c.lab.Host(n.host).Address}, n.addresses...)})
	}
	w.Pods = slices.Clone(c.silent)
	for _, p := range c.pods {
		one := policy.Pod{Namespace: p.namespace, Name: p.name, Node: p.host, Labels: coe.NewLabels(p.labels), Addresses: p.addresses}
		for _, port := range p.ports {
			protocol := strings.ToLower(string(port.Protocol))
			one.Ports = append(one.Ports, coe.ContainerPort{Name: port.Name, Protocol: protocol, Port: uint16(port.ContainerPort)})
		}
		w.Pods = append(w.Pods, one)
	}
	return w
}

// randomSet draws policies with blocks of the pods' addresses.
func (c *cluster) randomSet(seed uint64) recipe {
	var addresses []netip.Addr
	for _, p := range c.pods {
		addresses = append(addresses, p.addresses...)
	}
	g := policytest.New(seed, addresses...)
	set := recipe{Name: fmt.Sprintf("random set %d", seed)}
	for n := range 1 + g.IntN(5) {
		set.Policies = append(set.Policies, g.Policy(fmt.Sprintf("p%d", n)))
	}
	return set
}

// try replaces all policies with a set, and compares all cells.
func (c *cluster) try(t *testing.T, set recipe, w policy.World, cells []*cell) {
	t.Run(set.Name, func(t *testing.T) {
		whole := c.t
		defer func() { c.t = whole }()
		c.t = t
		for i, p := range set.Policies {
			p.UID = types.UID(fmt.Sprint(i))
			spec, err := kube.PolicySpec(p)
			require.NoError(t, err)
			w.Policies = append(w.Policies, spec)
		}
		c.replacePolicies(set.Policies)
		judge(cells, w)
		c.agree(cells)
	})
}

// replacePolicies deletes all policies, and creates others.
func (c *cluster) replacePolicies(policies []*networkingv1.NetworkPolicy) {
	c.t.Helper()
	api := c.Client().NetworkingV1()
	all, err := api.NetworkPolicies("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, p := range all.Items {
		require.NoError(c.t, api.NetworkPolicies(p.Namespace).Delete(c.t.Context(), p.Name, metav1.DeleteOptions{}))
	}
	for _, p := range policies {
		p.UID = ""
		_, err := api.NetworkPolicies(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
	c.awaitPolicies()
}

// marked is a namespace with a pod that is not probed. Its policy marks the end of a set.
const marked = "marked"

// awaitPolicies waits until the bridge has seen all changes of policies so far, and the nodes have
// the flows.
func (c *cluster) awaitPolicies() {
	c.t.Helper()
	c.marks++
	name := fmt.Sprintf("mark-%d", c.marks)
	_, err := c.Client().NetworkingV1().NetworkPolicies(marked).Create(c.t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: marked, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	bridgetest.Await(c.t, 5*time.Millisecond, converge, "the backend has the ACL of policy "+name, func() error {
		status, lists := c.bridge.Do(http.MethodGet, "/restconf/operational/ietf-access-control-list:access-lists", "")
		if !strings.Contains(lists, name+":") {
			return fmt.Errorf("it is not in the operational tree (status %d)", status)
		}
		return nil
	})
	c.bridge.AwaitSync(converge)
	require.NoError(c.t, c.lab.Sync(c.t.Context()))
}
