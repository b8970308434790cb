package hostile_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// converge is the time in which a bridge must be in sync, on a busy machine.
	converge = patience.Patience
	interval = 20 * time.Millisecond
)

// tenants is a cluster with a bridge, OVN's databases and ovn-northd. The victim has
// namespace ns-0 and the attacker ns-1, with a pod each on node-0.
type tenants struct {
	*kubetest.ControlPlane
	*bridgetest.Bridge
	t      *testing.T
	lab    *ovnhost.Lab
	victim string // the address of the victim's pod
	own    string // the address of the attacker's pod
}

func newTenants(t *testing.T) *tenants {
	w := &tenants{t: t, lab: ovnhost.ForTest(t)}
	w.ControlPlane = kubetest.ForTest(t, kubetest.Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	w.Bridge = bridgetest.Start(t, bridgetest.OVN(w.lab.NB.Remote), func(cfg *bridge.Config) {
		api, err := kube.Connect(w.Kubeconfig(), "test", cfg.Log)
		require.NoError(t, err)
		cfg.Kubernetes = bridge.KubernetesConfig{API: api, AnnotateQPS: math.Inf(1)}
		cfg.Pools = []dhcppool.Pool{{Network: "default", Subnet: netip.MustParsePrefix("10.32.0.0/16")}}
		cfg.Nodes = ranges.NodesConfig{
			Network:  nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
			Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
			External: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}
	})
	_, err := w.MakeNodes(t.Context(), 2)
	require.NoError(t, err)
	_, err = w.MakeNamespaces(t.Context(), 2)
	require.NoError(t, err)
	_, err = w.MakePods(t.Context(), kubetest.PodLoad{Count: 2, Nodes: 1, Namespaces: 2, Prefix: "pod-"})
	require.NoError(t, err)
	w.victim, w.own = w.address("ns-0:pod-0"), w.address("ns-1:pod-1")
	return w
}

// address waits for the address of a port.
func (w *tenants) address(port string) (address string) {
	bridgetest.Await(w.t, interval, converge, port+" has an address", func() error {
		out, err := w.lab.NBCtl(w.t.Context(), "lsp-get-addresses", port)
		if fields := strings.Fields(out); err == nil && len(fields) == 2 {
			address = fields[1]
			return nil
		}
		return fmt.Errorf("%q: %w", out, err)
	})
	return address
}

// serve creates a service in a namespace, with port 80 and an address as its endpoint.
func (w *tenants) serve(namespace, name, spec, endpoint string) {
	w.t.Helper()
	require.NoError(w.t, w.Apply(w.t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s}
spec: {ports: [{port: 80}], %[3]s}
`, namespace, name, spec), fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
endpoints: [{addresses: ['%[3]s']}]
ports: [{name: '', port: 8080}]
`, namespace, name, endpoint)))
}

func (w *tenants) remove(namespace, name string) {
	w.t.Helper()
	require.NoError(w.t, w.ControlPlane.Client().CoreV1().Services(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// refused waits for the problem of a service.
func (w *tenants) refused(namespace, name string, reason coe.Reason, says string) {
	w.t.Helper()
	bridgetest.Await(w.t, interval, converge, "a problem of service "+namespace+"/"+name, func() error {
		problems := w.Status().Problems
		for _, p := range problems {
			if p.Namespace == namespace && p.Name == name && p.Reason == string(reason) && strings.Contains(p.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("want %s: %q; have %+v", reason, says, problems)
	})
}

// vips returns the endpoints of each VIP, and the load balancers that have it.
func (w *tenants) vips() map[string]string {
	out, err := w.lab.NBCtl(w.t.Context(), "--format=json", "--columns=name,vips", "list", "Load_Balancer")
	require.NoError(w.t, err)
	all := map[string]string{}
	for _, row := range table(w.t, out) {
		for _, pair := range row["vips"].([]any)[1].([]any) {
			vip, to := pair.([]any)[0].(string), pair.([]any)[1].(string)
			all[vip] += fmt.Sprintf("%s=%s;", row["name"], to)
		}
	}
	return all
}

// has waits until a VIP belongs to the expected service, or to none.
func (w *tenants) has(vip, want string) {
	w.t.Helper()
	bridgetest.Await(w.t, interval, converge, "VIP "+vip, func() error {
		if got := w.vips()[vip]; got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// table decodes a table that OVN's tools print as JSON.
func table(t *testing.T, text string) (rows []map[string]any) {
	t.Helper()
	var in struct {
		Headings []string
		Data     [][]any
	}
	require.NoError(t, json.Unmarshal([]byte(text), &in), text)
	for _, cells := range in.Data {
		row := map[string]any{}
		for i, name := range in.Headings {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// requireOneAction requires that northd has made no two logical flows of a datapath with the same match
// and the same priority, and with different actions.
func (w *tenants) requireOneAction() {
	w.t.Helper()
	_, err := w.lab.NBCtl(w.t.Context(), "--wait=sb", "sync")
	require.NoError(w.t, err)
	groups := map[any][]any{}
	out, err := w.lab.SBCtl(w.t.Context(), "--format=json", "list", "Logical_DP_Group")
	require.NoError(w.t, err)
	for _, row := range table(w.t, out) {
		groups[row["_uuid"].([]any)[1]] = set(row["datapaths"])
	}
	out, err = w.lab.SBCtl(w.t.Context(), "--format=json", "list", "Logical_Flow")
	require.NoError(w.t, err)
	actions, balanced := map[string]any{}, 0
	for _, row := range table(w.t, out) {
		datapaths := set(row["logical_datapath"])
		for _, group := range set(row["logical_dp_group"]) {
			datapaths = append(datapaths, groups[group.([]any)[1]]...)
		}
		if strings.Contains(row["actions"].(string), "ct_lb") {
			balanced++
		}
		for _, datapath := range datapaths {
			key := fmt.Sprint(datapath, row["pipeline"], row["table_id"], row["priority"], row["match"])
			if other, found := actions[key]; found {
				require.Equal(w.t, other, row["actions"], "two logical flows match %s", key)
			}
			actions[key] = row["actions"]
		}
	}
	require.NotZero(w.t, balanced, "northd has flows of load balancers")
}

// set decodes a set of OVSDB's JSON. A set with one element can be the element itself.
func set(v any) []any {
	if s := v.([]any); s[0] == "set" {
		return slices.Clone(s[1].([]any))
	}
	return []any{v}
}

// trace returns the destination to which OVN sends a new connection of a pod.
func (w *tenants) trace(port, from, to string) string {
	w.t.Helper()
	on := "node:" + kubetest.NodeAddress(0).String()
	out, err := w.lab.NBCtl(w.t.Context(), "lsp-get-addresses", port)
	require.NoError(w.t, err)
	flow := fmt.Sprintf(`inport == %q && eth.src == %s && eth.dst == 0a:58:00:00:00:01 && ip4.src == %s && ip4.dst == %s && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80`,
		port, strings.Fields(out)[0], from, to)
	traced, err := exec.CommandContext(w.t.Context(), "ovn-trace", "--db="+w.lab.SB.Remote, "--ct=new", on, flow).CombinedOutput()
	require.NoError(w.t, err, "%s", traced)
	return string(traced)
}

// A tenant requests addresses of others as external addresses of its service: cluster addresses,
// addresses of nodes and pods, the network's own ranges, and addresses of the Internet. Each is refused
// with a problem, and OVN does not have it.
func TestExternalAddressesOfOthers(t *testing.T) {
	w := newTenants(t)
	const cluster = "10.96.0.50"
	w.serve("ns-0", "web", "clusterIP: "+cluster, w.victim)
	w.has(cluster+":80", "ns-0:web:tcp="+w.victim+":8080;")

	for name, c := range map[string]struct {
		address string
		reason  coe.Reason
		says    string
	}{
		"cluster":       {cluster, coe.AddressTaken, "10.96.0.0/16"},
		"api-server":    {"10.96.0.1", coe.AddressTaken, "10.96.0.0/16"},
		"free-cluster":  {"10.96.77.7", coe.AddressTaken, "10.96.0.0/16"},
		"node":          {kubetest.NodeAddress(1).String(), coe.AddressTaken, "is the address of node node-1"},
		"pod":           {w.victim, coe.AddressTaken, "10.32.0.0/16"},
		"free-pod":      {"10.32.200.1", coe.AddressTaken, "10.32.0.0/16"},
		"node-network":  {"100.96.0.1", coe.AddressTaken, "the node network"},
		"transit":       {"100.64.0.1", coe.AddressTaken, "100.64.0.0/11"},
		"internet":      {"8.8.8.8", coe.NotAllowed, "--external-addresses"},
		"name-server":   {"192.168.0.53", coe.NotAllowed, "--external-addresses"},
		"other-network": {"2001:db8::1", coe.NotAllowed, "--external-addresses"},
	} {
		w.serve("ns-1", name, "externalIPs: ['"+c.address+"']", w.own)
		w.refused("ns-1", name, c.reason, c.says)
	}
	w.AwaitSync(converge)
	for vip, of := range w.vips() {
		if strings.Contains(of, "ns-1:") {
			require.True(t, strings.HasPrefix(vip, "10.96."), "%s of %s", vip, of)
			require.Equal(t, 1, strings.Count(of, ";"), "%s of %s", vip, of)
		}
	}
	require.Equal(t, "ns-0:web:tcp="+w.victim+":8080;", w.vips()[cluster+":80"])
	w.requireOneAction()
	for port, from := range map[string]string{"ns-0:pod-0": w.victim, "ns-1:pod-1": w.own} {
		traced := w.trace(port, from, cluster)
		require.Contains(t, traced, w.victim+":8080", "from %s", port)
		require.NotContains(t, traced, w.own+":8080", "from %s", port)
	}
}

// The first claim of an address keeps it until its service is deleted, also against later services and
// after a restart. The address of a node, and a cluster address, take precedence over the claim.
func TestTheFirstServiceKeepsItsAddress(t *testing.T) {
	w := newTenants(t)
	w.serve("ns-0", "shop", "externalIPs: [192.0.2.7]", w.victim)
	w.has("192.0.2.7:80", "ns-0:shop:tcp="+w.victim+":8080;")
	w.serve("ns-1", "shop", "externalIPs: [192.0.2.7]", w.own)
	w.refused("ns-1", "shop", coe.AddressTaken, "an external address of a service of namespace ns-0")

	// While no bridge runs, more services with the address are created.
	w.Stop()
	for i := range 4 {
		w.serve("ns-1", fmt.Sprint("a", i), "externalIPs: [192.0.2.7]", w.own)
	}
	w.Restart()
	for i := range 4 {
		w.refused("ns-1", fmt.Sprint("a", i), coe.AddressTaken, "namespace ns-0")
	}
	w.AwaitSync(converge)
	require.Equal(t, "ns-0:shop:tcp="+w.victim+":8080;", w.vips()["192.0.2.7:80"])
	w.requireOneAction()
	for i := range 4 {
		w.remove("ns-1", fmt.Sprint("a", i))
	}
	w.remove("ns-0", "shop")
	w.has("192.0.2.7:80", "ns-1:shop:tcp="+w.own+":8080;")

	// A client of RESTCONF takes another's cluster address.
	w.serve("ns-0", "bank", "clusterIP: 10.96.0.60", w.victim)
	w.has("10.96.0.60:80", "ns-0:bank:tcp="+w.victim+":8080;")
	status, answer := w.Do(http.MethodPost, "/restconf/config/service:service-information", `{"services":[{
		"uid":"00000000-0000-4000-8000-000000000001","name":"thief","network-NS":"ns-1","cluster-ip-address":"10.96.0.60",
		"service-ports":[{"name":"http","port":80,"target-port":"8080"}]}]}`)
	require.Equal(t, http.StatusNoContent, status, answer)
	w.refused("ns-1", "thief", coe.AddressTaken, "the cluster address of a service of namespace ns-0")
	require.Equal(t, "ns-0:bank:tcp="+w.victim+":8080;", w.vips()["10.96.0.60:80"])

	// A node gets the address.
	require.NoError(t, w.Apply(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: late}}"))
	_, err := w.ControlPlane.Client().CoreV1().Nodes().Patch(t.Context(), "late", "application/merge-patch+json",
		[]byte(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.refused("ns-1", "shop", coe.AddressTaken, "is the address of node late")
	w.has("192.0.2.7:80", "")
	w.requireOneAction()
}

// A tenant names the address that a load balancer gives to another service later, and further ports of it. The
// address belongs to the service of the load balancer, on all ports.
func TestAddressOfALoadBalancer(t *testing.T) {
	w := newTenants(t)
	w.serve("ns-1", "early", "externalIPs: [192.0.2.8]", w.own)
	w.has("192.0.2.8:80", "ns-1:early:tcp="+w.own+":8080;")
	w.serve("ns-0", "shop", "type: LoadBalancer", w.victim)
	_, err := w.ControlPlane.Client().CoreV1().Services("ns-0").Patch(t.Context(), "shop", "application/merge-patch+json",
		[]byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.8"}]}}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.has("192.0.2.8:80", "ns-0:shop:tcp="+w.victim+":8080;")
	w.refused("ns-1", "early", coe.AddressTaken, "an external address of a service of namespace ns-0")
	require.NoError(t, w.Apply(t.Context(), `{apiVersion: v1, kind: Service, metadata: {name: beside, namespace: ns-1},
		spec: {externalIPs: [192.0.2.8], ports: [{port: 443}]}}`))
	w.refused("ns-1", "beside", coe.AddressTaken, "an external address of a service of namespace ns-0")
	require.Empty(t, w.vips()["192.0.2.8:443"])
}

// A service has many ports, addresses and endpoints. Each object is small, but the product of their
// numbers is large. A service above the limits is a problem, and is not in OVN. All other services are
// served, also in its namespace.
func TestServicesThatMultiply(t *testing.T) {
	w := newTenants(t)
	w.serve("ns-0", "web", "clusterIP: 10.96.0.50", w.victim)
	w.serve("ns-1", "good", "clusterIP: 10.96.0.51", w.own)
	list := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return strings.Join(all, ", ")
	}
	for name, c := range map[string]struct{ ports, externals, endpoints, endpointPorts int }{
		"ports":          {1000, 0, 1, 1},
		"addresses":      {64, 200, 1, 1},
		"endpoints":      {64, 0, 250, 64},
		"all":            {64, 3, 90, 64},
		"endpoint-ports": {1, 0, 1, 1000},
	} {
		require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: ns-1}
spec: {ports: [%s], externalIPs: [%s]}
`, name, list(c.ports, "{name: 'p%[1]d', port: %[1]d}"), list(c.externals, "192.0.2.%d")), fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: ns-1, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [%[2]s]
ports: [%[3]s]
`, name, list(c.endpoints, "{addresses: [10.32.7.%d]}"), list(c.endpointPorts, "{name: 'p%[1]d', port: %[1]d}"))))
	}
	for _, name := range []string{"ports", "addresses", "endpoints", "all", "endpoint-ports"} {
		w.refused("ns-1", name, coe.TooLarge, "split the service")
	}
	w.has("10.96.0.50:80", "ns-0:web:tcp="+w.victim+":8080;")
	w.has("10.96.0.51:80", "ns-1:good:tcp="+w.own+":8080;")
	w.AwaitSync(converge)
	for vip, of := range w.vips() {
		require.True(t, strings.HasPrefix(of, "ns-0:web:") || strings.HasPrefix(of, "ns-1:good:") || strings.HasPrefix(of, "default:kubernetes:"), "%s of %s", vip, of)
	}
}

// Endpoints cannot be loopback addresses, which would be on any node, or the metadata server of a cloud.
func TestEndpointsThatKubernetesRefuses(t *testing.T) {
	b := bridgetest.Start(t)
	for _, address := range []string{"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255", "::ffff:127.0.0.1"} {
		status, answer := b.Do(http.MethodPost, "/restconf/config/service:endpoints-info", `{"endpoints":[{
			"uid":"00000000-0000-4000-8000-000000000002","name":"web","endpoint-addresses":[{"ip-address":"`+address+`"}]}]}`)
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", address, answer)
		require.Contains(t, answer, "loopback, link-local", "%s", address)
	}
}
