package hostile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const silenceWithin = patience.Patience

const silenceRole = kubetest.BridgeRole + `- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
`

// silenceObjects have settings that the bridge does not enforce.
const silenceObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: quiet, annotations: {coe-bridge.io/isolation: "yes"}}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: quiet}
spec:
  type: LoadBalancer
  externalIPs: [198.51.100.1]
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [192.0.2.0/24]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: node-port, namespace: quiet}
spec: {type: NodePort, ports: [{port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: inside, namespace: quiet}
spec: {ports: [{port: 82}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: loud
  namespace: quiet
  annotations: {coe-bridge.io/address: 10.0.0.1, kubernetes.io/ingress-bandwidth: 1M}
spec:
  nodeName: node-0
  containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}]}]
`

// silenceProblem is an entry of the problems in the status.
type silenceProblem struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type silenceSource struct {
	Name      string            `json:"name"`
	Reachable bool              `json:"reachable"`
	Troubles  []string          `json:"trouble"`
	Resources []silenceResource `json:"resource"`
}

type silenceResource struct {
	Name    string `json:"name"`
	Problem string `json:"problem"`
}

type silenceStatus struct {
	InSync   bool             `json:"in-sync"`
	Complete bool             `json:"complete"`
	Sources  []silenceSource  `json:"source"`
	Problems []silenceProblem `json:"problem"`
}

// unenforced returns an error unless the status is in sync, and has NotEnforced problems of an object
// with all of the words.
func unenforced(b *bridgetest.Bridge, kind, name string, words ...string) error {
	var st silenceStatus
	b.Get("operational/coe-status:status", &st)
	if !st.InSync || !st.Complete {
		return fmt.Errorf("not in sync: %+v", st)
	}
	var said string
	for _, p := range st.Problems {
		if p.Kind == kind && p.Name == name && p.Reason == "NotEnforced" {
			said += p.Message + "\n"
		}
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			return fmt.Errorf("%s %s: no problem names %q: %+v", kind, name, word, st.Problems)
		}
	}
	return nil
}

func silenceBridge(t *testing.T, options ...bridgetest.Option) *bridgetest.Bridge {
	pool, err := dhcppool.Parse("10.32.0.0/16")
	require.NoError(t, err)
	return bridgetest.Start(t, append([]bridgetest.Option{
		bridgetest.OVN(ovsdb.Start(t).Endpoint()),
		func(cfg *bridge.Config) { cfg.Pools = []dhcppool.Pool{pool} },
	}, options...)...)
}

// watchingBridge starts an API server with a node and objects, and a bridge that watches it with
// a role.
func watchingBridge(t *testing.T, role, objects string) (*kubetest.ControlPlane, *bridgetest.Bridge) {
	plane := kubetest.ForTest(t, kubetest.Config{RBAC: true})
	_, err := plane.MakeNodes(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, plane.Apply(t.Context(), role))
	require.NoError(t, plane.Apply(t.Context(), strings.ReplaceAll(objects, "node-0", kubetest.Node(0))))
	token, err := plane.ServiceAccountToken(t.Context(), "default", "bridge", time.Hour)
	require.NoError(t, err)
	kubeconfig, err := plane.WriteKubeconfig(token)
	require.NoError(t, err)
	return plane, silenceBridge(t, func(cfg *bridge.Config) {
		api, err := kube.Connect(kubeconfig, "test", cfg.Log)
		require.NoError(t, err)
		cfg.Kubernetes.API = api
	})
}

// kubernetesSource returns the state of the source kubernetes.
func kubernetesSource(b *bridgetest.Bridge) silenceSource {
	var st silenceStatus
	b.Get("operational/coe-status:status", &st)
	return st.Sources[slices.IndexFunc(st.Sources, func(s silenceSource) bool { return s.Name == "kubernetes" })]
}

// TestNothingInKubernetesIsIgnoredInSilence: a tenant uses settings that the bridge does not enforce.
// Each object gets a problem and an Event, and keeps its network.
func TestNothingInKubernetesIsIgnoredInSilence(t *testing.T) {
	plane, b := watchingBridge(t, silenceRole, silenceObjects)
	await := func(what string, holds func() error) {
		bridgetest.Await(t, 50*time.Millisecond, silenceWithin, what, holds)
	}
	event := func(kind, name string) {
		await("Event of "+name, func() error {
			events, err := plane.Client().CoreV1().Events("quiet").List(t.Context(), metav1.ListOptions{
				FieldSelector: "reason=NotEnforced,type=Warning,involvedObject.kind=" + kind + ",involvedObject.name=" + name,
			})
			if err == nil && len(events.Items) == 0 {
				return fmt.Errorf("no Event about %s %s", kind, name)
			}
			return err
		})
	}
	await("pod", func() error {
		return unenforced(b, "pod", "loud", "hostPort", "bandwidth", "coe-bridge.io/")
	})
	await("services", func() error {
		return unenforced(b, "service", "outside", "external addresses", "externalTrafficPolicy",
			"loadBalancerSourceRanges", "node ports", "86400")
	})
	await("service", func() error { return unenforced(b, "service", "node-port", "node ports") })
	await("namespace", func() error { return unenforced(b, "namespace", "quiet", "coe-bridge.io/") })
	event("Pod", "loud")
	event("Service", "outside")
	event("Service", "node-port")
	event("Namespace", "quiet")

	cluster := kubernetesSource(b)
	require.True(t, cluster.Reachable)
	require.Empty(t, cluster.Troubles)
	for _, r := range cluster.Resources {
		require.Empty(t, r.Problem, r.Name)
	}
	require.Error(t, unenforced(b, "service", "inside", "has no effect"), "a service without further settings")
}

const silencePod = `
apiVersion: v1
kind: Namespace
metadata: {name: quiet}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: quiet}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: quiet}
spec: {nodeName: node-0, containers: [{name: c, image: i}]}
`

// TestUnreadablePoliciesLetNoPodIn: a bridge without the right to watch network policies gives no
// interface to a pod, and says so: in the problems of the pod, in its status and at /readyz, which
// doctor reads. With the right, the pod gets its interface.
func TestUnreadablePoliciesLetNoPodIn(t *testing.T) {
	const waits = "no new pod gets an interface until all network policies are listed"
	plane, b := watchingBridge(t, strings.ReplaceAll(silenceRole, "networkpolicies", "ingresses"), silencePod)
	bridgetest.Await(t, 50*time.Millisecond, silenceWithin, "the report", func() error {
		var st silenceStatus
		b.Get("operational/coe-status:status", &st)
		if !slices.ContainsFunc(st.Problems, func(p silenceProblem) bool {
			return p.Kind == "pod" && p.Name == "first" && p.Reason == "Waiting" && strings.Contains(p.Message, "network policies")
		}) {
			return fmt.Errorf("no problem of the pod: %+v", st.Problems)
		}
		cluster := kubernetesSource(b)
		n := slices.IndexFunc(cluster.Resources, func(r silenceResource) bool { return r.Name == "networkpolicies" })
		if !strings.Contains(cluster.Resources[n].Problem, "rbac.yaml") || !slices.Contains(cluster.Troubles, waits) {
			return fmt.Errorf("no report: %+v", cluster)
		}
		return nil
	})
	require.False(t, b.Get("operational/ietf-interfaces:interfaces", nil), "no pod has an interface")
	_, ready := b.Do(http.MethodGet, "/readyz", "")
	require.Equal(t, "ok\nwarning: "+waits+"\n", ready)

	require.NoError(t, plane.Apply(t.Context(), silenceRole))
	bridgetest.Await(t, 50*time.Millisecond, silenceWithin, "the interface", func() error {
		if problem := unenforced(b, "pod", "first"); problem != nil {
			return problem
		}
		if _, ready := b.Do(http.MethodGet, "/readyz", ""); ready != "ok\n" {
			return fmt.Errorf("ready: %s", ready)
		}
		return nil
	})
	require.Empty(t, kubernetesSource(b).Troubles)
}

// TestNothingInRESTCONFIsIgnoredInSilence writes entries with settings that the bridge does not enforce.
// Each entry gets a problem, and its pod is in sync.
func TestNothingInRESTCONFIsIgnoredInSilence(t *testing.T) {
	b := silenceBridge(t)
	put := func(path, body string) {
		t.Helper()
		status, answer := b.Do(http.MethodPut, "/restconf/config/"+path, body)
		require.Equal(t, http.StatusCreated, status, answer)
	}
	const uid = "00000000-0000-4000-8000-00000000000"
	pod := func(n int, more string) {
		t.Helper()
		put(fmt.Sprintf("pod:coe/pods/%s%d", uid, n), fmt.Sprintf(
			`{"pods":[{"uid":"%s%d","name":"p%d","network-NS":"shop","host-ip-address":"192.168.33.1",
			"interface":[{"uid":"%s%d"%s}]}]}`, uid, n, n, "11111111-0000-4000-8000-00000000000", n, more))
	}
	await := func(kind, name string, words ...string) {
		t.Helper()
		bridgetest.Await(t, 50*time.Millisecond, silenceWithin, kind+" "+name, func() error {
			return unenforced(b, kind, name, words...)
		})
	}
	put("k8s:k8s/network-policies/network-policy/"+uid+"7", `{"network-policy":[{"uuid":"`+uid+`7","name":"wrong","network-policy-spec":{
		"ingress":[{"network-policy-ingress-rule":{"ingress-ports":[{"network-policy-port":{"protocol":"TCP","port":"http"}},{"network-policy-port":{"port":"70000"}}]}}]}}]}`)
	put("ietf-access-control-list:access-lists/acl/ietf-access-control-list:ipv4-acl/deny%20all",
		`{"acl":[{"acl-type":"ietf-access-control-list:ipv4-acl","acl-name":"deny all"}]}`)
	put("service:service-information/services/"+uid+"2", `{"services":[{"uid":"`+uid+`2","name":"web","network-NS":"shop",
		"cluster-ip-address":"10.96.0.9","service-ports":[{"port":80,"node-port":30080}]}]}`)
	pod(3, `,"network-type":"VLAN","segmentation-id":7`)
	await("pod", "p3", "VLAN", "overlay")
	pod(4, `,"network-type":"VLAN","segmentation-id":8`)
	pod(5, `,"network-id":"22222222-0000-4000-8000-000000000000"`)
	pod(6, `,"network-id":"00000000-0000-0000-0000-000000000000"`)

	bridgetest.Await(t, 50*time.Millisecond, silenceWithin, "the wrong policy", func() error {
		var st silenceStatus
		b.Get("operational/coe-status:status", &st)
		if !slices.ContainsFunc(st.Problems, func(p silenceProblem) bool {
			return p.Reason == "PolicyInvalid" && p.Name == "wrong" && strings.Contains(p.Message, `network-policy-spec/ingress[0]/ingress-ports[1]/port: "70000"`)
		}) {
			return fmt.Errorf("no problem names the port: %+v", st.Problems)
		}
		return nil
	})
	await("access-list", "deny all", "no effect")
	await("service", "web", "node ports")
	await("pod", "p4", "segmentation-id 8", "VLAN and 7")
	await("pod", "p5", "network-id")
	require.Error(t, unenforced(b, "pod", "p6", "network-id"), "the pod names no network")

	status, answer := b.Do(http.MethodDelete, "/restconf/config/ietf-access-control-list:access-lists", "")
	require.Less(t, status, 300, answer)
	bridgetest.Await(t, 50*time.Millisecond, silenceWithin, "the end of the list", func() error {
		if unenforced(b, "access-list", "deny all", "no effect") == nil {
			return fmt.Errorf("the problem is still there")
		}
		return nil
	})
}
