package agent_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// zone creates the Node of a host in a zone, or moves it there.
func (w *exposeWorld) zone(host, zone string) {
	w.t.Helper()
	w.putNode(host, zone, w.address(host))
}

// putNode creates or changes the Node of a host.
func (w *exposeWorld) putNode(host, zone string, addresses ...string) {
	w.t.Helper()
	nodes := w.api.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	_, err := nodes.Create(w.t.Context(), node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(w.t.Context(), host, metav1.GetOptions{})
		require.NoError(w.t, err)
		node.Labels[corev1.LabelTopologyZone] = zone
		_, err = nodes.Update(w.t.Context(), node, metav1.UpdateOptions{})
	}
	require.NoError(w.t, err)
	node, err = nodes.Get(w.t.Context(), host, metav1.GetOptions{})
	require.NoError(w.t, err)
	node.Status.Addresses = nil
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	_, err = nodes.UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// placed creates a service, without endpoints, and returns its cluster address.
func (w *exposeWorld) placed(name string, spec corev1.ServiceSpec) string {
	w.t.Helper()
	spec.Ports = []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80}}
	s, err := w.api.CoreV1().Services("default").Create(w.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return s.Spec.ClusterIP
}

// endpointOn is the pod of a host as an endpoint.
type endpointOn struct {
	host        string
	terminating bool
	zones       []string // hints
}

// place makes pods the endpoints of a service, with their nodes and hints.
func (w *exposeWorld) place(service string, endpoints ...endpointOn) {
	w.t.Helper()
	hosts := make([]string, len(endpoints))
	for i, e := range endpoints {
		hosts[i] = e.host
	}
	w.endpoints(service, hosts...)
	api := w.api.DiscoveryV1().EndpointSlices("default")
	slice, err := api.Get(w.t.Context(), service, metav1.GetOptions{})
	require.NoError(w.t, err)
	for i, e := range endpoints {
		to := &slice.Endpoints[i]
		to.NodeName = &e.host
		to.Conditions = discoveryv1.EndpointConditions{Ready: new(!e.terminating), Serving: new(true), Terminating: &e.terminating}
		for _, zone := range e.zones {
			if to.Hints == nil {
				to.Hints = &discoveryv1.EndpointHints{}
			}
			to.Hints.ForZones = append(to.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	_, err = api.Update(w.t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// reaches waits until a client of a service reaches each of these pods, and no other, over TCP and UDP.
func (w *exposeWorld) reaches(from, service string, pods ...string) {
	w.t.Helper()
	slices.Sort(pods)
	for protocol, ask := range map[string]func(time.Duration, string, string, int) (string, error){"tcp": w.askWithin, "udp": w.askUDP} {
		var n tries
		await(w.t, fmt.Sprintf("%s reaches %s over %s: %s", from, service, protocol, pods), func() error {
			var seen []string
			within := n.patience()
			for range 20 {
				answer, err := ask(within, from, service, 80)
				if err != nil {
					return err
				}
				var name, source string
				if _, err := fmt.Sscan(answer, &name, &source); err != nil {
					return err
				}
				if !slices.Contains(seen, name) {
					seen = append(seen, name)
				}
			}
			slices.Sort(seen)
			if !slices.Equal(seen, pods) {
				return fmt.Errorf("it reaches %s", seen)
			}
			return nil
		})
	}
}

// versions returns the versions of the rows of a northbound table by UUID. A row gets another version with
// each change.
func (w *exposeWorld) versions(table string) map[string]string {
	w.t.Helper()
	query := fmt.Sprintf(`["OVN_Northbound",{"op":"select","table":%q,"where":[],"columns":["_uuid","_version"]}]`, table)
	out, err := exec.CommandContext(w.t.Context(), "ovsdb-client", "transact", w.lab.NB.Remote, query).Output()
	require.NoError(w.t, err)
	var results []struct {
		Rows []struct {
			UUID    [2]string `json:"_uuid"`
			Version [2]string `json:"_version"`
		} `json:"rows"`
	}
	require.NoError(w.t, json.Unmarshal(out, &results))
	all := map[string]string{}
	for _, r := range results[0].Rows {
		all[r.UUID[1]] = r.Version[1]
	}
	require.NotEmpty(w.t, all)
	return all
}

// TestPlaces: with internalTrafficPolicy Local, pods reach the endpoints on their node. With hints, pods
// reach the endpoints for their zone. Programs of nodes are like pods with internalTrafficPolicy Local.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w := newExposeWorld(t)
	w.zone("host1", "a")
	w.zone("host2", "b")
	pod1, pod2 := w.pods["host1"].inLab(), w.pods["host2"].inLab()
	const name1, name2 = "pod-host1", "pod-host2"
	on1, on2 := endpointOn{host: "host1"}, endpointOn{host: "host2"}

	local := w.placed("local", corev1.ServiceSpec{InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)})
	w.step("local", func() {
		w.place("local", on1, on2)
		w.reaches(pod1, local, name1)
		w.reaches(pod2, local, name2)
		w.reaches("host1", local, name1)
		w.reaches("host2", local, name2)
	})
	w.step("an endpoint moves", func() {
		w.place("local", on2)
		for _, from := range []string{pod2, "host2"} {
			w.reaches(from, local, name2)
		}
		for _, from := range []string{pod1, "host1"} {
			w.silentTCP(from, local, 80)
		}
		w.place("local", on1)
		for _, from := range []string{pod1, "host1"} {
			w.reaches(from, local, name1)
		}
		for _, from := range []string{pod2, "host2"} {
			w.silentTCP(from, local, 80)
		}
	})
	w.step("an endpoint is a program of a node", func() {
		for _, host := range []string{"host1", "host2"} {
			w.who(host, host)
			w.whoUDP(host, host)
		}
		w.endpointsAt("local", w.address("host2"))
		w.reaches("host2", local, "host2")
		w.silentTCP("host1", local, 80)
	})
	w.step("no endpoint", func() {
		w.endpointsAt("local")
		for _, host := range []string{"host1", "host2"} {
			w.refused(host, local, 80)
			require.NotZero(t, w.metric(host, "coe_agent_own_ports"), "its node refuses")
		}
	})
	w.step("an endpoint terminates", func() {
		w.place("local", endpointOn{host: "host1", terminating: true}, on2)
		w.reaches(pod1, local, name1)
		w.reaches(pod2, local, name2)
		w.reaches("host1", local, name1)
	})

	zonal := w.placed("zonal", corev1.ServiceSpec{
		TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferSameZone), SessionAffinity: corev1.ServiceAffinityClientIP,
	})
	inA, inB := endpointOn{host: "host1", zones: []string{"a"}}, endpointOn{host: "host2", zones: []string{"b"}}
	w.step("zones", func() {
		w.place("zonal", inA, inB)
		w.reaches(pod1, zonal, name1)
		w.reaches(pod2, zonal, name2)
	})
	w.step("a node is in another zone", func() {
		w.zone("host2", "a")
		w.reaches(pod2, zonal, name1)
		w.zone("host1", "b")
		w.reaches(pod1, zonal, name2)
	})
	w.step("a zone without an endpoint", func() {
		plain := w.placed("plain", corev1.ServiceSpec{TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferSameZone)})
		w.place("plain", inA, inB)
		w.reaches(pod2, plain, name1)
		w.zone("host2", "c")
		w.reaches(pod2, plain, name1, name2)
		w.zone("host2", "a")
		w.reaches(pod2, plain, name1)
		w.place("plain", inA, on2)
		w.reaches(pod2, plain, name1, name2)
	})
	w.step("the bridge restarts", func() {
		balancers, switches := w.versions("Load_Balancer"), w.versions("Logical_Switch")
		w.bridge.Kill()
		w.reaches(pod2, zonal, name1)
		w.startBridge()
		w.placed("after", corev1.ServiceSpec{}) // it serves no pod, so no other service changes
		await(t, "a later service has its rows", func() error {
			if n := len(w.versions("Load_Balancer")); n != len(balancers)+2 {
				return fmt.Errorf("%d load balancers, want 2 more than %d", n, len(balancers))
			}
			return nil
		})
		require.Subset(t, w.versions("Load_Balancer"), balancers)
		require.Subset(t, w.versions("Logical_Switch"), switches)
	})
	w.step("services are deleted", func() {
		for _, name := range []string{"local", "zonal", "plain", "after"} {
			require.NoError(t, w.api.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		await(t, "only the load balancers of kubernetes.default are left", func() error {
			if n := len(w.versions("Load_Balancer")); n != 1 {
				return fmt.Errorf("%d are left", n)
			}
			return nil
		})
	})
}
