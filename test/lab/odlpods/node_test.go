package odlpods_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The ports of the servers: of pods, and of hosts.
const podPort, hostPort = 8080, 8081

// page is the cluster address of the service of namespace web.
var page = netip.MustParseAddrPort("10.96.0.10:80")

// services has a service of the pods front and back, one without endpoints, and one of a program on the first host.
const services = `service:services:
- uid: 5e55101e-c0e0-4000-8000-000000000001
  name: page
  network-NS: web
  cluster-ip-address: 10.96.0.10
  service-ports: [{name: http, port: 80, target-port: "8080", node-port: 30080}]
  endpoints: [c0e00000-c0e0-4000-8000-000000000001, c0e00000-c0e0-4000-8000-000000000003]
- uid: 5e55101e-c0e0-4000-8000-000000000002
  name: empty
  network-NS: web
  cluster-ip-address: 10.96.0.11
  service-ports: [{name: http, port: 80, target-port: "8080"}]
- uid: 5e55101e-c0e0-4000-8000-000000000003
  name: api
  network-NS: shop
  cluster-ip-address: 10.96.0.1
  service-ports: [{name: https, port: 443, target-port: "8081"}]
---
service:endpoints:
- uid: 5e55101e-c0e0-4000-8000-000000000013
  name: api
  network-NS: shop
  endpoint-addresses: [{ip-address: 172.31.99.11}]
  endpoint-ports: [{name: https, port: 8081}]
`

// serve lets a pod or a host say who it is, and who asks.
func (w *world) serve(name string, port uint16) {
	require.NoError(w.t, w.lab.Serve(name, port, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(rw, name+" "+from)
	})))
}

// ask asks a server, until it answers. It returns the name of the server, and the address that the server saw.
func (w *world) ask(from string, to netip.AddrPort) (by, saw string) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		answer, err := w.lab.HTTPGet(ctx, from, "http://"+to.String()+"/")
		by, saw, _ = strings.Cut(answer, " ")
		return err
	}), "%s asks %s", from, to)
	return by, saw
}

// joined returns the address that a host has for pods.
func (w *world) joined(host string) netip.Addr {
	w.t.Helper()
	var address netip.Addr
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		out, err := w.lab.Exec(ctx, host, "ip", "-4", "-brief", "address", "show", "coe0")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		prefix, err := netip.ParsePrefix(fields[len(fields)-1])
		address = prefix.Addr()
		return err
	}))
	return address
}

// testNodes tests that nodes reach the pods of all nodes, and pods all nodes, without translation.
func (w *world) testNodes() {
	for _, p := range w.pods {
		w.serve(p.String(), podPort)
	}
	for _, host := range w.lab.Hosts {
		w.serve(host.Name, hostPort)
		at := w.joined(host.Name)
		for _, p := range w.pods {
			by, saw := w.ask(host.Name, netip.AddrPortFrom(p.Address, podPort))
			require.Equal(w.t, []string{p.String(), at.String()}, []string{by, saw})
			by, saw = w.ask(p.String(), netip.AddrPortFrom(at, hostPort))
			require.Equal(w.t, []string{host.Name, p.Address.String()}, []string{by, saw})
			if p.Host == host.Name {
				by, saw = w.ask(p.String(), netip.AddrPortFrom(host.Address, hostPort))
				require.Equal(w.t, []string{host.Name, p.Address.String()}, []string{by, saw})
			}
		}
	}
}

// testServices tests cluster addresses from pods and nodes, and a port of nodes from outside.
func (w *world) testServices() {
	require.NoError(w.t, w.lab.Apply(w.t.Context(), "services", services))
	api := netip.MustParseAddrPort("10.96.0.1:443")
	serving := []string{w.pods[0].String(), w.pods[2].String()}
	var clients []string
	for _, p := range w.pods {
		clients = append(clients, p.String())
	}
	for _, host := range w.lab.Hosts {
		clients = append(clients, host.Name)
	}
	for _, p := range w.pods {
		w.seen(p, page)
	}
	for _, client := range clients {
		w.both(client, page, serving)
		by, _ := w.ask(client, api)
		require.Equal(w.t, "host1", by)
		w.refused(client, "10.96.0.11:80")
	}
	for _, host := range w.lab.Hosts {
		w.both(ovnhost.CentralNamespace, netip.AddrPortFrom(host.Address, 30080), serving)
	}
}

// seen requires that an endpoint of a service sees the pod that is its client.
func (w *world) seen(p odlpods.Plugged, at netip.AddrPort) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		answer, err := w.lab.HTTPGet(ctx, p.String(), "http://"+at.String()+"/")
		if _, saw, _ := strings.Cut(answer, " "); err == nil && saw != p.Address.String() {
			err = fmt.Errorf("the endpoint sees %s, not %s", saw, p.Address)
		}
		return err
	}), "%s asks %s", p, at)
}

// both requires that all pods of a service answer a client.
func (w *world) both(client string, at netip.AddrPort, serving []string) {
	w.t.Helper()
	answered := map[string]bool{}
	for range 40 {
		by, _ := w.ask(client, at)
		require.Contains(w.t, serving, by)
		if answered[by] = true; len(answered) == len(serving) {
			return
		}
	}
	require.Fail(w.t, "a pod never answers", "%s at %s: only %v", client, at, answered)
}

// refused requires that a connection is refused at once.
func (w *world) refused(client, at string) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		_, err := w.lab.HTTPGet(ctx, client, "http://"+at+"/")
		if err == nil || !strings.Contains(err.Error(), "connection refused") {
			return fmt.Errorf("%s should be refused at %s: %w", client, at, err)
		}
		return nil
	}))
}

// testWayOut tests that pods reach what is outside of the cluster with the address of their node.
func (w *world) testWayOut() {
	w.serve(ovnhost.CentralNamespace, podPort)
	for _, p := range w.pods {
		by, saw := w.ask(p.String(), netip.AddrPortFrom(ovnhost.Central, podPort))
		at := slices.IndexFunc(w.lab.Hosts, func(h *ovnhost.Host) bool { return h.Name == p.Host })
		require.Equal(w.t, []string{ovnhost.CentralNamespace, w.lab.Hosts[at].Address.String()}, []string{by, saw})
	}
}

// testFirstPods tests that the first packet of a pod by its node is answered, if it is the first pod of its namespace on the node.
// The pod becomes known after its ADD, so that the node makes its port in the namespace meanwhile.
func (w *world) testFirstPods() {
	for i := range 6 {
		p := pod(20+i, fmt.Sprintf("first%d", i), "only", w.lab.Hosts[i%len(w.lab.Hosts)].Name)
		plugged := make(chan error, 1)
		go func() {
			_, err := w.lab.Plug(w.t.Context(), p)
			plugged <- err
		}()
		require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
		require.NoError(w.t, <-plugged)
		_, err := w.lab.Exec(w.t.Context(), p.String(), "ping", "-n", "-c", "1", "-W", "20", ovnhost.Central.String())
		require.NoError(w.t, err)
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p))
		require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p))
	}
}

// testLastPods tests that a pod is reached when its ADD has returned, if it comes moments after the last pod of its namespace on
// the node has gone. Its node reaches it, and it reaches what is outside by the port of the node in the elan-instance.
func (w *world) testLastPods() {
	host := w.lab.Host("host1")
	for i := range 10 {
		p := pod(40+i, "turns", fmt.Sprintf("last%d", i), host.Name)
		require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
		plugged, err := w.lab.Plug(w.t.Context(), p)
		require.NoError(w.t, err)
		for _, ping := range [][]string{{host.Name, plugged.Address.String()}, {p.String(), ovnhost.Central.String()}} {
			_, err := w.lab.Exec(w.t.Context(), ping[0], "ping", "-n", "-c", "10", "-i", "0.2", "-W", "10", ping[1]) // a new port can cost a packet
			require.NoError(w.t, err, "round %d, %s pings %s", i, ping[0], ping[1])
		}
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p))
		require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p))
	}
}

// testIsolatedServices tests that pods of an isolated namespace reach its service, by endpoints on all nodes, and pods of another namespace
// do not. Pods that were plugged in before namespaces were isolated do too.
func (w *world) testIsolatedServices() {
	p := pod(10, "web", "client", "host2")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
	_, err := w.lab.Plug(w.t.Context(), p)
	require.NoError(w.t, err)
	for _, client := range []odlpods.Pod{p, w.pods[0].Pod, w.pods[1].Pod, w.pods[2].Pod} {
		w.both(client.String(), page, []string{w.pods[0].String(), w.pods[2].String()})
		w.refused(client.String(), "10.96.0.11:80")
	}
	for _, other := range w.pods[3:] {
		_, err := w.lab.HTTPGet(w.t.Context(), other.String(), "http://"+page.String()+"/")
		require.Error(w.t, err, "%s is of another namespace", other)
	}
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p))
}

// testIsolatedNode tests that a node and a pod of an isolated namespace on it reach each other, and nodes reach no other pods.
func (w *world) testIsolatedNode() {
	p := pod(9, "web", "probed", "host1")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
	plugged, err := w.lab.Plug(w.t.Context(), p)
	require.NoError(w.t, err)
	w.serve(p.String(), podPort)
	host := w.lab.Host("host1")
	by, saw := w.ask(host.Name, netip.AddrPortFrom(plugged.Address, podPort))
	require.Equal(w.t, []string{p.String(), host.Address.String()}, []string{by, saw})
	by, saw = w.ask(p.String(), netip.AddrPortFrom(host.Address, hostPort))
	require.Equal(w.t, []string{host.Name, plugged.Address.String()}, []string{by, saw})
	out, err := w.lab.Exec(w.t.Context(), "host2", "ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", plugged.Address.String())
	require.Error(w.t, err, "%s", out)
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p))
}
