// Package policies tests network policies with packets: pods of three namespaces on two OVN hosts,
// policies from a real API server, and a probe of every connection between two pods, and between a
// pod and a node. Each answer is compared with the evaluator (mapping/policy).
package policies

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/sctp"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// converge is the time in which the network must agree with the policies, on a busy machine.
const converge = 2 * time.Minute

// ports are the numbers that are probed, and at which every pod listens.
var ports = []uint16{80, 81}

var hosts = []string{"host1", "host2"}

// cluster is an API server, two OVN hosts, and a bridge between them.
type cluster struct {
	*kubetest.ControlPlane
	t       *testing.T
	lab     *ovnhost.Lab
	bridge  *bridgetest.Bridge
	pods    []*pod
	nodes   []*pod       // the nodes themselves, in the network of the pods
	silent  []policy.Pod // pods that the evaluator knows, and that are not probed
	isStale bool         // see ovnhost.Lab.HasStaleFlows
	marks   int          // how often awaitPolicies was called
	source  uint16       // of the last probe of SCTP
}

// pod is a pod that runs and listens.
type pod struct {
	namespace, name string
	host            string
	labels          map[string]string
	ports           []corev1.ContainerPort
	addresses       []netip.Addr // a new pod requests them, if there are some
	plugged         ovnhost.Pod
	sctp            sctp.Listener
	gated           bool // it is ready when its network is
}

func (p *pod) String() string { return p.namespace + "/" + p.name }

// device is the name of the pod's interface in the model, and of its namespace in the lab.
func (p *pod) device() string { return p.namespace + ":" + p.name }

func startCluster(t *testing.T, options ...bridgetest.Option) *cluster {
	c := &cluster{ControlPlane: kubetest.ForTest(t, kubetest.Config{}), t: t, lab: ovnhost.ForTest(t, hosts...)}
	var err error
	c.isStale, err = c.lab.HasStaleFlows(t.Context())
	require.NoError(t, err)
	for _, host := range hosts {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.lab.Host(host).Address.String()}}
		_, err := c.Client().CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	c.bridge = bridgetest.Start(t, append([]bridgetest.Option{bridgetest.OVN(c.lab.NB.Remote), c.watched}, options...)...)
	for _, host := range hosts {
		c.joinNode(host)
	}
	return c
}

// watched configures a bridge to watch the cluster, with a pool of each family.
func (c *cluster) watched(cfg *bridge.Config) {
	api, err := kube.Connect(c.Kubeconfig(), "test", cfg.Log)
	require.NoError(c.t, err)
	cfg.Kubernetes = bridge.KubernetesConfig{API: api, AnnotateQPS: math.Inf(1)}
	cfg.Nodes = ranges.NodesConfig{
		Network:  nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	cfg.Pools = nil
	for _, text := range []string{"10.32.0.0/16", "fd00:32::/64"} {
		pool, err := dhcppool.Parse(text)
		require.NoError(c.t, err)
		cfg.Pools = append(cfg.Pools, pool)
	}
}

// makeNamespace creates a namespace with labels.
func (c *cluster) makeNamespace(name string, labels map[string]string) {
	c.t.Helper()
	_, err := c.Client().CoreV1().Namespaces().Create(c.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// run creates a pod, plugs it in with the addresses that the bridge has chosen, and listens in it.
func (c *cluster) run(p *pod) {
	c.t.Helper()
	c.create(p)
	c.plug(p)
	c.listen(p)
	c.pods = append(c.pods, p)
}

// create creates the pod's object. It has its status before it has a node, so that the bridge knows the
// addresses that it requests.
func (c *cluster) create(p *pod) {
	c.t.Helper()
	pods := c.Client().CoreV1().Pods(p.namespace)
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: p.labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "main", Image: "localhost/none", Ports: p.ports}},
		},
	}
	if p.gated {
		object.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: kube.NetworkReady}}
	}
	_, err := pods.Create(c.t.Context(), object, metav1.CreateOptions{})
	require.NoError(c.t, err)
	require.NoError(c.t, c.SetPodStatus(c.t.Context(), p.namespace, p.name,
		kubetest.PodStatus{Phase: corev1.PodRunning, Ready: true, Addresses: p.addresses}))
	require.NoError(c.t, pods.Bind(c.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}, Target: corev1.ObjectReference{Kind: "Node", Name: p.host},
	}, metav1.CreateOptions{}))
}

// choice is what the bridge has chosen for a family of a pod.
type choice struct {
	Address netip.Prefix `json:"ip_address"`
	MAC     string       `json:"mac_address"`
	Gateway netip.Addr   `json:"subnet_gateway_ip"`
}

// plug waits until the backend has confirmed the pod, and plugs it in.
func (c *cluster) plug(p *pod) {
	c.t.Helper()
	var vpn []struct {
		Adjacencies []choice `json:"odl-l3vpn:adjacency"`
	}
	var ietf []struct {
		Port string `json:"odl-interface:parent-interface"`
	}
	bridgetest.Await(c.t, 5*time.Millisecond, converge, "the backend confirms pod "+p.String(), func() error {
		if !c.bridge.Get("operational/l3vpn:vpn-interfaces/vpn-interface/"+p.device(), &vpn) ||
			!c.bridge.Get("operational/ietf-interfaces:interfaces/interface/"+p.device(), &ietf) ||
			len(vpn[0].Adjacencies) != 2 {
			return errors.New("it has not confirmed both addresses")
		}
		return nil
	})
	mac, err := net.ParseMAC(vpn[0].Adjacencies[0].MAC)
	require.NoError(c.t, err)
	object, err := c.Client().CoreV1().Pods(p.namespace).Get(c.t.Context(), p.name, metav1.GetOptions{})
	require.NoError(c.t, err)
	first, second := vpn[0].Adjacencies[0], vpn[0].Adjacencies[1]
	p.plugged = ovnhost.Pod{
		Host: p.host, Name: p.device(), UID: string(object.UID), PortName: ietf[0].Port,
		MAC: mac, Address: first.Address, Gateway: first.Gateway,
	}
	require.NoError(c.t, c.lab.Plug(c.t.Context(), p.plugged))
	c.addAddress(p, second)
	p.addresses = []netip.Addr{first.Address.Addr(), second.Address.Addr()}
}

// joinNode plugs in a namespace that stands for a node behind its management port, and listens in it.
func (c *cluster) joinNode(host string) {
	c.t.Helper()
	name := netvirt.ManagementPortName(c.lab.Host(host).Address)
	var port []struct {
		Address netip.Addr   `json:"address"`
		MAC     string       `json:"mac-address"`
		Network netip.Prefix `json:"node-network"`
	}
	bridgetest.Await(c.t, 5*time.Millisecond, converge, "the backend confirms the port of "+host, func() error {
		if !c.bridge.Get("operational/coe-netvirt:management-ports/management-port/"+c.lab.Host(host).Address.String(), &port) {
			return errors.New("it has not confirmed it")
		}
		return nil
	})
	mac, err := net.ParseMAC(port[0].MAC)
	require.NoError(c.t, err)
	namespace, rest, _ := strings.Cut(name, ":")
	node := &pod{namespace: namespace, name: rest, host: host, addresses: []netip.Addr{port[0].Address}}
	require.NoError(c.t, c.lab.Plug(c.t.Context(), ovnhost.Pod{
		Host: host, Name: name, PortName: "management", MAC: mac,
		Address: netip.PrefixFrom(port[0].Address, port[0].Network.Bits()), Gateway: nodenet.Range{Prefix: port[0].Network}.Gateway(),
	}))
	c.listen(node)
	c.nodes = append(c.nodes, node)
}

// addAddress gives a plugged pod its second address.
func (c *cluster) addAddress(p *pod, a choice) {
	c.t.Helper()
	for _, args := range [][]string{
		{"address", "add", a.Address.String(), "dev", "eth0", "nodad"},
		{"route", "add", "default", "via", a.Gateway.String(), "dev", "eth0", "onlink"},
	} {
		_, err := c.lab.Exec(c.t.Context(), p.device(), append([]string{"ip"}, args...)...)
		require.NoError(c.t, err)
	}
}

// listen answers on all ports of the pod, until the end of the test.
func (c *cluster) listen(p *pod) {
	c.t.Helper()
	c.listenSCTP(p)
	for _, number := range ports {
		at := fmt.Sprintf("[::]:%d", number)
		require.NoError(c.t, c.lab.In(p.device(), func() error {
			tcp, err := new(net.ListenConfig).Listen(context.Background(), "tcp", at)
			if err != nil {
				return err
			}
			c.t.Cleanup(func() { _ = tcp.Close() })
			udp, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", at)
			if err != nil {
				return err
			}
			c.t.Cleanup(func() { _ = udp.Close() })
			go accept(tcp)
			go echo(udp)
			return nil
		}))
	}
}

// accept accepts connections and closes them, until the listener is closed.
func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// echo returns what it receives, until the socket is closed.
func echo(c net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		n, from, err := c.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(buffer[:n], from)
		}
	}
}
