package ovn_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestFlowsOfPods: a further pod on a switch costs ovn-northd few logical flows, and DHCP costs as many again. OVN 25.03 makes one more for each
// port than 23.03. In LayoutNode it makes two less, because it answers no ARP requests for the pod.
func TestFlowsOfPods(t *testing.T) {
	lab := ovnhost.ForTest(t)
	bare := flowsOfBarePort(t, lab)
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		const pods = 3 // in the first block, a /29 in LayoutELAN
		further := func(dhcp bool) float64 {
			flows := func(pods int) int {
				return flowsOf(t, lab, layout, cluster{pods: pods, nodes: 1, namespaces: 1, dhcp: dhcp}.plan(t, layout)).flows
			}
			return float64(flows(1+pods)-flows(1)) / pods
		}
		plain, dhcp := further(false), further(true)
		t.Logf("logical flows of a further pod in layout %s: %v, %v with DHCP; of a bare port: %d", layout, plain, dhcp, bare)
		require.LessOrEqual(t, plain, float64(bare))
		if layout == ovn.LayoutNode {
			require.LessOrEqual(t, plain, 4.0)
		}
		require.Greater(t, dhcp, plain)
	}
}

// flowsOfBarePort returns the number of logical flows of a further port of a switch with a router. The port has a MAC address, an IP address, and
// port security.
func flowsOfBarePort(t *testing.T, lab *ovnhost.Lab) int {
	t.Helper()
	run := func(args ...string) {
		_, err := lab.NBCtl(t.Context(), append([]string{"--wait=sb"}, args...)...)
		require.NoError(t, err)
	}
	add := func(port, address string) []string {
		return []string{"--", "lsp-add", "bare", port, "--", "lsp-set-addresses", port, address, "--", "lsp-set-port-security", port, address}
	}
	run(append([]string{
		"ls-add", "bare", "--", "lr-add", "bare", "--", "lrp-add", "bare", "bare-gateway", "0a:58:0a:63:00:01", "10.99.0.1/24",
		"--", "lsp-add", "bare", "to-gateway", "--", "lsp-set-type", "to-gateway", "router", "--", "lsp-set-addresses", "to-gateway", "router",
		"--", "lsp-set-options", "to-gateway", "router-port=bare-gateway",
	}, add("bare-1", "0a:58:0a:63:00:02 10.99.0.2")...)...)
	before := logicalFlows(t, lab)
	run(add("bare-2", "0a:58:0a:63:00:03 10.99.0.3")[1:]...)
	defer run("ls-del", "bare", "--", "lr-del", "bare")
	return logicalFlows(t, lab) - before
}

// TestFlowsOfLayouts: with a switch and blocks for each node, a cluster of many namespaces costs ovn-northd far fewer logical
// flows. The addresses are those that a bridge chooses.
func TestFlowsOfLayouts(t *testing.T) {
	const pods, nodes, namespaces = 200, 5, 20
	lab := ovnhost.ForTest(t)
	all := cluster{pods: pods, nodes: nodes, namespaces: namespaces}
	elan := flowsOf(t, lab, ovn.LayoutELAN, all.plan(t, ovn.LayoutELAN)).flows
	node := flowsOf(t, lab, ovn.LayoutNode, all.plan(t, ovn.LayoutNode)).flows
	old := &northd{t: t, lab: lab, b: withLayout(t, lab, ovn.LayoutNode)}
	m := netvirt.Model{}
	m.Add(bulk(pods, nodes, namespaces)...) // each elan-instance still has its own block
	changed := old.flows(withGateways(m).Select(old.b.Kinds()))
	t.Logf("logical flows of %d pods on %d nodes in %d namespaces: %d in layout elan, %d in node, %d in node right after a change",
		pods, nodes, namespaces, elan, node, changed)
	require.Less(t, node, elan/3)
	require.Less(t, changed, elan)
}

// TestLogicalFlows: the estimate for plan is near what ovn-northd makes. Its formula is for OVN 23.03.
func TestLogicalFlows(t *testing.T) {
	lab := ovnhost.ForTest(t)
	for name, c := range map[string]cluster{
		"pods":             {pods: 60, nodes: 3, namespaces: 10},
		"everything":       {pods: 40, nodes: 4, namespaces: 5, services: 3, policies: 2, ipv6: true, management: true, dhcp: true},
		"many services":    {pods: 10, nodes: 2, namespaces: 2, services: 30, management: true},
		"isolated":         {pods: 40, nodes: 3, namespaces: 6, services: 1, management: true, isolated: true},
		"large namespaces": {pods: 120, nodes: 2, namespaces: 2, policies: 1},
	} {
		for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
			t.Run(name+", "+string(layout), func(t *testing.T) {
				planned := c.plan(t, layout)
				rows := make([]preview.Row, len(planned.Rows))
				for i, r := range planned.Rows {
					rows[i] = r.Row
				}
				real, estimate := flowsOf(t, lab, layout, planned).flows, preview.LogicalFlows(rows)
				t.Logf("%d logical flows, estimated %d", real, estimate)
				require.InEpsilon(t, real, estimate, 0.1)
			})
		}
	}
}

// BenchmarkLayouts writes 5,000 pods on 50 nodes in 100 namespaces in both layouts, each to an OVN of its own. The time is
// from the write until ovn-northd has written all logical flows, and the memory is that of ovn-northd then.
func BenchmarkLayouts(b *testing.B) {
	all := cluster{pods: 5000, nodes: 50, namespaces: 100}
	for b.Loop() {
		node := flowsOf(b, ovnhost.ForTest(b), ovn.LayoutNode, all.plan(b, ovn.LayoutNode))
		elan := flowsOf(b, ovnhost.ForTest(b), ovn.LayoutELAN, all.plan(b, ovn.LayoutELAN))
		b.ReportMetric(float64(elan.flows), "flows-elan")
		b.ReportMetric(float64(node.flows), "flows-node")
		b.ReportMetric(float64(node.flows)/float64(elan.flows), "flows-ratio")
		b.ReportMetric(elan.took.Seconds(), "s-elan")
		b.ReportMetric(node.took.Seconds(), "s-node")
		b.ReportMetric(elan.megabytes, "MB-elan")
		b.ReportMetric(node.megabytes, "MB-node")
		b.ReportMetric(node.megabytes/elan.megabytes, "MB-ratio")
	}
}

// cluster is a cluster of Kubernetes whose pods are spread over nodes and namespaces.
type cluster struct {
	pods, nodes, namespaces int
	// services of a namespace select its pods. Policies of a namespace let in its pods and a range outside, and let its pods
	// out to the namespace.
	services, policies int
	ipv6, management   bool
	dhcp, isolated     bool
}

func (c cluster) manifests() string {
	var text strings.Builder
	add := func(format string, values ...any) { fmt.Fprintf(&text, "---\n"+format+"\n", values...) }
	for n := range c.nodes {
		add("{apiVersion: v1, kind: Node, metadata: {name: node-%d}, status: {addresses: [{type: InternalIP, address: %s}]}}",
			n, netip.AddrFrom4([4]byte{192, 168, byte(n / 250), byte(1 + n%250)}))
	}
	for n := range c.pods {
		annotations := ""
		if c.dhcp {
			annotations = `coe-bridge.io/dhcp: "true"`
		}
		add("{apiVersion: v1, kind: Pod, metadata: {name: pod-%d, namespace: namespace-%d, labels: {app: web}, annotations: {%s}}, spec: {nodeName: node-%d}}",
			n, n/c.nodes%c.namespaces, annotations, n%c.nodes)
	}
	for ns := range c.namespaces {
		for n := range c.services {
			add("{apiVersion: v1, kind: Service, metadata: {name: web-%d, namespace: namespace-%d}, spec: {clusterIP: 10.96.%d.%d, selector: {app: web}, ports: [{name: a, port: 80}, {name: b, port: 53, protocol: UDP}]}}",
				n, ns, ns, n+1)
		}
		for n := range c.policies {
			add("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: policy-%d, namespace: namespace-%d}, spec: {podSelector: {matchLabels: {app: web}}, "+
				"policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 198.51.100.%d/32}}], ports: [{port: 80}]}], egress: [{to: [{podSelector: {}}]}]}}", n, ns, n)
		}
	}
	return text.String()
}

// plan computes what a bridge would make of the cluster.
func (c cluster) plan(t testing.TB, layout ovn.Layout) *plan.Plan {
	t.Helper()
	cfg := plan.Config{
		Mapping: mapping.Settings{Isolation: mapping.IsolationNone}, Layout: layout,
		Pools: []dhcppool.Pool{{Network: dhcppool.DefaultNetwork, Subnet: netip.MustParsePrefix("10.128.0.0/12")}},
	}
	if c.isolated {
		cfg.Mapping.Isolation = mapping.IsolationNamespace
	}
	if c.ipv6 {
		cfg.Pools = append(cfg.Pools, dhcppool.Pool{Network: dhcppool.DefaultNetwork, Subnet: netip.MustParsePrefix("fd00:10::/64")})
	}
	if c.management {
		cfg.Nodes.Network = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	}
	planned, err := plan.Compute(t.Context(), []plan.Document{{Name: "cluster", Text: []byte(c.manifests())}}, cfg)
	require.NoError(t, err)
	require.Empty(t, planned.Problems)
	return planned
}

// cost is what a cluster costs OVN.
type cost struct {
	flows     int
	took      time.Duration // until ovn-northd has written all logical flows
	megabytes float64       // memory of ovn-northd
}

// flowsOf writes what a plan has, and removes it again.
func flowsOf(t testing.TB, lab *ovnhost.Lab, layout ovn.Layout, planned *plan.Plan) cost {
	t.Helper()
	n := &northd{t: t, lab: lab, b: withLayout(t, lab, layout)}
	m := netvirt.Model{}
	for _, c := range planned.Changes {
		m.Add(c.New)
	}
	defer n.write(netvirt.Model{})
	begin := time.Now()
	flows := n.flows(m.Select(n.b.Kinds()))
	took := time.Since(begin)
	pid, err := lab.Northd.PID()
	require.NoError(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	resident := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, resident)
	kilobytes, err := strconv.Atoi(string(resident[1]))
	require.NoError(t, err)
	return cost{flows, took, float64(kilobytes) / 1000}
}
