package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	converge = patience.Patience
	interval = 10 * time.Millisecond
)

// pluginDir is where coe-cni is built.
var pluginDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "coe-cni")
	if err != nil {
		fmt.Fprintln(os.Stderr, "create a directory for coe-cni:", err)
		os.Exit(1)
	}
	pluginDir = dir
	code := bridgetest.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// plugin is the path of coe-cni, and cnitool the path of CNI's cnitool.
var (
	plugin  = sync.OnceValues(func() (string, error) { return build("github.com/coe-bridge/coe-bridge/cmd/coe-cni") })
	cnitool = sync.OnceValues(func() (string, error) { return build("github.com/containernetworking/cni/cnitool") })
)

// allowSocket lets the plugin accept a socket in network configurations.
func allowSocket(t testing.TB, socket string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(pluginDir, "coe-cni"+call.SocketsSuffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(file, socket)
	require.NoError(t, errors.Join(err, file.Close()))
}

func build(pkg string) (program string, err error) {
	program = filepath.Join(pluginDir, path.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return program, nil
}

// world is OVN hosts, a bridge with their northbound database, and an agent on each host.
type world struct {
	t      *testing.T
	lab    *ovnhost.Lab
	bridge *bridgetest.Process
	agents map[string]*agentProcess // by host
	// deadline is the deadline of the agents' calls.
	deadline time.Duration
	// flows is the management socket of the bridge, for agents in this process; empty for none.
	flows string
	// under is the command that runs the agents; empty for none.
	under []string
	// flags are further flags of the agents that start.
	flags []string
}

// Deadlines of agents: for tests whose calls succeed on busy machines, and for tests with calls
// that time out.
const (
	patient   = patience.Patience
	impatient = 30 * time.Second
)

// agentProcess is coe-bridge agent on a host.
type agentProcess struct {
	*ovnhost.Process
	argv        []string
	socket, dir string
	relay       *relay
}

func newWorld(t *testing.T, deadline time.Duration, hosts ...string) *world {
	w := newWorldWithoutAgents(t, hosts...)
	w.startAgents(deadline)
	return w
}

func (w *world) startAgents(deadline time.Duration) {
	w.deadline = deadline
	for _, host := range w.lab.Hosts {
		w.startAgent(host.Name)
	}
}

func newWorldWithoutAgents(t *testing.T, hosts ...string) *world {
	lab := ovnhost.ForTest(t, hosts...)
	return newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote)
}

// newWorldOver starts a bridge with a backend, without agents.
func newWorldOver(t *testing.T, lab *ovnhost.Lab, backend ...string) *world {
	w := &world{t: t, lab: lab, agents: map[string]*agentProcess{}}
	w.bridge = bridgetest.Serve(t, append(backend, "--data-dir", t.TempDir(), "--address-reuse-delay", "1s", "--service-network", "10.96.0.0/12", "--no-masquerade", routed+"/32")...)
	w.put("dhcp_allocation_pool:dhcp_allocation_pool/network/default", `{"network":[{"network-id":"default","allocation-pool":[
		{"subnet":"10.42.0.0/16","allocate-from":"10.42.0.2","allocate-to":"10.42.255.254","gateway":"10.42.0.1"}]}]}`)
	for i, host := range lab.Hosts {
		w.put("k8s-node:k8s-nodes-info/k8s-nodes/"+uid("n", i), fmt.Sprintf(`{"k8s-nodes":[{"uid":%q,"host-name":%q,"internal-ip-address":%q}]}`,
			uid("n", i), host.Name, w.address(host.Name)))
	}
	return w
}

// uid returns a UUID of a kind and a number.
func uid(kind string, n int) string {
	return fmt.Sprintf("c0e%02x000-c0e0-4000-8000-%012d", kind[0], n)
}

func (w *world) address(host string) string { return w.lab.Host(host).Address.String() }

func (w *world) put(path, body string) {
	w.t.Helper()
	status, answer := w.bridge.Bridge().Do(http.MethodPut, "/restconf/config/"+path, body)
	require.Equal(w.t, 2, status/100, "PUT %s: %d %s", path, status, answer)
}

// startAgent runs coe-bridge agent on a host.
func (w *world) startAgent(host string) {
	w.t.Helper()
	dir := filepath.Join(w.lab.Dir, host)
	a := &agentProcess{socket: filepath.Join(dir, "cni.sock"), dir: filepath.Join(dir, "agent")}
	a.relay = w.newRelay(host)
	allowSocket(w.t, a.socket)
	password := filepath.Join(dir, "password")
	require.NoError(w.t, os.WriteFile(password, []byte(bridgetest.Password), 0o600))
	a.argv = append(slices.Clone(w.under),
		bridgetest.Program(w.t), "agent", "--bridge", a.relay.url, "--node-address", w.address(host),
		"--user", bridgetest.User, "--password-file", password, "--ovs-db", w.lab.Host(host).OVSDB.Remote,
		"--socket", a.socket, "--state-dir", a.dir, "--call-deadline", w.deadline.String(), "--sweep-interval", "2s", "--log-level", "debug",
		"--ovs-run-dir", w.lab.Host(host).Dir, "--ovn-run-dir", w.lab.Host(host).Dir,
	)
	a.argv = append(a.argv, w.flags...)
	var err error
	a.Process, err = w.lab.Launch(w.t.Context(), ovnhost.Command{
		Name: host + "/agent", Pod: host, Argv: a.argv,
		Ready: func(ctx context.Context) error { return w.ready(ctx, host) },
	})
	require.NoError(w.t, err)
	w.agents[host] = a
}

// ready fails while the agent of a host is not ready.
func (w *world) ready(ctx context.Context, host string) error {
	_, err := w.lab.HTTPGet(ctx, host, "http://127.0.0.1:8182/readyz")
	return err
}

// inHost calls f on a thread in a namespace.
func inHost(t testing.TB, name string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	require.NoError(t, err)
	defer func() { _ = home.Close() }()
	away, err := netns.GetFromName(name)
	require.NoError(t, err)
	defer func() { _ = away.Close() }()
	require.NoError(t, netns.Set(away))
	f()
	require.NoError(t, netns.Set(home))
}

// await waits until holds returns nil.
func await(t testing.TB, what string, holds func() error) {
	t.Helper()
	bridgetest.Await(t, interval, converge, what, holds)
}

// sandbox is a pod's network namespace with the data of its runtime.
type sandbox struct {
	w                    *world
	host                 string
	namespace, name, uid string // of the pod; uid empty: a caller without Kubernetes
	container            string
	address              netip.Addr // of the last ADD
}

// sandbox creates a network namespace.
func (w *world) sandbox(host, namespace, name, uid, container string) *sandbox {
	w.t.Helper()
	s := &sandbox{w: w, host: host, namespace: namespace, name: name, uid: uid, container: container}
	w.t.Cleanup(s.remove)
	for _, args := range [][]string{{"netns", "add", s.netns()}, {"-n", s.netns(), "link", "set", "lo", "up"}} {
		out, err := exec.CommandContext(w.t.Context(), "ip", args...).CombinedOutput()
		require.NoError(w.t, err, "%s", out)
	}
	return s
}

// pod posts a pod, and creates a sandbox for it.
func (w *world) pod(host string, n int, namespace, name string) *sandbox {
	w.t.Helper()
	w.post(host, n, namespace, name)
	return w.sandbox(host, namespace, name, uid("p", n), fmt.Sprintf("sandbox%d", n))
}

func (w *world) post(host string, n int, namespace, name string) {
	w.t.Helper()
	w.put("pod:coe/pods/"+uid("p", n), fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":%q,"network-NS":%q,"host-ip-address":%q,"interface":[{"uid":%q,"network-type":"VXLAN"}]}]}`,
		uid("p", n), name, namespace, w.address(host), uid("p", n)))
}

func (w *world) delete(n int) {
	w.t.Helper()
	status, answer := w.bridge.Bridge().Do(http.MethodDelete, "/restconf/config/pod:coe/pods/"+uid("p", n), "")
	require.Equal(w.t, 2, status/100, "%d %s", status, answer)
}

// inLab is the name of the namespace in the lab's tools.
func (s *sandbox) inLab() string { return s.container }
func (s *sandbox) netns() string { return s.w.lab.Namespace(s.container) }
func (s *sandbox) path() string  { return "/run/netns/" + s.netns() }

// remove removes the namespace if it exists.
func (s *sandbox) remove() {
	if _, err := os.Stat(s.path()); errors.Is(err, os.ErrNotExist) {
		return
	}
	out, err := exec.Command("ip", "netns", "del", s.netns()).CombinedOutput()
	require.NoError(s.w.t, err, "%s", out)
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
