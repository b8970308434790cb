package odlpods_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

var watcher = flag.String("watcher", "", "the program of OpenDaylight's Kubernetes watcher, for TestWatcher: docs/opendaylight.md builds it")

// TestWatcher tests OpenDaylight's own Kubernetes watcher as the only client of the bridge. The watcher is in no registry:
// make test-odl WATCHER=PROGRAM runs the test.
func TestWatcher(t *testing.T) {
	if *watcher == "" {
		t.Skip("needs the program of OpenDaylight's watcher: -watcher")
	}
	w := &watched{world{t: t}, kube.ForTest(t, kube.Config{ControllerManager: true})}
	c := odl.Alone(t, odl.Oxygen, "host1", "host2")
	var err error
	w.lab, err = odlpods.New(t.Context(), odlpods.Config{Controller: c, Bin: odlpods.Programs(t), CallDeadline: time.Minute})
	require.NoError(t, err)
	require.NoError(t, w.lab.StartBridge(t.Context(), "none"))
	require.NoError(t, w.lab.Apply(t.Context(), "pool", "dhcp_allocation_pool:network:\n- network-id: default\n  allocation-pool: [{subnet: 10.42.0.0/16}]\n"))
	require.NoError(t, w.lab.StartAgents(t.Context()))
	w.startWatcher()
	w.createNodes()
	require.NoError(t, w.lab.AwaitNetwork(t.Context()))
	w.step("pods are plugged in, and all reach all", w.testPods)
	w.step("nodes and pods reach each other", w.testNodes)
	w.step("pods and nodes use a service", w.testService)
	w.step("pods are deleted", w.testDelete)
}

// watched is a world of pods in Kubernetes.
type watched struct {
	world
	kube *kube.ControlPlane
}

// startWatcher starts the watcher, which reaches the bridge by a proxy: the bridge listens in the network of the lab.
func (w *watched) startWatcher() {
	bridge, err := url.Parse(w.lab.URL())
	require.NoError(w.t, err)
	proxy := httputil.NewSingleHostReverseProxy(bridge)
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return w.lab.Dial(ctx, ovnhost.CentralNamespace, network, address)
	}}
	server := httptest.NewServer(proxy)
	w.t.Cleanup(server.Close)
	user, password, err := w.lab.Operator()
	require.NoError(w.t, err)
	file := filepath.Join(w.t.TempDir(), "coe.yaml")
	config := fmt.Sprintf("kube: {config: %s}\nodl: {host: %q, user: %q, password: %q}\n", w.kube.Kubeconfig(), server.URL, user, password)
	require.NoError(w.t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.CommandContext(w.t.Context(), *watcher, "odl", "--config", file)
	cmd.Stdout, cmd.Stderr = w.t.Output(), w.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

func (w *watched) createNodes() {
	for _, h := range w.lab.Hosts {
		_, err := w.kube.Client().CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: h.Name},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: h.Address.String()}, {Type: corev1.NodeHostName, Address: h.Name},
			}},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// testPods creates pods, and plugs them in as their kubelet does.
func (w *watched) testPods() {
	for _, namespace := range []string{"web", "shop"} {
		_, err := w.kube.Client().CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.NoError(w.t, err)
		require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
			_, err := w.kube.Client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		}))
	}
	for _, p := range []odlpods.Pod{
		{Namespace: "web", Name: "front", Host: "host1"}, {Namespace: "web", Name: "back", Host: "host2"}, {Namespace: "shop", Name: "till", Host: "host2"},
	} {
		plugged, err := w.lab.Plug(w.t.Context(), w.create(p))
		require.NoError(w.t, err)
		running := kube.PodStatus{Phase: corev1.PodRunning, Ready: true, Addresses: []netip.Addr{plugged.Address}}
		require.NoError(w.t, w.kube.SetPodStatus(w.t.Context(), p.Namespace, p.Name, running))
		w.pods = append(w.pods, plugged)
	}
	w.reachAll()
}

// create creates a pod on its node, with the address of the node in its status.
func (w *watched) create(p odlpods.Pod) odlpods.Pod {
	pods := w.kube.Client().CoreV1().Pods(p.Namespace)
	created, err := pods.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: map[string]string{"app": "page"}},
		Spec: corev1.PodSpec{
			NodeName: p.Host, TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "localhost/none"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	at := corev1.HostIP{IP: w.lab.Host(p.Host).Address.String()}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"hostIP": at.IP, "hostIPs": []corev1.HostIP{at}}})
	require.NoError(w.t, err)
	_, err = pods.Patch(w.t.Context(), p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(w.t, err)
	p.UID = string(created.UID)
	return p
}

// testService tests a service of two pods: the watcher sends it, and its endpoints.
func (w *watched) testService() {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "page"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "page"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(podPort)}},
		},
	}
	service, err := w.kube.Client().CoreV1().Services("web").Create(w.t.Context(), service, metav1.CreateOptions{})
	require.NoError(w.t, err)
	serving := []string{"web:front", "web:back"}
	cluster := netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), 80)
	for _, client := range []string{"web:front", "web:back", "shop:till", "host1", "host2"} {
		w.both(client, cluster, serving)
	}
	for _, host := range w.lab.Hosts {
		w.both(ovnhost.CentralNamespace, netip.AddrPortFrom(host.Address, uint16(service.Spec.Ports[0].NodePort)), serving)
	}
}

func (w *watched) testDelete() {
	for _, p := range w.pods {
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
		require.NoError(w.t, w.kube.Client().CoreV1().Pods(p.Namespace).Delete(w.t.Context(), p.Name, metav1.DeleteOptions{}))
	}
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		out, err := w.lab.Ask(ctx, "get", "pods")
		if err == nil && !strings.HasPrefix(out, "no pods") {
			err = fmt.Errorf("pods are left: %s", out)
		}
		return err
	}))
}
