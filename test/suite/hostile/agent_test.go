package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// agentPatience is the time in which agents, switches and bridges must act on a busy machine.
	agentPatience = patience.Patience
	agentPoll     = 20 * time.Millisecond
	// nobody is a user without rights.
	nobody = 65534
)

// nodeWorld is a node with a real Open vSwitch and OVN, and the bridge of its cluster.
type nodeWorld struct {
	t      *testing.T
	lab    *ovnhost.Lab
	bridge *bridgetest.Bridge
	dir    string // the agent's state directory
}

func newNodeWorld(t *testing.T) *nodeWorld {
	t.Helper()
	w := &nodeWorld{t: t, lab: ovnhost.ForTest(t, "host1"), dir: t.TempDir()}
	w.bridge = bridgetest.Start(t, bridgetest.OVN(w.lab.NB.Remote))
	status, answer := w.bridge.Do(http.MethodPut, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/default",
		`{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.42.0.0/16","allocate-from":"10.42.0.2","allocate-to":"10.42.255.254","gateway":"10.42.0.1"}]}]}`)
	require.Equal(t, 2, status/100, answer)
	return w
}

// nodeAgent is the node's agent, in the process of the test. It sweeps only when a test asks for it.
type nodeAgent struct {
	*agent.Agent
	w        *nodeWorld
	vswitch  *ovs.Switch
	registry *prometheus.Registry
	stop     func()
}

func (w *nodeWorld) agent() *nodeAgent {
	t := w.t
	t.Helper()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte(bridgetest.Password), 0o600))
	log := slog.New(slog.DiscardHandler)
	host := w.lab.Host("host1")
	up, err := uplink.New(uplink.Config{
		URLs: []string{w.bridge.URL()}, Node: host.Address, User: bridgetest.User, PasswordFile: password, Dir: w.dir, Log: log,
	})
	require.NoError(t, err)
	sw, err := ovs.New(ovs.Config{Endpoint: host.OVSDB.Remote, Controller: ovs.OVN, Log: log})
	require.NoError(t, err)
	node, err := netns.GetFromName(w.lab.Namespace("host1"))
	require.NoError(t, err)
	a := &nodeAgent{w: w, vswitch: sw, registry: prometheus.NewRegistry()}
	a.Agent, err = agent.New(agent.Config{
		Switch: sw, Uplink: up, Node: node, Dir: w.dir, Deadline: agentPatience, Sweep: 100 * time.Millisecond, Log: log, Registry: a.registry,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { sw.Run(ctx) })
	running.Go(func() { up.Run(ctx) })
	running.Go(func() { a.Run(ctx) })
	a.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		require.NoError(t, node.Close())
	})
	t.Cleanup(a.stop)
	return a
}

// call makes a call about a container of a runtime without Kubernetes.
func (a *nodeAgent) call(command, container string, more map[string]any) *types.Error {
	a.w.t.Helper()
	config := map[string]any{"cniVersion": "1.1.0", "name": "coe", "type": "coe-cni"}
	for key, value := range more {
		config[key] = value
	}
	text, err := json.Marshal(config)
	require.NoError(a.w.t, err)
	return a.Answer(a.w.t.Context(), call.Request{
		Command: command, ContainerID: container, Netns: "/run/netns/" + a.w.lab.Namespace(container), IfName: "eth0", Args: "IgnoreUnknown=1", Config: text,
	}).Error
}

// container plugs a container in, with its own network namespace.
func (a *nodeAgent) container(name string) {
	a.w.t.Helper()
	a.w.ip("netns", "add", a.w.lab.Namespace(name))
	a.w.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", a.w.lab.Namespace(name)).Run() })
	require.Nil(a.w.t, a.call(call.Add, name, nil))
}

func (w *nodeWorld) ip(args ...string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "ip", args...).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}

// plugged returns the containers that have a port in the switch.
func (a *nodeAgent) plugged() (all map[string]vif.Port) {
	a.w.t.Helper()
	ports, err := a.vswitch.Ports(a.w.t.Context())
	require.NoError(a.w.t, err)
	all = map[string]vif.Port{}
	for _, p := range ports {
		all[p.Attachment.Container] = p
	}
	return all
}

// pods returns the bridge's data about the pods of containers.
func (w *nodeWorld) pods() string {
	w.t.Helper()
	_, answer := w.bridge.Do(http.MethodGet, "/restconf/config/pod:coe", "")
	return answer
}

func (w *nodeWorld) note(uid string) string { return filepath.Join(w.dir, "pods", uid) }

// metric returns the value of a gauge of the agent.
func (a *nodeAgent) metric(name string) float64 {
	a.w.t.Helper()
	families, err := a.registry.Gather()
	require.NoError(a.w.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return valueOf(f)
		}
	}
	require.Fail(a.w.t, "missing metric "+name)
	return 0
}

func valueOf(f *dto.MetricFamily) float64 { return f.GetMetric()[0].GetGauge().GetValue() }

// TestPowerCut: a power cut leaves an empty note, a truncated one, and an empty state file.
// Sweeps go on, a container that is plugged in stays, and a cleanup removes everything.
func TestPowerCut(t *testing.T) {
	w := newNodeWorld(t)
	a := w.agent()
	a.container("stays")
	a.container("goes")
	a.container("swept")
	ports := a.plugged()
	a.stop()

	const never = "0c0ffee0-c0e0-5000-8000-000000000001" // the UID of a pod that was never plugged in
	for uid, text := range map[string]string{ports["stays"].PodUID: "", ports["goes"].PodUID: `{"container":"go`, never: ""} {
		require.NoError(t, os.WriteFile(w.note(uid), []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "interfaces.json"), nil, 0o600))
	w.ip("netns", "del", w.lab.Namespace("goes"))
	w.ip("netns", "del", w.lab.Namespace("swept"))

	a = w.agent()
	bridgetest.Await(t, agentPoll, agentPatience, "the pods of deleted containers are removed", func() error {
		left, pods := a.plugged(), w.pods()
		if len(left) != 1 || strings.Contains(pods, "goes") || strings.Contains(pods, "swept") {
			return fmt.Errorf("ports %v, pods %s", left, pods)
		}
		return nil
	})
	bridgetest.Await(t, agentPoll, agentPatience, "the note is written again from the switch", func() error {
		text, err := os.ReadFile(w.note(ports["stays"].PodUID))
		if err == nil && !strings.Contains(string(text), `"stays"`) {
			err = fmt.Errorf("note %q", text)
		}
		return err
	})
	bridgetest.Await(t, agentPoll, agentPatience, "no note is unreadable", func() error {
		if n := a.metric("coe_agent_notes_unreadable"); n != 0 {
			return fmt.Errorf("%g are", n)
		}
		return nil
	})
	require.NoFileExists(t, w.note(never))
	require.Contains(t, w.pods(), "stays")
	require.Nil(t, a.call(call.Add, "stays", nil), "the container is still plugged in")

	require.NoError(t, os.WriteFile(w.note(never), nil, 0o600))
	require.NoError(t, os.WriteFile(w.note(ports["stays"].PodUID), nil, 0o600))
	require.NoError(t, a.Cleanup(t.Context()))
	require.Empty(t, a.plugged())
	require.NotContains(t, w.pods(), "stays")
}

// TestGarbageCollection: a GC call removes the ports of its network that it does not list. A GC call
// without a list removes nothing.
func TestGarbageCollection(t *testing.T) {
	const valid = "cni.dev/valid-attachments"
	w := newNodeWorld(t)
	a := w.agent()
	a.container("one")
	a.container("two")
	for name, more := range map[string]map[string]any{
		"no list":               nil,
		"null":                  {valid: nil},
		"an object":             {valid: map[string]any{}},
		"the key's former name": {"cni.dev/attachments": []any{}},
		"no container":          {valid: []any{map[string]any{"ifname": "eth0"}}},
		"no network":            {valid: []any{}, "name": ""},
	} {
		failed := a.call(call.GC, "", more)
		require.NotNil(t, failed, name)
		require.EqualValues(t, types.ErrInvalidNetworkConfig, failed.Code, name)
		require.Len(t, a.plugged(), 2, name)
	}
	require.Nil(t, a.call(call.GC, "", map[string]any{valid: []any{}, "name": "another"}))
	require.Len(t, a.plugged(), 2, "the remaining ports belong to network coe")
	require.Nil(t, a.call(call.GC, "", map[string]any{valid: []any{map[string]any{"containerID": "one", "ifname": "eth0"}}}))
	require.Len(t, a.plugged(), 1)
	require.Nil(t, a.call(call.GC, "", map[string]any{valid: []any{}}))
	require.Empty(t, a.plugged(), "an empty list removes all ports")
}

// TestNamespaceOfTheNode: a call about the node's own network namespace, or about a file that is not
// a namespace, is refused and changes nothing.
func TestNamespaceOfTheNode(t *testing.T) {
	w := newNodeWorld(t)
	a := w.agent()
	config := json.RawMessage(`{"cniVersion":"1.1.0","name":"coe","type":"coe-cni"}`)
	for _, path := range []string{
		"/run/netns/" + w.lab.Namespace("host1"), "/run/netns/../netns/" + w.lab.Namespace("host1"), "/proc/self/ns/mnt", "/etc/passwd", "/run/netns", "/nowhere", "",
	} {
		answer := a.Answer(t.Context(), call.Request{Command: call.Add, ContainerID: "c", Netns: path, IfName: "eth0", Args: "IgnoreUnknown=1", Config: config})
		require.NotNil(t, answer.Error, path)
		require.EqualValues(t, types.ErrInvalidNetNS, answer.Error.Code, path)
	}
	require.Empty(t, a.plugged())
}

// TestSocketOfATenant: the NetworkAttachmentDefinition of a tenant names a socket. The plugin, which
// runs as root, does not connect to it.
func TestSocketOfATenant(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "coe-cni")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/coe-bridge/coe-bridge/cmd/coe-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(program+call.SocketsSuffix, []byte(filepath.Join(dir, "agent.sock")+"\n"), 0o644))

	of := filepath.Join(dir, "tenant.sock")
	tenant, err := net.Listen("unix", of)
	require.NoError(t, err)
	defer func() { _ = tenant.Close() }()
	connected := make(chan struct{}, 16)
	go func() {
		for {
			conn, err := tenant.Accept()
			if err != nil {
				return
			}
			connected <- struct{}{}
			_ = conn.Close()
		}
	}()
	alias := filepath.Join(dir, "alias.sock")
	require.NoError(t, os.Symlink(of, alias))
	for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
		for _, socket := range []string{of, alias, dir + "/../" + filepath.Base(dir) + "/tenant.sock", "tenant.sock", "@tenant", "\x00tenant"} {
			config, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "coe", "type": "coe-cni", "socket": socket, "prevResult": map[string]any{"cniVersion": "1.1.0"}})
			require.NoError(t, err)
			run := exec.CommandContext(t.Context(), program)
			run.Dir, run.Stdin = dir, strings.NewReader(string(config))
			run.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=" + dir}
			out, err := run.Output()
			require.Error(t, err, "%s %q", command, socket)
			var said types.Error
			require.NoError(t, json.Unmarshal(out, &said), "%s", out)
			if command != "DEL" { // DEL uses the agent's own socket
				require.EqualValues(t, types.ErrInvalidNetworkConfig, said.Code, "%s %q: %s", command, socket, out)
			}
		}
	}
	require.Empty(t, connected)
}

// TestOtherUsersOnTheSocket: the agent does not answer a process of another user, and the plugin does
// not accept a process of another user as the agent.
func TestOtherUsersOnTheSocket(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan call.Request, 4)
	answer := func(_ context.Context, r call.Request) call.Answer { answers <- r; return call.Answer{} }
	name := fmt.Sprintf("@coe-hostile-%d", os.Getpid())

	own, err := net.Listen("unix", name+"-agent")
	require.NoError(t, err)
	served := make(chan error, 2)
	go func() { served <- call.Serve(ctx, own, log, answer) }()
	request := call.Request{Command: call.Status, Config: json.RawMessage("{}")}
	_, err = call.Do(t.Context(), name+"-agent", request)
	require.NoError(t, err)
	require.Len(t, answers, 1)
	asNobody(t, func() { _, err = call.Do(t.Context(), name+"-agent", request) })
	require.Error(t, err)
	require.Len(t, answers, 1, "the agent closes the connection before it reads")

	var theirs net.Listener
	asNobody(t, func() { theirs, err = net.Listen("unix", name+"-tenant") })
	require.NoError(t, err)
	go func() { served <- call.Serve(ctx, theirs, log, answer) }()
	_, err = call.Do(t.Context(), name+"-tenant", request)
	require.ErrorContains(t, err, "not as root")
	require.Len(t, answers, 1)
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, <-served)
}

// asNobody runs f on a thread with a user without rights. The thread ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked, so that the thread ends with the goroutine
		keep := -1
		if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(keep), nobody, uintptr(keep)); failed != 0 {
			done <- failed
			return
		}
		f()
		done <- nil
	}()
	require.NoError(t, <-done)
}
