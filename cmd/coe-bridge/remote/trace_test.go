package remote

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/status"
)

// A pod is reached by the exposed ports of a service that lead to it, in the families in which it is an endpoint.
func TestOutsideWays(t *testing.T) {
	addr := netip.MustParseAddr
	nodePort := shownExposed{Way: status.ByNodePort, Protocol: "tcp", Port: 30080, ServicePort: 80}
	balancer := shownExposed{
		Way: status.ByLoadBalancer, Address: addr("198.51.100.11"), Protocol: "tcp", Port: 80, ServicePort: 80,
		Restricted: true, Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	}
	web := shownService{
		Namespace: "shop", Name: "web", Policy: "Local",
		VIPs: []vip{
			{Protocol: "tcp", Address: "10.96.0.20", Port: 80, Endpoints: []endpoint{{"10.11.0.4", 8080}, {"10.11.0.5", 8080}}},
			{Protocol: "udp", Address: "10.96.0.20", Port: 53},
		},
		Exposed: []shownExposed{
			nodePort, balancer,
			{Way: status.ByNodePort, Protocol: "udp", Port: 30053, ServicePort: 53},
			{Way: status.ByLoadBalancer, Address: addr("2001:db8::11"), Protocol: "tcp", Port: 80, ServicePort: 80},
		},
	}
	other := shownService{Namespace: "shop", Name: "other", VIPs: []vip{{Protocol: "tcp", Port: 80, Endpoints: []endpoint{{"10.11.0.6", 80}}}}, Exposed: []shownExposed{nodePort}}
	all := []shownService{other, web}

	ways := outsideWays([]netip.Addr{addr("10.11.0.4")}, all)
	require.Equal(t, []outsideWay{{"shop/web", "Local", nodePort}, {"shop/web", "Local", balancer}}, ways)
	require.Empty(t, outsideWays([]netip.Addr{addr("10.11.0.7")}, all))

	var out bytes.Buffer
	require.NoError(t, printTrace(&out, "table", "shop", tracedPod{status.Pod{Name: "web-1"}, ways}))
	require.Regexp(t, `(?m)^shop/web +node-port +every node +30080/tcp +Local +all$`, out.String())
	require.Regexp(t, `(?m)^shop/web +load-balancer +198\.51\.100\.11 +80/tcp +Local +192\.0\.2\.0/24$`, out.String())
	out.Reset()
	require.NoError(t, printTrace(&out, "json", "shop", tracedPod{status.Pod{Name: "web-1"}, ways}))
	require.Contains(t, out.String(), `"service": "shop/web"`)
}
