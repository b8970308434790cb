package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Egress addresses in the network of the nodes, and the label of nodes that may hold them.
const (
	egressIP      = "172.31.99.200"
	otherEgressIP = "172.31.99.201"
	egressLabel   = "node-restriction.kubernetes.io/coe-bridge-egress"
)

// egressWorld is three hosts; the first two may hold egress addresses. Pods of the namespace "chosen" are on the first
// and the third one, and a pod of "other" is on the first one.
type egressWorld struct {
	*world
	plane               *kubetest.ControlPlane
	api                 *kubernetes.Clientset
	near, far, unchosen *sandbox
	hosts               []string
}

func newEgressWorld(t *testing.T) *egressWorld {
	t.Helper()
	plane := kubetest.ForTest(t, kubetest.Config{})
	_, err := plane.Kubectl(t.Context(), "apply", "--server-side", "-f", "../../deploy/kubernetes/bridge/egressips.yaml")
	require.NoError(t, err)
	_, err = plane.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=60s", "crd/egressips.coe-bridge.io")
	require.NoError(t, err)
	lab := ovnhost.ForTest(t, "host1", "host2", "host3")
	w := &egressWorld{
		world: newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--kubeconfig", plane.Kubeconfig(), "--egress-ips"),
		plane: plane, api: plane.Client(), hosts: []string{"host1", "host2", "host3"},
	}
	w.reachNodes()
	for _, name := range []string{"chosen", "other"} {
		_, err := w.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, host := range w.hosts {
		n, err := w.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}, metav1.CreateOptions{})
		require.NoError(t, err)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: w.address(host)}}
		_, err = w.api.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	w.startAgents(patient)
	w.withOutside()
	w.near, w.far, w.unchosen = w.pod("host1", 1, "chosen", "near"), w.pod("host3", 2, "chosen", "far"), w.pod("host1", 3, "other", "unchosen")
	for _, p := range []*sandbox{w.near, w.far, w.unchosen} {
		p.mustAdd()
	}
	w.who("central", "outside")
	w.whoUDPAt("central", outside, "outside")
	return w
}

// reachNodes connects the namespace of the bridge to the network of the nodes: the bridge asks their agents.
func (w *egressWorld) reachNodes() {
	w.t.Helper()
	central, link := w.lab.Namespace("central"), "egress-test"
	run := func(args ...string) {
		out, err := exec.CommandContext(w.t.Context(), "ip", args...).CombinedOutput()
		require.NoError(w.t, err, "ip %v: %s", args, out)
	}
	run("link", "add", link, "type", "veth", "peer", "name", "bridge", "netns", central)
	w.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", link).Run() })
	run("addr", "add", "172.31.98.1/30", "dev", link)
	run("link", "set", link, "up")
	run("-n", central, "addr", "add", "172.31.98.2/30", "dev", "bridge")
	run("-n", central, "link", "set", "bridge", "up")
	for _, host := range w.hosts {
		run("route", "add", w.address(host)+"/32", "via", "172.31.98.2", "dev", link)
	}
	_, err := w.lab.Exec(w.t.Context(), "central", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	require.NoError(w.t, err)
}

// label lets a host hold egress addresses, or not any more.
func (w *egressWorld) label(host string, is bool) {
	w.t.Helper()
	value := "null"
	if is {
		value = `""`
	}
	w.patchNode(host, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, egressLabel, value))
}

func (w *egressWorld) cordon(host string, is bool) {
	w.t.Helper()
	w.patchNode(host, fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, is))
}

func (w *egressWorld) patchNode(host, patch string) {
	w.t.Helper()
	_, err := w.api.CoreV1().Nodes().Patch(w.t.Context(), host, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// apply creates or changes an EgressIP that selects the pods of a namespace.
func (w *egressWorld) apply(name, address, namespace string) {
	w.t.Helper()
	w.applyTo(name, address, namespace, "")
}

// applyTo creates or changes an EgressIP that selects pods of a namespace, with further members of its spec.
func (w *egressWorld) applyTo(name, address, namespace, more string) {
	w.t.Helper()
	require.NoError(w.t, w.plane.Apply(w.t.Context(), fmt.Sprintf(`{"apiVersion":"coe-bridge.io/v1","kind":"EgressIP","metadata":{"name":%q},
		"spec":{"egressIPs":[%q],"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}%s}}`, name, address, namespace, more)))
}

// awaitEvent waits for an Event about an EgressIP, which kubectl describe shows.
func (w *egressWorld) awaitEvent(name, reason string) {
	w.t.Helper()
	await(w.t, "an Event "+reason+" about "+name, func() error {
		out, err := w.plane.Kubectl(w.t.Context(), "describe", "egressip", name)
		if err == nil && !strings.Contains(out, reason) {
			err = errors.New(out)
		}
		return err
	})
}

// holder returns the node in the status of an EgressIP; empty for none.
func (w *egressWorld) holder(name string) (string, error) {
	out, err := w.plane.Kubectl(w.t.Context(), "get", "egressip", name, "-o", "json")
	var e struct {
		Status struct {
			Items []struct{ Node, EgressIP string }
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &e)
	}
	if err != nil || len(e.Status.Items) == 0 {
		return "", err
	}
	return e.Status.Items[0].Node, nil
}

// heldBy waits until a node, or one of several, holds an EgressIP, and until no other node has its address.
func (w *egressWorld) heldBy(name, address string, hosts ...string) (host string) {
	w.t.Helper()
	await(w.t, name+" is held by one of "+strings.Join(hosts, ", "), func() (err error) {
		if host, err = w.holder(name); err != nil {
			return err
		}
		if !strings.Contains(" "+strings.Join(hosts, " ")+" ", " "+host+" ") || host == "" {
			return fmt.Errorf("it is held by %q", host)
		}
		for _, other := range w.hosts {
			if w.lab.Host(other) == nil {
				continue
			}
			out, err := w.lab.Exec(w.t.Context(), other, "ip", "-4", "-o", "addr")
			if err == nil && strings.Contains(out, " "+address+"/32 ") != (other == host) {
				return fmt.Errorf("%s: %s", other, out)
			}
		}
		return nil
	})
	return host
}

// leaves waits until a pod leaves with an address, over TCP.
func (w *egressWorld) leaves(p *sandbox, as string) {
	w.t.Helper()
	w.seen(p.inLab(), outside, 8080, "outside "+as)
}

// askUDPOnce sends a datagram from a pod to the outside, and returns the answer.
func (w *egressWorld) askUDPOnce(p *sandbox) (string, error) {
	conn, err := w.lab.Dial(w.t.Context(), p.inLab(), "udp", net.JoinHostPort(outside, "8080"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return exchange(conn, time.Second)
}

// pinger sends datagrams from a pod, one after the other.
type pinger struct {
	timeout time.Duration // of an answer
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	sources map[string]int // that the outside saw
	lost    int            // datagrams without an answer
	longest time.Duration  // without an answer
}

// ping starts a pinger, and waits for its first answer.
func (w *egressWorld) ping(p *sandbox, timeout time.Duration) *pinger {
	w.t.Helper()
	conn, err := w.lab.Dial(w.t.Context(), p.inLab(), "udp", net.JoinHostPort(outside, "8080"))
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	g := &pinger{timeout: timeout, stop: cancel, done: make(chan struct{}), sources: map[string]int{}}
	go g.run(ctx, conn)
	await(w.t, p.name+" gets an answer", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.sources) == 0 {
			return errors.New("none yet")
		}
		g.lost, g.longest = 0, 0 // the first packets of a pod may find no way yet
		return nil
	})
	return g
}

func (g *pinger) run(ctx context.Context, conn net.Conn) {
	defer close(g.done)
	defer func() { _ = conn.Close() }()
	for last := time.Now(); ctx.Err() == nil; {
		answer, err := exchange(conn, g.timeout)
		g.mu.Lock()
		if err != nil {
			g.lost++
		} else {
			g.sources[strings.TrimPrefix(answer, "outside ")]++
			g.longest = max(g.longest, time.Since(last))
			last = time.Now()
		}
		g.mu.Unlock()
		pause := time.NewTimer(5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// patientPing is a timeout that is much longer than an answer takes on a busy machine.
const patientPing = 3 * time.Second

// onlyWith ends the pinger, which must have seen no source but one. It returns how many datagrams had no answer.
func (g *pinger) onlyWith(t *testing.T, source string) (lost int) {
	t.Helper()
	g.stop()
	<-g.done
	require.NotZero(t, g.sources[source])
	delete(g.sources, source)
	require.Empty(t, g.sources, "other sources")
	return g.lost
}

// TestEgressIP: selected pods leave the cluster with the address of their EgressIP, wherever they are, and other pods
// with the address of their node. They never leave with another address: not before a node may hold the address, not
// after a wrong change, and not while the bridge restarts. The address moves without a lost packet before a node goes, and
// soon after it has died.
func TestEgressIP(t *testing.T) {
	w := newEgressWorld(t)
	for _, p := range []*sandbox{w.near, w.far, w.unchosen} {
		w.leaves(p, w.address(p.host))
	}
	w.step("no node may hold the address: the pods do not leave", func() {
		w.apply("shop", egressIP, "chosen")
		w.awaitProblem("shop", "Waiting")
		w.awaitEvent("shop", "Waiting")
		await(t, "the pods do not leave", func() error {
			for _, p := range []*sandbox{w.near, w.far} {
				if got, err := w.askUDPOnce(p); err == nil {
					return errors.New(got)
				}
			}
			return nil
		})
		w.leaves(w.unchosen, w.address("host1"))
	})
	w.step("a node may hold it", func() {
		w.label("host1", true)
		require.Equal(t, "host1", w.heldBy("shop", egressIP, "host1"))
		w.awaitEvent("shop", "Mapped")
		w.leaves(w.near, egressIP)
		w.leaves(w.far, egressIP)
		w.leaves(w.unchosen, w.address("host1"))
	})
	newcomer := w.pod("host2", 4, "chosen", "new")
	w.step("a new pod", func() {
		newcomer.mustAdd()
		pings := w.ping(newcomer, patientPing)
		w.leaves(newcomer, egressIP)
		pings.onlyWith(t, egressIP)
	})
	w.step("wrong changes", func() {
		w.apply("shop", w.address("host2"), "chosen")
		w.awaitProblem("shop", "AddressTaken")
		w.leaves(w.far, egressIP)
		w.apply("thief", egressIP, "other")
		await(t, "the pods of the second EgressIP do not leave", func() error {
			if got, err := w.askUDPOnce(w.unchosen); err == nil {
				return errors.New(got)
			}
			return nil
		})
		w.leaves(w.far, egressIP)
		_, err := w.plane.Kubectl(t.Context(), "delete", "egressip", "thief")
		require.NoError(t, err)
		w.leaves(w.unchosen, w.address("host1"))
		w.apply("shop", egressIP, "chosen")
	})
	w.step("pods by their labels", w.testEgressOfLabels)
	w.step("the bridge restarts", func() {
		near, far := w.ping(w.near, patientPing), w.ping(w.far, patientPing)
		w.bridge.Kill()
		w.startBridge()
		w.leaves(w.far, egressIP)
		require.Zero(t, near.onlyWith(t, egressIP)+far.onlyWith(t, egressIP), "packets lost")
	})
	w.step("the holder is cordoned", func() {
		w.label("host2", true)
		w.answersBridge("host2")
		// The userspace datapath of Open vSwitch loses the first packet of a tunnel, while it resolves the other end.
		for _, p := range []*sandbox{w.near, w.far} {
			await(t, p.name+" reaches host2", func() error { return p.pings(t.Context(), newcomer) })
		}
		near, far := w.ping(w.near, patientPing), w.ping(w.far, patientPing)
		w.cordon("host1", true)
		require.Equal(t, "host2", w.heldBy("shop", egressIP, "host2"))
		w.leaves(w.near, egressIP)
		require.Zero(t, near.onlyWith(t, egressIP)+far.onlyWith(t, egressIP), "packets lost")
		w.cordon("host1", false)
	})
	w.step("somebody removes the address and the rules", func() {
		w.label("host1", false) // on a busy machine a node can be silent for so long that the address moves
		for _, harm := range []string{"ip addr del " + egressIP + "/32 dev br-phy", "nft delete table ip coe-bridge"} {
			_, err := w.lab.Exec(t.Context(), "host2", strings.Fields(harm)...)
			require.NoError(t, err, harm)
			w.heldBy("shop", egressIP, "host2")
			w.leaves(w.far, egressIP)
		}
		w.label("host1", true)
		w.answersBridge("host1")
	})
	w.step("the holder dies", func() {
		pings := w.ping(w.far, 100*time.Millisecond)
		require.NoError(t, w.lab.Down(t.Context(), "host2"))
		w.hosts = []string{"host1", "host3"}
		require.Equal(t, "host1", w.heldBy("shop", egressIP, "host1"))
		w.leaves(w.far, egressIP)
		pings.onlyWith(t, egressIP)
		t.Logf("no answer for %s", pings.longest)
	})
	w.step("it selects other pods", func() {
		w.apply("shop", otherEgressIP, "other")
		w.leaves(w.unchosen, otherEgressIP)
		w.leaves(w.far, w.address("host3"))
	})
	w.step("it is deleted", func() {
		_, err := w.plane.Kubectl(t.Context(), "delete", "egressip", "shop")
		require.NoError(t, err)
		w.leaves(w.unchosen, w.address("host1"))
		await(t, "nothing is left on the node", func() error {
			out, err := w.lab.Exec(t.Context(), "host1", "sh", "-c", "ip -o addr; ip -o link; nft list table ip coe-bridge; ss -Hltn")
			if err == nil && (strings.Contains(out, otherEgressIP) || strings.Contains(out, "coe-eg") || strings.Contains(out, "egress") || strings.Contains(out, ":9177")) {
				err = errors.New(out)
			}
			return err
		})
		out, err := w.lab.NBCtl(t.Context(), "--columns=name", "find", "Logical_Switch", "external_ids:coe-bridge/kind=egress-ip")
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(out))
	})
}

// testEgressOfLabels selects pods by their labels: a pod leaves with the egress address as long as it has the label.
func (w *egressWorld) testEgressOfLabels() {
	pods, labelled := w.api.CoreV1().Pods("chosen"), metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{"app": "payment"}}
	pod, err := pods.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: labelled, Spec: corev1.PodSpec{NodeName: "host3", Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	p := w.sandbox("host3", "chosen", pod.Name, string(pod.UID), "sandbox5")
	p.mustAdd()
	w.leaves(p, egressIP)
	w.applyTo("shop", egressIP, "chosen", `,"podSelector":{"matchLabels":{"app":"payment"}}`)
	w.leaves(w.far, w.address("host3"))
	w.leaves(p, egressIP)
	relabel := func(app, as string) {
		_, err := pods.Patch(w.t.Context(), pod.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, app), metav1.PatchOptions{})
		require.NoError(w.t, err)
		w.leaves(p, as)
	}
	relabel("web", w.address("host3"))
	relabel("payment", egressIP)
	w.apply("shop", egressIP, "chosen")
	w.leaves(w.far, egressIP)
	require.NoError(w.t, p.del())
	require.NoError(w.t, pods.Delete(w.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// answersBridge waits until the bridge counts a node as alive: then its agent has opened the port.
func (w *egressWorld) answersBridge(host string) {
	w.t.Helper()
	await(w.t, host+" answers the bridge", func() error {
		conn, err := w.lab.Dial(w.t.Context(), "central", "tcp", net.JoinHostPort(w.address(host), "9177"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// awaitProblem waits for a problem of an EgressIP.
func (w *egressWorld) awaitProblem(name, reason string) {
	w.t.Helper()
	await(w.t, name+" is a problem", func() error {
		problems := w.bridge.Bridge().Status().Problems
		for _, p := range problems {
			if p.Kind == "egressip" && p.Name == name && p.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("%+v", problems)
	})
}
