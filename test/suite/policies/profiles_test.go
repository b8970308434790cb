package policies

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// group is the name of a profile that other profiles have as remote group.
const group = "aaaaaaaa-0000-4000-8000-000000000001"

// permit returns an entry that permits.
func permit(direction, matches, more string) string {
	return fmt.Sprintf(`{"rule-name":"%s%d","matches":{%s},"actions":{"permit":[null]},"aclservice:direction":"aclservice:direction-%s"%s}`,
		direction, len(matches)+len(more), matches, direction, more)
}

// Access lists, and which pods and namespaces name them, in steps: each changes the last.
var profileSteps = []struct {
	name       string
	lists      map[string]string // entries by name of the list
	pods       map[string]string // annotation by namespace/name
	namespaces map[string]string
	policies   []*networkingv1.NetworkPolicy
}{
	{name: "an unknown profile", pods: map[string]string{"shop/a": "web"}},
	{
		name: "IPv4 and TCP port 80",
		lists: map[string]string{"web": permit("ingress", `"source-ipv4-network":"0.0.0.0/0","protocol":6,"destination-port-range":{"lower-port":80}`, "") +
			`,{"rule-name":"last","aclservice:direction":"aclservice:direction-ingress"}`},
	},
	{
		name:  "a remote group of another namespace, and a profile of it that isolates nothing more",
		lists: map[string]string{"web": permit("ingress", "", `,"aclservice:remote-group-id":"`+group+`"`), group: permit("egress", "", "") + "," + permit("egress", `"destination-ipv6-network":"::/0"`, "")},
		pods:  map[string]string{"shop/a": "web", "bank/c": group},
	},
	{
		name:     "a network policy adds to the profile",
		policies: []*networkingv1.NetworkPolicy{allowUDP("shop")},
	},
	{
		name:       "the namespace names a profile without entries for all its pods",
		lists:      map[string]string{"locked": ""},
		namespaces: map[string]string{"shop": "locked"},
		policies:   []*networkingv1.NetworkPolicy{},
	},
	{
		name:       "a list with an entry that cannot be enforced permits nothing",
		lists:      map[string]string{"web": permit("ingress", "", "") + "," + permit("ingress", `"protocol":1`, "")},
		pods:       map[string]string{"shop/a": "web", "bank/c": ""},
		namespaces: map[string]string{"shop": ""},
	},
	{name: "no profiles", pods: map[string]string{"shop/a": ""}},
}

// allowUDP returns a policy that allows UDP to all pods of a namespace.
func allowUDP(namespace string) *networkingv1.NetworkPolicy {
	udp := corev1.ProtocolUDP
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "udp"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{
			{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp}}},
		}},
	}
}

// TestProfiles probes every connection between three pods under security profiles.
func TestProfiles(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, name := range []string{"shop", "bank", marked} {
		c.makeNamespace(name, nil)
	}
	c.create(&pod{namespace: marked, name: "pod", host: hosts[0]})
	c.runGated(&pod{namespace: "shop", name: "a", host: hosts[0]})
	c.run(&pod{namespace: "shop", name: "b", host: hosts[1]})
	c.run(&pod{namespace: "bank", name: "c", host: hosts[0]})
	state := profileState{lists: map[string]*coe.PolicySpec{}, objects: map[string]*metav1.ObjectMeta{}}
	cells := c.table()
	for _, step := range profileSteps {
		t.Run(step.name, func(t *testing.T) {
			whole := c.t
			defer func() { c.t = whole }()
			c.t = t
			for name, entries := range step.lists {
				state.lists[name] = c.putList(name, entries)
			}
			for name, names := range step.namespaces {
				state.objects[name] = c.nameProfiles("", name, names)
			}
			for name, names := range step.pods {
				namespace, pod, _ := strings.Cut(name, "/")
				state.objects[name] = c.nameProfiles(namespace, pod, names)
			}
			if step.policies != nil {
				state.policies = step.policies
			}
			c.replacePolicies(state.policies)
			judge(cells, c.profileWorld(state))
			isDenied := func(c *cell) bool { return !c.wantedOpen }
			require.Equal(t, step.name != "no profiles", slices.ContainsFunc(cells, isDenied), "the step denies something")
			c.agree(cells)
		})
	}
}

// profileState is what the steps so far have made.
type profileState struct {
	lists    map[string]*coe.PolicySpec
	objects  map[string]*metav1.ObjectMeta // by name of a namespace, or namespace/name of a pod
	policies []*networkingv1.NetworkPolicy
}

// putList writes an access list.
func (c *cluster) putList(name, entries string) *coe.PolicySpec {
	c.t.Helper()
	const listType = "ietf-access-control-list:ipv4-acl"
	body := fmt.Sprintf(`{"acl-type":"%s","acl-name":"%s","access-list-entries":{"ace":[%s]}}`, listType, name, entries)
	status, answer := c.bridge.Do(http.MethodPut, "/restconf/config/ietf-access-control-list:access-lists/acl/"+listType+"/"+name, `{"acl":[`+body+`]}`)
	require.Less(c.t, status, 300, answer)
	list, err := northbound.AccessList([]byte(body))
	require.NoError(c.t, err)
	return list
}

// nameProfiles sets the annotation of a pod, or of a namespace, and waits until the bridge has it.
func (c *cluster) nameProfiles(namespace, name, profiles string) *metav1.ObjectMeta {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{coe.ProfilesAnnotation: profiles}}})
	require.NoError(c.t, err)
	if namespace == "" {
		o, err := c.Client().CoreV1().Namespaces().Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(c.t, err)
		return &o.ObjectMeta
	}
	o, err := c.Client().CoreV1().Pods(namespace).Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
	want := slices.Collect(kube.Labels(&o.ObjectMeta).Profiles())
	var entry []struct {
		Profiles []string `json:"coe-profiles:security-profiles"`
	}
	bridgetest.Await(c.t, 5*time.Millisecond, converge, "the bridge has the profiles of "+name, func() error {
		entry = nil
		if !c.bridge.Get("config/pod:coe/pods/"+string(o.UID), &entry) || !slices.Equal(entry[0].Profiles, want) {
			return fmt.Errorf("they are %v, want %v", entry, want)
		}
		return nil
	})
	return &o.ObjectMeta
}

// profileWorld is the cluster for the evaluator.
func (c *cluster) profileWorld(s profileState) policy.World {
	c.t.Helper()
	w := c.world(nil)
	for _, name := range []string{"shop", "bank"} {
		w.Namespaces = append(w.Namespaces, policy.Namespace{Name: name, Labels: s.labels(name)})
	}
	for i := range w.Pods {
		w.Pods[i].Labels = s.labels(w.Pods[i].Namespace + "/" + w.Pods[i].Name)
	}
	for _, list := range s.lists {
		w.Policies = append(w.Policies, list)
	}
	for _, p := range s.policies {
		spec, err := kube.PolicySpec(p)
		require.NoError(c.t, err)
		w.Policies = append(w.Policies, spec)
	}
	return w
}

// labels returns the labels of a namespace or a pod.
func (s profileState) labels(name string) coe.Labels {
	if o := s.objects[name]; o != nil {
		return kube.Labels(o)
	}
	return coe.Labels{}
}

// runGated runs a pod that has the readiness gate, and requires that its network is reported as ready.
func (c *cluster) runGated(p *pod) {
	c.t.Helper()
	p.gated = true
	c.run(p)
	bridgetest.Await(c.t, 20*time.Millisecond, converge, "the network of "+p.String()+" is ready", func() error {
		o, err := c.Client().CoreV1().Pods(p.namespace).Get(c.t.Context(), p.name, metav1.GetOptions{})
		require.NoError(c.t, err)
		isReady := func(c corev1.PodCondition) bool {
			return c.Type == kube.NetworkReady && c.Status == corev1.ConditionTrue
		}
		if !slices.ContainsFunc(o.Status.Conditions, isReady) {
			return fmt.Errorf("the condition %s is not true", kube.NetworkReady)
		}
		return nil
	})
}
