package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	namespace = "edge"
	// node is the node that clients ask.
	node = "n1"
	// podPort is the port on which the test program of pods listens.
	podPort = 8080
	// bridgeRange has the node ports that coe-bridge serves; those above it are kube-proxy's.
	bridgeRange = "30000-31999"
)

// proxyNetwork has one more address of the asked node. kube-proxy serves node ports at addresses in it alone.
var proxyNetwork, proxyAddress = netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("192.0.2.11")

// pods are the names of the pods with their nodes. The first two are on the asked node.
var pods = []struct{ name, node string }{{"a1", "n1"}, {"a2", "n1"}, {"b1", "n2"}, {"b2", "n2"}}

// cluster is a cluster of two nodes with pods, coe-bridge and kube-proxy.
type cluster struct {
	*figures.Workspace
	lab     *kubelab.Lab
	release odl.Release           // of the OpenDaylight that programs the nodes; empty for OVN
	client  *kubelab.Place        // where clients are; nil for outside the cluster
	at      map[string]netip.Addr // the addresses of the pods
	program string                // Kubernetes
	proxy   *ovnhost.Process      // kube-proxy; nil while it does not run
	proxies int                   // how often it was started
}

// Close ends the cluster, also one whose start has failed.
func (c *cluster) Close() error {
	var err error
	if c.lab != nil {
		err = c.lab.Close()
	}
	if c.Workspace != nil {
		err = errors.Join(err, c.Workspace.Close())
	}
	return err
}

// newCluster builds coe-bridge. The cluster starts with the first measurement that needs it.
func newCluster(ctx context.Context) (c *cluster, err error) {
	c = &cluster{at: map[string]netip.Addr{}}
	if c.Workspace, err = figures.NewWorkspace("benchedge", ""); err != nil {
		return c, err
	}
	c.Say("building coe-bridge")
	for _, name := range []string{"coe-bridge", "coe-cni"} {
		if err := build(ctx, c.File(name), name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// onCluster returns a measurement that needs the cluster.
func onCluster(measure func(context.Context, *cluster) ([]figures.Figure, error)) func(context.Context, *cluster) ([]figures.Figure, error) {
	return func(ctx context.Context, c *cluster) ([]figures.Figure, error) {
		if err := c.start(ctx); err != nil {
			return nil, err
		}
		return measure(ctx, c)
	}
}

// start starts the cluster, once.
func (c *cluster) start(ctx context.Context) (err error) {
	if c.lab != nil {
		return nil
	}
	c.Say("starting a cluster of two nodes")
	c.lab, err = kubelab.Start(ctx, kubelab.Config{
		Prefix: fmt.Sprintf("e%d", os.Getpid()), Nodes: []string{"n1", "n2"}, Bin: c.Dir, Settings: []string{"node-ports: " + bridgeRange},
		OpenDaylight: c.release,
		Log:          slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	if err := c.lab.Install(ctx); err != nil {
		return err
	}
	if err := c.startPods(ctx); err != nil {
		return err
	}
	return c.prepareProxy(ctx)
}

// build builds a program as a release does.
func build(ctx context.Context, target, name string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", target, "github.com/coe-bridge/coe-bridge/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return nil
}

// startPods starts the pods, and waits until they are ready.
func (c *cluster) startPods(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: namespace}
	if _, err := c.lab.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, p := range pods {
		err := ovnhost.Poll(ctx, func(ctx context.Context) error { // the service account of the namespace may be missing yet
			_, err := c.lab.Client().CoreV1().Pods(namespace).Create(ctx, newPod(p.name, p.node), metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, p := range pods {
		if err := ovnhost.Poll(ctx, func(ctx context.Context) error { return c.findPod(ctx, p.name) }); err != nil {
			return err
		}
	}
	return nil
}

func newPod(name, node string) *corev1.Pod {
	answers := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(podPort)}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": "edge"}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{
			Name: "main", Image: kubelab.TestImage, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", fmt.Sprintf("--http-port=%d", podPort)},
			ReadinessProbe: &corev1.Probe{ProbeHandler: answers, PeriodSeconds: 1},
		}}},
	}
}

// findPod notes the address of a pod. It fails unless the pod is ready.
func (c *cluster) findPod(ctx context.Context, name string) error {
	p, err := c.lab.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			c.at[name], err = netip.ParseAddr(p.Status.PodIP)
			return err
		}
	}
	return fmt.Errorf("pod %s is not ready: %s", name, p.Status.Phase)
}

// prepareProxy gives the asked node the address at which kube-proxy serves.
func (c *cluster) prepareProxy(ctx context.Context) (err error) {
	if c.program, err = kube.Build(ctx, os.Stderr); err != nil {
		return err
	}
	host := netip.PrefixFrom(proxyAddress, proxyAddress.BitLen()).String()
	if _, err := c.lab.OVN.Exec(ctx, node, "ip", "address", "add", host, "dev", "br-phy"); err != nil {
		return err
	}
	_, err = c.lab.OVN.Exec(ctx, ovnhost.CentralNamespace, "ip", "route", "add", host, "via", c.lab.Node(node).Address.String())
	return err
}

// gatewayAddress is the address of the gateway of OVN on the asked node, which no machine has.
var gatewayAddress = netip.MustParseAddr("172.31.99.138")

// prepareGateway makes the asked node a gateway that leads clients to services, on the NIC of the node. The network of nodes
// is the network outside.
func (c *cluster) prepareGateway(ctx context.Context) error {
	if _, err := c.lab.OVN.Host(node).VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=coe-gateway:br-phy"); err != nil {
		return err
	}
	file := c.File("gateway.json")
	entry := fmt.Sprintf(`{"coe-gateways:gateways":{"gateway":[{"node":%q,"chassis":%q,"address":%q,"prefix-length":24,"next-hop":%q,"services":true}]}}`,
		c.lab.Node(node).Address, node, gatewayAddress, ovnhost.Central)
	if err := os.WriteFile(file, []byte(entry), 0o600); err != nil {
		return err
	}
	if _, err := c.lab.Ask(ctx, "apply", "-f", file); err != nil {
		return err
	}
	return settle(ctx) // the agent writes the rules for node ports again
}

// byGateway returns the way to the service of another way by the gateway.
func (c *cluster) byGateway(w *way) *way {
	return &way{name: "gateway of OVN", at: netip.AddrPortFrom(gatewayAddress, w.at.Port()), service: w.service}
}

// use starts kube-proxy on the asked node for its way, and removes it with its rules for the other one: its
// rules reject packets to cluster addresses, to which coe-bridge leads.
func (c *cluster) use(ctx context.Context, w *way) error {
	if (c.proxy != nil) == w.proxy {
		return nil
	}
	if w.proxy {
		if c.release != "" {
			if err := c.stopAgent(ctx); err != nil {
				return err
			}
		}
		return c.startProxy(ctx)
	}
	if err := c.proxy.Terminate(); err != nil {
		return err
	}
	c.proxy = nil
	_, err := c.lab.OVN.Exec(ctx, node, c.program, "kube-proxy", "--cleanup", "--proxy-mode=nftables")
	if err == nil && c.release != "" {
		err = c.signalAgent(syscall.SIGCONT)
	}
	return err
}

func (c *cluster) startProxy(ctx context.Context) (err error) {
	c.proxies++
	c.proxy, err = c.lab.OVN.Launch(ctx, ovnhost.Command{
		Name: fmt.Sprintf("%s/kube-proxy-%d", node, c.proxies), Pod: node,
		Argv: []string{
			c.program, "kube-proxy", "--kubeconfig=" + c.lab.Kubeconfig(), "--hostname-override=" + node, "--proxy-mode=nftables",
			"--nodeport-addresses=" + proxyNetwork.String(), "--cluster-cidr=" + kubelab.PodCIDR, "--conntrack-max-per-core=0",
			fmt.Sprintf("--masquerade-all=%t", c.release != ""),
		},
		Ready: func(ctx context.Context) error {
			_, err := c.lab.OVN.HTTPGet(ctx, node, "http://127.0.0.1:10256/healthz")
			return err
		},
	})
	return err
}

// way is a way from outside to a service: by coe-bridge, or by kube-proxy.
type way struct {
	name    string
	proxy   bool           // kube-proxy's
	at      netip.AddrPort // the node port
	service string
}

// ways returns the two ways to a kind of service. number distinguishes the node ports of the kinds.
func (c *cluster) ways(kind string, number uint16) [2]*way {
	return [2]*way{
		{name: "coe-bridge", at: netip.AddrPortFrom(c.lab.Node(node).Address, 30000+number), service: kind + "-bridge"},
		{name: "kube-proxy", proxy: true, at: netip.AddrPortFrom(proxyAddress, 32000+number), service: kind + "-proxy"},
	}
}

// newService returns a service of the type NodePort, without endpoints.
func newService(name string, policy corev1.ServiceExternalTrafficPolicy, nodePort uint16) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(podPort), NodePort: int32(nodePort)}},
		},
	}
}

// newSlice returns the endpoints of a service: pods.
func (c *cluster) newSlice(service string, names ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(podPort))}},
	}
	for _, p := range pods {
		for _, name := range names {
			if name == p.name {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{c.at[name].String()}, NodeName: new(p.node), Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name},
				})
			}
		}
	}
	return s
}

// expose creates a service with its endpoints.
func (c *cluster) expose(ctx context.Context, service *corev1.Service, slice *discoveryv1.EndpointSlice) error {
	if _, err := c.lab.Client().CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.lab.Client().DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// move changes the endpoints of a service.
func (c *cluster) move(ctx context.Context, service string, names ...string) error {
	_, err := c.lab.Client().DiscoveryV1().EndpointSlices(namespace).Update(ctx, c.newSlice(service, names...), metav1.UpdateOptions{})
	return err
}
