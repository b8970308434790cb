package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// exposeWorld is two hosts with a pod on each, a client outside the cluster (in the namespace central),
// and services of a real API server.
type exposeWorld struct {
	*world
	api  *kubernetes.Clientset
	pods map[string]*sandbox // by host
	six  addresses6          // nil in a world of IPv4
}

// outsider is the source of the client's connections.
const outsider = router

// Addresses outside the cluster that services have.
const (
	externalIP = "198.51.100.10"
	balancerIP = "198.51.100.11"
	localIP    = "198.51.100.12" // of the service with externalTrafficPolicy Local
)

func newExposeWorld(t *testing.T, flags ...string) *exposeWorld {
	t.Helper()
	return newExposeWorldOf(t, kubetest.Config{}, append(flags, "--external-addresses", "198.51.100.0/24")...)
}

// newDualExposeWorld is newExposeWorld whose hosts, pods and services have IPv6 addresses too.
func newDualExposeWorld(t *testing.T, flags ...string) *exposeWorld {
	t.Helper()
	return newExposeWorldOf(t, kubetest.Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd97::/112")}},
		append(flags, "--external-addresses", "198.51.100.0/24,2001:db8:51::/64", "--node-network", "100.96.0.0/16,fd00:96::/64")...)
}

func newExposeWorldOf(t *testing.T, config kubetest.Config, flags ...string) *exposeWorld {
	t.Helper()
	plane := kubetest.ForTest(t, config)
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := &exposeWorld{
		world: newWorldOver(t, lab, append(flags, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--kubeconfig", plane.Kubeconfig())...),
		api:   plane.Client(), pods: map[string]*sandbox{},
	}
	if len(config.ServiceCIDRs) > 1 {
		w.six = addresses6{}
		w.dualPools()
	}
	w.startAgents(patient)
	w.withOutside()
	if w.six != nil {
		w.withOutside6()
	}
	for i, host := range []string{"host1", "host2"} {
		p := w.pod(host, i, "default", "pod-"+host)
		if w.six != nil {
			w.six.add(w.world, p)
		} else {
			p.mustAdd()
			w.who(p.inLab(), p.name)
		}
		w.whoUDP(p.inLab(), p.name)
		w.pods[host] = p
	}
	return w
}

// whoUDP answers datagrams with its own name and their source.
func (w *world) whoUDP(namespace, name string) {
	w.t.Helper()
	w.whoUDPAt(namespace, "", name)
}

// whoUDPAt is whoUDP at an address of a namespace with several; empty for all.
func (w *world) whoUDPAt(namespace, address, name string) {
	w.t.Helper()
	require.NoError(w.t, w.lab.In(namespace, func() error {
		conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", address+":8080")
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { _ = conn.Close() })
		go func() {
			buffer := make([]byte, 64)
			for {
				_, from, err := conn.ReadFrom(buffer)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %s", name, from.(*net.UDPAddr).IP), from)
				}
			}
		}()
		return nil
	}))
}

// nodePorts are the node ports of a service, of TCP and UDP.
type nodePorts struct{ tcp, udp int }

// expose creates or changes a service of type NodePort. Its endpoints are the pods of hosts.
func (w *exposeWorld) expose(name string, policy corev1.ServiceExternalTrafficPolicy, hosts ...string) nodePorts {
	w.t.Helper()
	services := w.api.CoreV1().Services("default")
	s, err := services.Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80},
		}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.endpoints(name, hosts...)
	return nodePorts{int(s.Spec.Ports[0].NodePort), int(s.Spec.Ports[1].NodePort)}
}

// endpoints makes the pods of hosts the endpoints of a service.
func (w *exposeWorld) endpoints(service string, hosts ...string) {
	w.t.Helper()
	var addresses, six []string
	for _, host := range hosts {
		addresses = append(addresses, w.pods[host].address.String())
		six = append(six, w.six[w.pods[host]])
	}
	w.endpointsAt(service, addresses...)
	if w.six != nil {
		w.putSlice(service, service+"-6", discoveryv1.AddressTypeIPv6, six...)
	}
}

// endpointsAt makes addresses the endpoints of a service.
func (w *exposeWorld) endpointsAt(service string, addresses ...string) {
	w.t.Helper()
	w.putSlice(service, service, discoveryv1.AddressTypeIPv4, addresses...)
}

func (w *exposeWorld) putSlice(service, name string, family discoveryv1.AddressType, addresses ...string) {
	w.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}, {Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(8080))},
		},
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	api := w.api.DiscoveryV1().EndpointSlices("default")
	_, err := api.Update(w.t.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(w.t.Context(), slice, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// askUDP sends a datagram, and returns the answer that comes within a time.
func (w *exposeWorld) askUDP(within time.Duration, from, to string, port int) (string, error) {
	conn, err := w.lab.Dial(w.t.Context(), from, "udp", net.JoinHostPort(to, strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return exchange(conn, within)
}

func exchange(conn net.Conn, within time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

// dialFrom connects over UDP from a source that was possibly used just before: a program that another test starts has a copy of the former socket for
// a moment.
func dialFrom(ctx context.Context, source, to netip.AddrPort) (conn net.Conn, err error) {
	used := ovnhost.Poll(ctx, func(context.Context) error {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(source), net.UDPAddrFromAddrPort(to))
		if errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		return nil
	})
	return conn, errors.Join(used, err)
}

// answered waits until both ports at a node answer a client as expected.
func (w *exposeWorld) answered(from, node string, at nodePorts, want ...string) {
	w.t.Helper()
	w.seen(from, node, at.tcp, want...)
	var n tries
	await(w.t, fmt.Sprintf("%s asks %s over UDP", from, node), func() error {
		got, err := w.askUDP(n.patience(), from, node, at.udp)
		if err == nil && !slices.Contains(want, got) {
			err = fmt.Errorf("answer %q, want one of %q", got, want)
		}
		return err
	})
}

// refused waits until a node refuses connections of a client.
func (w *exposeWorld) refused(from, node string, port int) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s asks %s, and is refused", from, node), func() error {
		got, err := w.ask(from, node, port)
		if err != nil && strings.Contains(err.Error(), "refused") {
			return nil
		}
		return fmt.Errorf("answer %q: %w", got, cmp.Or(err, errors.New("no error")))
	})
}

// edge returns the source address of connections of others that a node leads to services and pods.
func (w *world) edge(host string) string {
	w.t.Helper()
	address, _ := w.management(host)
	network := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	number := network.Number(address)
	return network.EdgeAddress(number, number).String()
}

// all returns the answers of both pods that see a source.
func all(source string) []string { return []string{"pod-host1 " + source, "pod-host2 " + source} }

// side is what a test of exposeWorld needs of one family.
type side struct {
	name            string
	address         func(host string) string
	services, edges map[string]string // the source addresses of each node's traffic to services, and of that of others
	outsider        string
	// other is what an endpoint on host2 of a local port sees of pods on host1 that ask host2, and selves what it sees of
	// programs that ask their own node.
	other                          string
	selves                         map[string]string
	externalIP, balancerIP, lastIP string // lastIP is that of the service with externalTrafficPolicy Local
	external                       string // the prefix of these
	pod                            func(host string) string
	elsewhere                      string // a prefix without clients
	outside                        string
}

// sides returns the families of the world.
func (w *exposeWorld) sides() []side {
	four := side{
		"IPv4", w.address, map[string]string{}, map[string]string{}, outsider, w.edge("host2"), map[string]string{}, externalIP, balancerIP, localIP, "198.51.100.0/24",
		func(host string) string { return w.pods[host].address.String() }, "192.0.2.0/24", outside,
	}
	six := side{
		"IPv6", w.address6, map[string]string{}, map[string]string{}, router6, w.address6("host1"), map[string]string{}, "2001:db8:51::10", "2001:db8:51::11", "2001:db8:51::12", "2001:db8:51::/64",
		func(host string) string { return w.six[w.pods[host]] }, "2001:db8:77::/64", outside6,
	}
	network := nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}
	for _, host := range []string{"host1", "host2"} {
		address, as := w.management(host)
		number := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}.Number(address)
		four.services[host], four.edges[host], four.selves[host] = as.String(), w.edge(host), w.address(host)
		six.services[host], six.edges[host] = network.ServiceAddress(number).String(), network.EdgeAddress(number, number).String()
		six.selves[host] = six.services[host]
	}
	if w.six == nil {
		return []side{four}
	}
	return []side{four, six}
}

// TestNodePorts: a client outside the cluster, pods and nodes reach a service of type NodePort at every
// node, over TCP and UDP, by IPv4 and IPv6. With the policy Local they reach the endpoints on the node, which see the
// address of a client outside.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t)
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1", "host2")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host2")
	sides := w.sides()
	edges := sides[0].edges
	for _, s := range sides {
		w.step(s.name, func() { w.testReached(s, cluster, local) })
	}
	w.step("a reply that is larger than the MTU of a link on its way", func() { w.testLargeReply(local) })

	w.step("nodes lead to endpoints themselves", func() { w.testDirect(cluster, edges) })
	w.step("external addresses", func() { w.testExternalAddresses(sides) })
	for _, s := range sides {
		w.step("an endpoint moves: "+s.name, func() { w.testMovedEndpoint(s, local) })
	}
	w.step("an endpoint answers by a gateway", func() {
		gateway := "coe-gateways:gateways/gateway/" + w.address("host1")
		w.put(gateway, fmt.Sprintf(`{"gateway":[{"node":%q,"chassis":"host1","address":"10.33.75.138","prefix-length":24,"next-hop":"10.33.75.253"}]}`, w.address("host1")))
		w.answered("central", w.address("host1"), local, "pod-host1 "+edges["host1"])
		w.answered("central", w.address("host2"), local, "pod-host2 "+outsider)
		status, answer := w.bridge.Bridge().Do("DELETE", "/restconf/config/"+gateway, "")
		require.Equal(w.t, 2, status/100, answer)
		w.answered("central", w.address("host1"), local, "pod-host1 "+outsider)
	})
	w.step("the agent is away, and the bridge too", func() {
		await(w.t, "the agent has saved that there is no gateway", func() error {
			saved, err := os.ReadFile(filepath.Join(w.agents["host1"].dir, "interfaces.json"))
			if err == nil && bytes.Contains(saved, []byte(`"gateway-network"`)) {
				err = errors.New("the file has the former content")
			}
			return err
		})
		require.NoError(w.t, w.agents["host1"].Kill())
		w.bridge.Kill()
		w.answered("central", w.address("host1"), cluster, all(edges["host1"])...)
		w.agents["host1"].relay.cut(true)
		require.NoError(w.t, w.agents["host1"].Start(t.Context()))
		w.answered("central", w.address("host1"), local, "pod-host1 "+outsider)
		w.startBridge()
		w.agents["host1"].relay.cut(false)
	})
	w.step("others harm the rules", func() {
		for _, harm := range []string{"flush ruleset", "delete table ip coe-bridge-node-ports", "flush map ip coe-bridge-node-ports services"} {
			_, err := w.lab.Exec(t.Context(), "host1", append([]string{"nft"}, strings.Fields(harm)...)...)
			require.NoError(w.t, err)
			harmed := time.Now()
			await(w.t, harm, func() error {
				out, err := w.lab.Exec(t.Context(), "host1", "nft", "list", "map", "ip", "coe-bridge-node-ports", "services")
				if err == nil && !strings.Contains(out, strconv.Itoa(cluster.tcp)) {
					err = errors.New(out)
				}
				return err
			})
			w.t.Logf("%s: mended after %s", harm, time.Since(harmed).Round(time.Millisecond))
			w.answered("central", w.address("host1"), cluster, all(edges["host1"])...)
		}
	})
	w.step("a port belongs to the first service", func() {
		status, answer := w.bridge.Bridge().Do("PUT", "/restconf/config/service:service-information/services/"+uid("s", 1), fmt.Sprintf(
			`{"services":[{"uid":%q,"name":"thief","network-NS":"other","cluster-ip-address":"10.96.0.66","service-ports":[{"port":80,"node-port":%d}]}]}`,
			uid("s", 1), cluster.tcp))
		require.Equal(w.t, 2, status/100, answer)
		await(w.t, "the service has a problem", func() error {
			_, answer := w.bridge.Bridge().Do("GET", "/restconf/operational/coe-status:status", "")
			if !strings.Contains(answer, fmt.Sprintf("node port tcp %d belongs to a service of namespace default", cluster.tcp)) {
				return errors.New(answer)
			}
			return nil
		})
		w.answered("central", w.address("host1"), cluster, all(edges["host1"])...)
	})
	w.step("services are deleted", func() {
		for _, name := range []string{"cluster", "local"} {
			require.NoError(w.t, w.api.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		status, answer := w.bridge.Bridge().Do("DELETE", "/restconf/config/service:service-information/services/"+uid("s", 1), "")
		require.Equal(w.t, 2, status/100, answer)
		for _, host := range []string{"host1", "host2"} {
			await(w.t, "the table is gone", func() error { return w.lacks(host, "coe-bridge-node-ports") })
		}
		_, err := w.ask("central", w.address("host1"), cluster.tcp)
		require.ErrorContains(w.t, err, "refused")
	})
	w.step("the agent is removed", func() {
		w.expose("again", corev1.ServiceExternalTrafficPolicyCluster, "host1")
		await(w.t, "the table is there", func() error {
			if w.lacks("host1", "coe-bridge-node-ports") == nil {
				return errors.New("no table")
			}
			return nil
		})
		agent := w.agents["host1"]
		require.NoError(w.t, agent.Terminate())
		_, err := w.lab.Exec(t.Context(), "host1", append(slices.Clone(agent.argv), "--cleanup")...)
		require.NoError(w.t, err)
		require.NoError(w.t, w.lacks("host1", "coe-bridge"))
	})
}

// testReached asks node ports of both policies from everywhere.
func (w *exposeWorld) testReached(s side, cluster, local nodePorts) {
	for _, host := range []string{"host1", "host2"} {
		node := s.address(host)
		for _, from := range []string{"central", "host1", "host2", w.pods["host1"].inLab(), w.pods["host2"].inLab()} {
			as := s.edges[host]
			if from == host {
				as = s.services[host]
			}
			w.answered(from, node, cluster, all(as)...)
		}
		w.answered(host, node, local, "pod-host2 "+s.selves[host])
	}
	w.answered("host1", s.address("host2"), local, "pod-host2 "+s.address("host1"))
	w.answered(w.pods["host1"].inLab(), s.address("host2"), local, "pod-host2 "+s.other)
	w.answered(w.pods["host2"].inLab(), s.address("host2"), local, "pod-host2 "+s.edges["host2"])
	w.answered("central", s.address("host2"), local, "pod-host2 "+s.outsider)
	here := s.address("host1")
	w.allSilent(question{"central", here, local}, question{"host2", here, local}, question{w.pods["host1"].inLab(), here, local})
}

// testLargeReply: the link to the outside has a smaller MTU than the links of pods, and the pod learns it. By IPv6 only the
// sender can make packets smaller.
func (w *exposeWorld) testLargeReply(local nodePorts) {
	body := strings.Repeat("x", 64<<10)
	p := w.pods["host2"]
	require.NoError(w.t, w.lab.Serve(p.inLab(), 8081, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, body) })))
	w.ip("host2", "route", "replace", router6, "dev", "br-phy", "mtu", "1280")
	defer w.ip("host2", "route", "del", router6, "dev", "br-phy", "mtu", "1280")
	s, err := w.api.CoreV1().Services("default").Get(w.t.Context(), "local", metav1.GetOptions{})
	require.NoError(w.t, err)
	require.Equal(w.t, local.tcp, int(s.Spec.Ports[0].NodePort))
	w.seen("central", w.address6("host2"), local.tcp, "pod-host2 "+router6)
	w.putLarge(8081)
	await(w.t, "the large reply", func() error {
		got, err := w.ask("central", w.address6("host2"), local.tcp)
		if err == nil && got != body {
			err = fmt.Errorf("got %d bytes", len(got))
		}
		return err
	})
	w.endpoints("local", "host2")
	w.answered("central", w.address6("host2"), local, "pod-host2 "+router6)
}

// putLarge makes another port of the pod on host2 the endpoint of the service "local", by IPv6.
func (w *exposeWorld) putLarge(port int32) {
	w.t.Helper()
	api := w.api.DiscoveryV1().EndpointSlices("default")
	slice, err := api.Get(w.t.Context(), "local-6", metav1.GetOptions{})
	require.NoError(w.t, err)
	slice.Ports[0].Port = new(port)
	_, err = api.Update(w.t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// testMovedEndpoint moves the endpoint of the service "local" from host2 to host1. Then both hosts have one.
func (w *exposeWorld) testMovedEndpoint(s side, local nodePorts) {
	w.endpoints("local", "host2")
	w.answered("central", s.address("host2"), local, "pod-host2 "+s.outsider)
	conn, err := w.lab.Dial(w.t.Context(), "central", "udp", net.JoinHostPort(s.address("host2"), strconv.Itoa(local.udp)))
	require.NoError(w.t, err)
	defer func() { _ = conn.Close() }()
	await(w.t, "a client has an endpoint", func() error {
		_, err := exchange(conn, time.Second)
		return err
	})
	w.endpoints("local", "host1")
	w.answered("central", s.address("host1"), local, "pod-host1 "+s.outsider)
	w.answered("host2", s.address("host1"), local, "pod-host1 "+s.address("host2"))
	w.allSilent(question{"central", s.address("host2"), local}, question{"host1", s.address("host2"), local})
	await(w.t, "the former endpoint gets nothing more", func() error { // an answer of the past may come first
		got, err := exchange(conn, silence)
		if err == nil {
			return fmt.Errorf("%q answers", got)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	})
	w.endpoints("local", "host1", "host2")
	await(w.t, "a client that keeps sending reaches the endpoint", func() error {
		_, err := exchange(conn, time.Second)
		return err
	})
	w.answered("central", s.address("host1"), local, "pod-host1 "+s.outsider)

	w.endpoints("local")
	for _, host := range []string{"host1", "host2"} {
		w.refused("central", s.address(host), local.tcp)
	}
	w.endpoints("local", "host1", "host2")
	w.answered("central", s.address("host1"), local, "pod-host1 "+s.outsider)
}

// testDirect changes the endpoints of the service "cluster", which are the pods of both hosts. Nodes lead to them
// themselves, unless one is not a pod.
func (w *exposeWorld) testDirect(at nodePorts, edges map[string]string) {
	t := w.t
	leads := func(chain func(protocol string, port int) string) {
		t.Helper()
		for _, host := range []string{"host1", "host2"} {
			for protocol, port := range map[string]int{"tcp": at.tcp, "udp": at.udp} {
				for _, every := range []string{"0.0.0.0", "::"} {
					w.programmed(host, fmt.Sprintf("%s . %s . %d : goto %s", every, protocol, port, chain(protocol, port)), true)
				}
			}
		}
	}
	anyOf2 := func(string, int) string { return "node-any-of-2" }
	leads(anyOf2)
	seen, n := map[string]bool{}, tries(0)
	await(t, "both endpoints answer", func() error {
		got, err := w.askUDP(n.patience(), "central", w.address("host1"), at.udp)
		if seen[got] = err == nil; err == nil && len(seen) < 2 {
			err = fmt.Errorf("seen %v", seen)
		}
		return err
	})

	w.affinity("cluster", corev1.ServiceAffinityClientIP)
	leads(func(protocol string, port int) string { return fmt.Sprintf("client-%s-%d", protocol, port) })
	for host := range edges {
		first, err := w.ask("central", w.address(host), at.tcp)
		require.NoError(t, err)
		for range 10 {
			w.seen("central", w.address(host), at.tcp, first)
		}
	}
	w.affinity("cluster", corev1.ServiceAffinityNone)

	conn, err := w.lab.Dial(t.Context(), "central", "udp", net.JoinHostPort(w.address("host1"), strconv.Itoa(at.udp)))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for _, host := range []string{"host2", "host1", "host2"} {
		w.endpoints("cluster", host)
		await(t, "a client that keeps sending reaches the endpoint", func() error {
			got, err := exchange(conn, time.Second)
			if err == nil && got != "pod-"+host+" "+edges["host1"] {
				err = errors.New(got)
			}
			return err
		})
		w.answered(w.pods[host].inLab(), w.address("host1"), at, "pod-"+host+" "+edges["host1"]) // itself
	}

	w.endpointsAt("cluster", w.pods["host1"].address.String(), outsider)
	for _, host := range []string{"host1", "host2"} {
		w.programmed(host, fmt.Sprintf("0.0.0.0 . tcp . %d : goto ", at.tcp), false)
		w.programmed(host, fmt.Sprintf("0.0.0.0 . udp . %d : goto ", at.udp), false)
		w.answered("central", w.address(host), at, "pod-host1 "+edges[host])
	}
	w.endpoints("cluster", "host1", "host2")
	leads(anyOf2)
}

// affinity sets the session affinity of a service.
func (w *exposeWorld) affinity(service string, is corev1.ServiceAffinity) {
	w.t.Helper()
	api := w.api.CoreV1().Services("default")
	s, err := api.Get(w.t.Context(), service, metav1.GetOptions{})
	require.NoError(w.t, err)
	s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = is, nil
	_, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// testExternalAddresses gives the services "cluster" and "local" addresses outside the cluster. A client
// outside, to which a router leads through one of the nodes, reaches them like node ports. Programs of nodes,
// and pods, reach all endpoints.
func (w *exposeWorld) testExternalAddresses(sides []side) {
	t, at := w.t, nodePorts{80, 80}
	var external, balancers, last []string
	for _, s := range sides {
		external, balancers, last = append(external, s.externalIP), append(balancers, s.balancerIP), append(last, s.lastIP)
	}
	w.addresses("cluster", external, balancers...)
	w.addresses("local", nil, last...)
	for _, s := range sides {
		for _, host := range []string{"host1", "host2"} {
			w.programmed(host, s.balancerIP, true)
			w.programmed(host, s.lastIP, true)
		}
		for _, host := range []string{"host1", "host2"} {
			w.ip("central", "route", "replace", s.external, "via", s.address(host))
			for _, address := range []string{s.externalIP, s.balancerIP} {
				w.answered("central", address, at, all(s.edges[host])...)
				w.answered(host, address, at, all(s.services[host])...)
			}
			w.answered(host, s.lastIP, at, "pod-host2 "+s.services[host])
		}
		w.answered("central", s.lastIP, at, "pod-host2 "+s.outsider)
		w.answered(w.pods["host1"].inLab(), s.lastIP, at, "pod-host2 "+s.pod("host1"))
		w.ip("central", "route", "replace", s.external, "via", s.address("host1"))
		w.silent("central", s.lastIP, at)
	}
	for host, want := range map[string]string{"host1": "503 0", "host2": "200 1"} {
		for _, s := range sides {
			await(t, "the health check of "+host, func() error { return w.healthCheck(s.address(host), want) })
		}
	}
	for _, s := range sides {
		w.testRestricted(s, at)
	}
	s, edges := sides[0], sides[0].edges

	owner := "/restconf/config/service:service-information/services/" + uid("s", 2)
	status, answer := w.bridge.Bridge().Do("PUT", owner, fmt.Sprintf(
		`{"services":[{"uid":%q,"name":"owner","network-NS":"other","cluster-ip-address":%q,"service-ports":[{"port":80}]}]}`, uid("s", 2), externalIP))
	require.Equal(t, 2, status/100, answer)
	w.programmed("host1", s.externalIP, false)
	_, err := w.lab.Dial(within(t, time.Second), "central", "tcp", net.JoinHostPort(externalIP, "80"))
	require.Error(t, err, "the address belongs to another namespace")
	w.answered("central", balancerIP, at, all(edges["host1"])...)
	status, answer = w.bridge.Bridge().Do("DELETE", owner, "")
	require.Equal(t, 2, status/100, answer)
	w.programmed("host1", externalIP, true)
	w.answered("central", externalIP, at, all(edges["host1"])...)
}

// testRestricted restricts the clients of the load balancer address of the service "cluster".
func (w *exposeWorld) testRestricted(s side, at nodePorts) {
	t, edges := w.t, s.edges
	single := func(a string) string {
		addr := netip.MustParseAddr(a)
		return netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	w.restrict("cluster", single(s.pod("host1")), single(s.outsider))
	w.programmed("host1", ". "+s.outsider, true)
	w.programmed("host2", ". "+s.outsider, true)
	for _, address := range []string{s.externalIP, s.balancerIP} {
		w.answered("central", address, at, all(edges["host1"])...)
	}
	w.answered(w.pods["host1"].inLab(), s.balancerIP, at, all(edges["host1"])...)
	w.silent(w.pods["host2"].inLab(), s.balancerIP, at)
	_, err := w.lab.Dial(within(t, time.Second), "host2", "tcp", net.JoinHostPort(s.balancerIP, "80"))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "a program of the node gets no answer: %v", err)
	w.restrict("cluster", s.elsewhere)
	from, _, _ := strings.Cut(s.elsewhere, "/")
	w.programmed("host1", from, true)
	w.silent("central", s.balancerIP, at)
	w.restrict("cluster")
	w.programmed("host1", from, false)
	w.answered("central", s.balancerIP, at, all(edges["host1"])...)
}

// programmed waits until the table of a host has a text, or lacks it.
func (w *exposeWorld) programmed(host, text string, has bool) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s has %s: %t", host, text, has), func() error {
		if missing := w.lacks(host, text) == nil; missing == has {
			return fmt.Errorf("missing: %t", missing)
		}
		return nil
	})
}

// addresses gives a service external addresses, and addresses of a load balancer.
func (w *exposeWorld) addresses(service string, external []string, balancers ...string) {
	w.t.Helper()
	api := w.api.CoreV1().Services("default")
	s, err := api.Get(w.t.Context(), service, metav1.GetOptions{})
	require.NoError(w.t, err)
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, external
	s, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	s.Status.LoadBalancer.Ingress = nil
	for _, ip := range balancers {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	_, err = api.UpdateStatus(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// healthCheck returns an error unless the health check of the service "local" at an address of a host has this status and
// this number of endpoints.
func (w *exposeWorld) healthCheck(at, want string) error {
	s, err := w.api.CoreV1().Services("default").Get(w.t.Context(), "local", metav1.GetOptions{})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return w.lab.Dial(ctx, "central", network, address)
	}}}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, fmt.Sprintf("http://%s/", net.JoinHostPort(at, fmt.Sprint(s.Spec.HealthCheckNodePort))), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("X-Load-Balancing-Endpoint-Weight")); got != want {
		return fmt.Errorf("health check %s, want %s", got, want)
	}
	return nil
}

// restrict sets the ranges of clients that reach the load balancer's addresses of a service.
func (w *exposeWorld) restrict(service string, ranges ...string) {
	w.t.Helper()
	api := w.api.CoreV1().Services("default")
	s, err := api.Get(w.t.Context(), service, metav1.GetOptions{})
	require.NoError(w.t, err)
	s.Spec.LoadBalancerSourceRanges = ranges
	_, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// lacks fails if the nftables of a host contain a text.
func (w *exposeWorld) lacks(host, text string) error {
	out, err := w.lab.Exec(w.t.Context(), host, "nft", "list", "ruleset")
	if err == nil && strings.Contains(out, text) {
		err = errors.New(out)
	}
	return err
}
