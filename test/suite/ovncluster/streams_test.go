package ovncluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

// ofStreams are the hosts of the pods that send and receive.
var ofStreams = []string{"host1", "host2"}

// podMTU is the MTU that the lab gives pods.
const podMTU = 1400

// The policy allows two ports. The ports of ways to other pods begin with firstPort.
const (
	allowedPort   = 9000
	alsoAllowed   = 9001
	forbiddenPort = 9002
	firstPort     = 9100
)

// A pod of the namespace sends to servedPort of the service with ports, its endpoint to hairpinPort, and a pod of another namespace to
// isolatedPort. The ports of the endpoint are higher by toEndpoint.
const (
	servedPort   = 80
	hairpinPort  = 81
	isolatedPort = 82
	toEndpoint   = 9200
)

// family has the pods of a family that run all the time, and its addresses of services that lead to far.
type family struct {
	isIPv6          bool
	near, far       pod        // of the namespace web, on host1 and host2
	client, guarded pod        // of the namespace default, on host1 and host2, with a policy
	portless, ports netip.Addr // of a service without ports, and of the service with ports
}

func (w *world) plugFamily(f *family) {
	w.t.Helper()
	f.near, f.far = w.plug("host1", f.isIPv6), w.plug("host2", f.isIPv6)
	f.client, f.guarded = w.run("default", "host1", f.isIPv6), w.run("default", "host2", f.isIPv6)
	for _, other := range []pod{f.far, f.guarded} { // the first packets between hosts may be lost during neighbour discovery
		require.NoError(w.t, w.lab.Ping(w.t.Context(), f.client.Name, other.address))
		require.NoError(w.t, w.lab.Ping(w.t.Context(), other.Name, f.client.address))
	}
}

// ways returns the ways of packets. Without a policy and without isolation, none is denied.
func (f *family) ways(hasPolicy, isIsolated bool) []packets.Way {
	portless, served := netip.AddrPortFrom(f.portless, 0), netip.AddrPortFrom(f.ports, servedPort)
	hairpin, isolated := netip.AddrPortFrom(f.ports, hairpinPort), netip.AddrPortFrom(f.ports, isolatedPort)
	list := []struct {
		from, to pod
		more     packets.Way
	}{
		{f.near, f.far, packets.Way{}},
		{f.near, f.far, packets.Way{Service: portless}},
		{f.client, f.guarded, packets.Way{Port: allowedPort}},
		{f.client, f.guarded, packets.Way{Port: forbiddenPort, Denied: hasPolicy}},
		{f.client, f.near, packets.Way{Denied: isIsolated}}, // on the same host
		{f.near, f.guarded, packets.Way{Port: alsoAllowed, Denied: isIsolated}},
		{f.client, f.far, packets.Way{Service: portless, Denied: isIsolated}},
		{f.near, f.far, packets.Way{Service: served, Port: servedPort + toEndpoint}},
		{f.near, f.far, packets.Way{Service: served, Port: servedPort + toEndpoint, TCP: true}},
		{f.far, f.far, packets.Way{Service: portless}},
		{f.far, f.far, packets.Way{Service: hairpin, Port: hairpinPort + toEndpoint}},
		{f.client, f.far, packets.Way{Service: isolated, Port: isolatedPort + toEndpoint, Denied: isIsolated}},
	}
	ways := make([]packets.Way, 0, len(list))
	for i, one := range list {
		way := one.more
		way.From, way.To, way.Address = one.from.Name, one.to.Name, one.to.address
		if way.Port == 0 {
			way.Port = firstPort + uint16(i)
		}
		ways = append(ways, way)
	}
	return ways
}

// applyServices creates the services: one of each family without ports, which leads packets of every protocol to its endpoint, and one with ports.
func (w *world) applyServices() {
	w.t.Helper()
	var services, endpoints strings.Builder
	for i, f := range w.families {
		id := fmt.Sprintf("uid: 5e000000-c0e0-4000-8000-%012d, name: far%d, network-NS: web", i, i)
		fmt.Fprintf(&services, "- {%s, cluster-ip-address: '%s'}\n", id, f.portless)
		fmt.Fprintf(&endpoints, "- {%s, endpoint-addresses: [{ip-address: '%s'}]}\n", id, f.far.address)
	}
	w.apply("service:services:\n" + services.String() + "---\nservice:endpoints:\n" + endpoints.String())
	w.createService()
	for _, f := range w.families {
		w.awaitRow("Load_Balancer", "vips", f.portless.String())
		w.awaitRow("Load_Balancer", "vips", netip.AddrPortFrom(f.ports, hairpinPort).String())
	}
}

// applyPolicy lets the pods of the namespace default receive packets on two ports alone.
func (w *world) applyPolicy() {
	w.t.Helper()
	port := func(n int) string { return fmt.Sprintf("network-policy-port: {protocol: UDP, port: '%d'}", n) }
	w.apply(fmt.Sprintf(`
k8s:network-policy:
- uuid: 90000000-c0e0-4000-8000-000000000000
  name: guard
  network-policy-spec:
    pod-selector: {}
    policy-types: [ingress]
    ingress: [{network-policy-ingress-rule: {ingress-ports: [{%s}, {%s}]}}]
`, port(allowedPort), port(alsoAllowed)))
	w.awaitRow("ACL", "match", strconv.Itoa(allowedPort))
	w.hasPolicy = true
}

// ways returns the ways of packets between the pods of the families.
func (w *world) ways() (ways []packets.Way) {
	for _, f := range w.families {
		ways = append(ways, f.ways(w.hasPolicy, w.isIsolated)...)
	}
	return ways
}

// streams returns streams of packets between the hosts.
func (w *world) streams(ways []packets.Way) packets.Streams {
	return packets.Streams{Lab: w.lab, Ways: ways, MTU: podMTU, Hosts: ofStreams}
}

// keepsPackets requires that no packet is lost on a way while do runs, and that none arrives on a way that is denied.
func (w *world) keepsPackets(do func()) {
	w.t.Helper()
	text, err := w.streams(w.ways()).Keep(w.t.Context(), do)
	require.NoError(w.t, err)
	w.t.Log("running pods: " + text)
}
