package kubernetes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// serviceCIDRs are the service CIDRs of TestOneThingAtATime, IPv4 first.
var serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/24"), netip.MustParsePrefix("fd97::/112")}

// balancer is an expected load balancer. The endpoints of its VIPs are sorted.
type balancer struct {
	protocol string
	affinity string
	vips     map[string]string
}

// slice is the head of an EndpointSlice of service web in namespace ns-0.
const slice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: ns-0, labels: {kubernetes.io/service-name: web}}
addressType: %s
`

// service is the head of service web in namespace ns-0.
const service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns-0}
spec:
`

func testServices(t *testing.T, w *world, b running) {
	one := func(protocol string, vips map[string]string) map[string]balancer {
		return map[string]balancer{"ns-0:web:" + protocol: {protocol: protocol, vips: vips}}
	}
	ipv4 := func(n int, endpoints, ports string) string {
		return fmt.Sprintf(slice, n, "IPv4") + "endpoints: [" + endpoints + "]\nports: [" + ports + "]\n"
	}
	for name, c := range map[string]struct {
		service string
		slices  []string
		want    map[string]balancer
	}{
		"named target port": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{name: http, port: 80, targetPort: web}]",
			// A named port can have another number in each pod, so each pod has its own slice.
			[]string{
				ipv4(1, `{addresses: [10.128.0.1]}, {addresses: [10.128.0.2], conditions: {ready: true}}`, `{name: http, port: 8080}`),
				ipv4(2, `{addresses: [10.128.0.3]}, {addresses: [10.128.0.4], conditions: {ready: false}}`, `{name: http, port: 9090}`),
			},
			one("tcp", map[string]string{"10.97.0.50:80": "10.128.0.1:8080,10.128.0.2:8080,10.128.0.3:9090"}),
		},
		"no endpoints": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{port: 80}]", nil,
			one("tcp", map[string]string{"10.97.0.50:80": ""}),
		},
		"udp and sctp and two ports": {
			service + `  clusterIP: 10.97.0.50
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, targetPort: 5353}
  - {name: metrics, port: 9153}
  - {name: m3ua, port: 2905, protocol: SCTP}`,
			[]string{ipv4(1, `{addresses: [10.128.0.1]}`,
				`{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 5353}, {name: metrics, port: 9153}, {name: m3ua, port: 2905, protocol: SCTP}`)},
			map[string]balancer{
				"ns-0:web:udp":  {"udp", "", map[string]string{"10.97.0.50:53": "10.128.0.1:53"}},
				"ns-0:web:tcp":  {"tcp", "", map[string]string{"10.97.0.50:53": "10.128.0.1:5353", "10.97.0.50:9153": "10.128.0.1:9153"}},
				"ns-0:web:sctp": {"sctp", "", map[string]string{"10.97.0.50:2905": "10.128.0.1:2905"}},
			},
		},
		"affinity": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{port: 80}]\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}",
			[]string{ipv4(1, `{addresses: [10.128.0.1]}`, `{name: "", port: 80}`)},
			map[string]balancer{"ns-0:web:tcp": {"tcp", "600", map[string]string{"10.97.0.50:80": "10.128.0.1:80"}}},
		},
		"affinity without a time": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{port: 80}]\n  sessionAffinity: ClientIP",
			nil,
			map[string]balancer{"ns-0:web:tcp": {"tcp", "10800", map[string]string{"10.97.0.50:80": ""}}},
		},
		"terminating and serving, and no other is ready": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{port: 80}]",
			[]string{ipv4(1, `{addresses: [10.128.0.1], conditions: {ready: false, serving: true, terminating: true}},
  {addresses: [10.128.0.2], conditions: {ready: false, serving: false, terminating: true}}, {addresses: [10.128.0.3], conditions: {ready: false}}`, `{name: "", port: 80}`)},
			one("tcp", map[string]string{"10.97.0.50:80": "10.128.0.1:80"}),
		},
		"terminating and serving beside one that is ready": {
			service + "  clusterIP: 10.97.0.50\n  ports: [{port: 80}]",
			[]string{
				ipv4(1, `{addresses: [10.128.0.1], conditions: {ready: false, serving: true, terminating: true}}`, `{name: "", port: 80}`),
				ipv4(2, `{addresses: [10.128.0.2], conditions: {ready: true, serving: true, terminating: false}}`, `{name: "", port: 80}`),
			},
			one("tcp", map[string]string{"10.97.0.50:80": "10.128.0.2:80"}),
		},
		"both families": {
			service + "  clusterIP: 10.97.0.50\n  clusterIPs: [10.97.0.50, 'fd97::50']\n  ipFamilyPolicy: RequireDualStack\n  ports: [{port: 80}]",
			[]string{
				ipv4(1, `{addresses: [10.128.0.1]}`, `{name: "", port: 8080}`),
				fmt.Sprintf(slice, 2, "IPv6") + "endpoints: [{addresses: ['fd80::1']}]\nports: [{name: '', port: 8080}]\n",
			},
			one("tcp", map[string]string{"10.97.0.50:80": "10.128.0.1:8080", "[fd97::50]:80": "[fd80::1]:8080"}),
		},
		"further addresses": {
			service + "  clusterIP: 10.97.0.50\n  externalIPs: [192.0.2.7]\n  ports: [{port: 80}]",
			[]string{ipv4(1, `{addresses: [10.128.0.1]}`, `{name: "", port: 80}`)},
			one("tcp", map[string]string{"10.97.0.50:80": "10.128.0.1:80", "192.0.2.7:80": "10.128.0.1:80"}),
		},
		"headless": {
			service + "  clusterIP: None\n  ports: [{port: 80}]",
			[]string{ipv4(1, `{addresses: [10.128.0.1]}`, `{name: "", port: 80}`)}, nil,
		},
		"external name": {service + "  type: ExternalName\n  externalName: example.net", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, w.Apply(t.Context(), append(c.slices, c.service)...))
			await(t, converge, "load balancers", func() error { return w.hasBalancers(t, "ns-0:", c.want) })
			w.awaitExact(t, b, converge)
			require.NoError(t, w.Client().CoreV1().Services("ns-0").Delete(t.Context(), "web", metav1.DeleteOptions{}))
			require.NoError(t, w.Client().DiscoveryV1().EndpointSlices("ns-0").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			await(t, converge, "no load balancers", func() error { return w.hasBalancers(t, "ns-0:", nil) })
		})
	}
}

// hasBalancers returns an error if the load balancers with a prefix differ from the expected ones.
func (w *world) hasBalancers(t *testing.T, prefix string, want map[string]balancer) error {
	t.Helper()
	now, err := w.rows.read(t.Context())
	require.NoError(t, err)
	got := map[string]balancer{}
	for _, lb := range now.balancers {
		if strings.HasPrefix(lb.Name, prefix) {
			got[lb.Name] = newBalancer(&lb)
		}
	}
	if !maps.EqualFunc(want, got, func(a, b balancer) bool {
		return a.protocol == b.protocol && a.affinity == b.affinity && maps.Equal(a.vips, b.vips)
	}) {
		return fmt.Errorf("want %v, got %v", want, got)
	}
	return now.checkReach()
}

func newBalancer(lb *nb.LoadBalancer) balancer {
	b := balancer{protocol: *lb.Protocol, affinity: lb.Options["affinity_timeout"], vips: map[string]string{}}
	for vip, to := range lb.Vips {
		endpoints := strings.Split(to, ",")
		slices.Sort(endpoints)
		b.vips[vip] = strings.Join(endpoints, ",")
	}
	return b
}

// testServiceOfAPIServer requires the load balancer of the API server, whose endpoint is not a pod.
func testServiceOfAPIServer(t *testing.T, w *world, _ running) {
	slice, err := w.Client().DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, slice.Endpoints, 1)
	at := netip.AddrPortFrom(netip.MustParseAddr(slice.Endpoints[0].Addresses[0]), uint16(*slice.Ports[0].Port))
	await(t, converge, "the load balancer of the API server", func() error {
		return w.hasBalancers(t, "default:", map[string]balancer{"default:kubernetes:tcp": {
			protocol: "tcp", vips: map[string]string{"10.97.0.1:443": at.String()},
		}})
	})
}

// testPodsOfService: the controllers of Kubernetes choose the endpoints. These are the ready pods, or
// all pods with publishNotReadyAddresses.
func testPodsOfService(t *testing.T, w *world, b running) {
	load := kubetest.PodLoad{Count: 3, Nodes: 3, Prefix: "web-", Labels: map[string]string{"app": "web"}}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	has := w.podAddresses(t)
	for i := range load.Count {
		address := has["ns-0:"+load.Pod(i).Name]
		require.True(t, address.IsValid())
		require.NoError(t, w.SetPodStatus(t.Context(), "ns-0", load.Pod(i).Name, kubetest.PodStatus{
			Phase: "Running", Addresses: []netip.Addr{address}, Ready: i == 0,
		}))
	}
	spec := service + "  clusterIP: 10.97.0.50\n  selector: {app: web}\n  ports: [{port: 80, targetPort: web}]\n"
	endpoints := func(n int) map[string]balancer {
		var to []string
		for i := range n {
			to = append(to, netip.AddrPortFrom(has["ns-0:"+load.Pod(i).Name], 8080).String())
		}
		slices.Sort(to)
		return map[string]balancer{"ns-0:web:tcp": {protocol: "tcp", vips: map[string]string{"10.97.0.50:80": strings.Join(to, ",")}}}
	}
	require.NoError(t, w.Apply(t.Context(), spec))
	await(t, converge, "the ready pod", func() error { return w.hasBalancers(t, "ns-0:", endpoints(1)) })
	require.NoError(t, w.Apply(t.Context(), spec+"  publishNotReadyAddresses: true\n"))
	await(t, converge, "all pods", func() error { return w.hasBalancers(t, "ns-0:", endpoints(3)) })
	w.awaitExact(t, b, converge)

	require.NoError(t, w.Client().CoreV1().Services("ns-0").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
}
