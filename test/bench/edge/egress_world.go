package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

const (
	// podHost has the pod that sends. The holders have agents.
	podHost = "sender"
	// bridgeLink leads from this network namespace, in which the bridge runs, to the network of the nodes.
	bridgeLink       = "benchegress"
	bridgeEnd        = "172.31.98.1/30"
	centralEnd       = "172.31.98.2"
	egressAddress    = "172.31.99.200"
	outsideAddress   = "203.0.113.5"
	outsidePort      = "8080"
	egressLabel      = "node-restriction.kubernetes.io/coe-bridge-egress"
	podUID           = "c0e00000-c0e0-4000-8000-000000000001"
	egressDefinition = "deploy/kubernetes/bridge/egressips.yaml"
)

var holders = []string{"holder1", "holder2"}

// egressWorld is a control plane of Kubernetes, and OVN hosts that are its nodes: one with a pod, and two that may hold its
// egress address.
type egressWorld struct {
	*cluster
	plane  *kube.ControlPlane
	lab    *ovnhost.Lab
	bridge *serve.Process
	client *serve.Client
	agents map[string]*ovnhost.Process
	closed []func() error // in reverse order
}

func newEgressWorld(ctx context.Context, c *cluster) (w *egressWorld, err error) {
	w = &egressWorld{cluster: c, agents: map[string]*ovnhost.Process{}}
	for _, step := range []func(context.Context) error{w.startPlane, w.startLab, w.startBridge, w.startHolders, w.startPod, w.startOutside} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// Close ends the world.
func (w *egressWorld) Close() (err error) {
	for i := range w.closed {
		err = errors.Join(err, w.closed[len(w.closed)-1-i]())
	}
	return err
}

func (w *egressWorld) startPlane(ctx context.Context) (err error) {
	if w.plane, err = kube.Start(ctx, kube.Config{}); err != nil {
		return err
	}
	w.closed = append(w.closed, w.plane.Close)
	if _, err := w.plane.Kubectl(ctx, "apply", "--server-side", "-f", egressDefinition); err != nil {
		return err
	}
	if _, err := w.plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd/egressips.coe-bridge.io"); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: namespace}
	_, err = w.plane.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	return err
}

func (w *egressWorld) startLab(ctx context.Context) (err error) {
	hosts := append([]string{podHost}, holders...)
	if w.lab, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: fmt.Sprintf("eg%d", os.Getpid()), Hosts: hosts, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	w.closed = append(w.closed, w.lab.Close)
	central := w.lab.Namespace(ovnhost.CentralNamespace)
	commands := []string{
		"link add " + bridgeLink + " type veth peer name bridge netns " + central,
		"addr add " + bridgeEnd + " dev " + bridgeLink, "link set " + bridgeLink + " up",
		"-n " + central + " addr add " + centralEnd + "/30 dev bridge", "-n " + central + " link set bridge up",
		"-n " + central + " addr add " + outsideAddress + "/32 dev lo",
	}
	for _, host := range hosts {
		commands = append(commands, "route add "+w.lab.Host(host).Address.String()+"/32 via "+centralEnd+" dev "+bridgeLink)
	}
	for _, command := range commands {
		if err := w.ip(ctx, command); err != nil {
			return err
		}
		if len(w.closed) < 3 {
			w.closed = append(w.closed, func() error { return w.ip(context.Background(), "link del "+bridgeLink) })
		}
	}
	_, err = w.lab.Exec(ctx, ovnhost.CentralNamespace, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	return err
}

func (w *egressWorld) ip(ctx context.Context, arguments string) error {
	if out, err := exec.CommandContext(ctx, "ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", arguments, err, out)
	}
	return nil
}

func (w *egressWorld) startBridge(ctx context.Context) (err error) {
	data, err := w.Folder("egress-data")
	if err != nil {
		return err
	}
	w.bridge, err = serve.StartQuietly(ctx, w.File("coe-bridge"), "--dev", "--data-dir", data, "--backend", "ovn", "--ovn-nb", w.lab.NB.Remote,
		"--kubeconfig", w.plane.Kubeconfig(), "--pool", "10.42.0.0/16", "--egress-ips")
	if err != nil {
		return err
	}
	w.closed = append(w.closed, w.bridge.Stop)
	w.client = serve.NewClient(w.bridge.URL, time.Minute)
	for i, host := range append([]string{podHost}, holders...) {
		if err := w.join(ctx, i, host); err != nil {
			return err
		}
	}
	return nil
}

// join makes a host a node.
func (w *egressWorld) join(ctx context.Context, i int, host string) error {
	nodes := w.plane.Client().CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host, UID: types.UID(fmt.Sprint(i))}}
	if host != podHost {
		n.Labels = map[string]string{egressLabel: ""}
	}
	n, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: w.lab.Host(host).Address.String()}}
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

func (w *egressWorld) startHolders(ctx context.Context) error {
	for _, host := range holders {
		if err := w.startAgent(ctx, host); err != nil {
			return err
		}
	}
	return nil
}

// startAgent starts the agent of a holder, with a way to the bridge and one to the outside.
func (w *egressWorld) startAgent(ctx context.Context, host string) error {
	if _, err := w.lab.Exec(ctx, host, "ip", "route", "replace", "default", "via", ovnhost.Central.String()); err != nil {
		return err
	}
	url, err := w.relay(host)
	if err != nil {
		return err
	}
	dir := filepath.Join(w.lab.Dir, host)
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(serve.Password), 0o600); err != nil {
		return err
	}
	w.agents[host], err = w.lab.Launch(ctx, ovnhost.Command{
		Name: host + "/agent", Pod: host,
		Argv: []string{
			w.File("coe-bridge"), "agent", "--bridge", url, "--node-address", w.lab.Host(host).Address.String(), "--user", serve.User,
			"--password-file", password, "--ovs-db", w.lab.Host(host).OVSDB.Remote, "--socket", filepath.Join(dir, "cni.sock"), "--state-dir", filepath.Join(dir, "agent"),
		},
		Ready: func(ctx context.Context) error {
			_, err := w.lab.HTTPGet(ctx, host, "http://127.0.0.1:8182/readyz")
			return err
		},
	})
	return err
}

// relay leads connections to a port of a host to the bridge, until the host's network namespace is gone.
func (w *egressWorld) relay(host string) (url string, err error) {
	var l net.Listener
	err = w.lab.In(host, func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return "", err
	}
	w.closed = append(w.closed, l.Close)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).Dial("tcp", strings.TrimPrefix(w.bridge.URL, "http://"))
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[1], pair[0])
					_, _ = pair[0].Close(), pair[1].Close()
				}()
			}
		}
	}()
	return "http://" + l.Addr().String(), nil
}

// startPod creates a pod and its EgressIP, and plugs the pod in.
func (w *egressWorld) startPod(ctx context.Context) error {
	body := fmt.Sprintf(`{"pods":[{"uid":%q,"name":"pod","network-NS":%q,"host-ip-address":%q,"interface":[{"uid":%q}]}]}`,
		podUID, namespace, w.lab.Host(podHost).Address, podUID)
	code, answer, err := w.client.Do(ctx, http.MethodPut, "/restconf/config/pod:coe/pods/"+podUID, body)
	if err != nil || code/100 != 2 {
		return fmt.Errorf("create the pod: %d %s: %w", code, answer, err)
	}
	var lease status.Lease
	err = ovnhost.Poll(ctx, func(ctx context.Context) error {
		var all status.Leases
		if _, err := w.client.Read(ctx, "operational/coe-status:leases", &all); err != nil || len(all.Leases) == 0 {
			return errors.Join(err, errors.New("the pod has no address"))
		}
		lease = all.Leases[0]
		return nil
	})
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(lease.MAC)
	if err != nil {
		return err
	}
	if err := w.plane.Apply(ctx, fmt.Sprintf(`{"apiVersion":"coe-bridge.io/v1","kind":"EgressIP","metadata":{"name":"bench"},
		"spec":{"egressIPs":[%q],"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}`, egressAddress, namespace)); err != nil {
		return err
	}
	network := lease.Networks[0]
	return w.lab.Plug(ctx, ovnhost.Pod{
		Host: podHost, Name: lease.Name, UID: podUID, PortName: "pod", MAC: mac, Address: netip.PrefixFrom(lease.Addresses[0], network.Bits()),
		Gateway: network.Masked().Addr().Next(),
	})
}

// startOutside answers each datagram outside with its content and its source.
func (w *egressWorld) startOutside(context.Context) error {
	var conn net.PacketConn
	err := w.lab.In(ovnhost.CentralNamespace, func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp4", net.JoinHostPort(outsideAddress, outsidePort))
		return err
	})
	if err != nil {
		return err
	}
	w.closed = append(w.closed, conn.Close)
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && from.(*net.UDPAddr).IP.String() == egressAddress {
				_, _ = conn.WriteTo(buffer[:n], from)
			}
		}
	}()
	return nil
}

// holder returns the node that holds the address; empty for none.
func (w *egressWorld) holder(ctx context.Context) (string, error) {
	out, err := w.plane.Kubectl(ctx, "get", "egressip", "bench", "-o", "json")
	if err != nil {
		return "", err
	}
	var e struct {
		Status struct{ Items []struct{ Node string } }
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || len(e.Status.Items) == 0 {
		return "", err
	}
	return e.Status.Items[0].Node, nil
}

// settled waits until a node holds the address and has it, and both holders answer the bridge.
func (w *egressWorld) settled(ctx context.Context, not string) (holder string, err error) {
	err = ovnhost.Poll(ctx, func(ctx context.Context) error {
		if holder, err = w.holder(ctx); err != nil || holder == "" || holder == not {
			return errors.Join(err, fmt.Errorf("the holder is %q", holder))
		}
		for _, host := range holders {
			out, err := w.lab.Exec(ctx, host, "sh", "-c", "ip -4 -o addr show scope 206; ss -Hltn")
			if err != nil || strings.Contains(out, egressAddress) != (host == holder) || !strings.Contains(out, ":9177") {
				return errors.Join(err, fmt.Errorf("%s is not settled: %s", host, out))
			}
		}
		return nil
	})
	return holder, err
}

func (w *egressWorld) cordon(ctx context.Context, host string, is bool) error {
	_, err := w.plane.Client().CoreV1().Nodes().Patch(ctx, host, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, is), metav1.PatchOptions{})
	return err
}
