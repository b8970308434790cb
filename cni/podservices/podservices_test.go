package podservices_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/podservices"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	service = "10.96.0.10"
	address = "10.42.0.2" // of a pod
	server  = "10.42.0.3"
)

// world is a node with pods.
type world struct {
	*testing.T
	dir  string
	node netns.NsHandle
	pods *podservices.Pods
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	w := &world{T: t, dir: t.TempDir(), node: namespace.New(t)}
	w.pods = podservices.New(w.node, slog.New(slog.DiscardHandler))
	t.Cleanup(w.pods.Close)
	return w
}

// replace replaces the ports.
func (w *world) replace(ports ...nodeports.Port) {
	w.pods.Replace(ports, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")})
	w.pods.Sync()
}

// lead leads a pod.
func (w *world) lead(p pod) { w.pods.Lead(w.Context(), p.path) }

// pod is a pod in whose network namespace an endpoint answers too.
type pod struct {
	path string
	run  func(command string) string
	ns   netns.NsHandle
}

// newPod returns a pod with a path of its network namespace. An earlier one at the path has another namespace.
func (w *world) newPod(name string) pod {
	w.Helper()
	ns, run := namespace.WithShell(w.T)
	run("ip link set lo up; ip addr add " + address + "/32 dev lo; ip addr add " + server + "/32 dev lo; ip route add 10.96.0.0/12 dev lo")
	require.NoError(w, links.Inside(ns, func() error {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", server+":8080")
		if err != nil {
			return err
		}
		w.Cleanup(func() { _ = listener.Close() })
		return nil
	}))
	path := filepath.Join(w.dir, name)
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		require.NoError(w, err)
	}
	require.NoError(w, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)), path))
	return pod{path, run, ns}
}

// answerTime is how long a program of a pod waits for an answer. It is shorter than the time after which TCP sends its first packet again,
// so the port is reached with the rules that the pod has now, also by a program that gets no processor for a while.
const answerTime = 900 * time.Millisecond

// reaches fails unless a program of a pod reaches a port of the service.
func (p pod) reaches(ctx context.Context, port uint16) error {
	return links.Inside(p.ns, func() error {
		conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", service, port))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (w *world) eventually(f func() bool) {
	w.Helper()
	require.Eventually(w, f, patience.Patience, time.Millisecond)
}

func port(number uint16) nodeports.Port {
	return nodeports.Port{
		Address: netip.MustParseAddr(service), Protocol: "tcp", Number: number, Service: netip.AddrPortFrom(netip.MustParseAddr(service), number),
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort(server + ":8080")},
	}
}

// TestLead: a pod is led to the ports of now, and follows them.
func TestLead(t *testing.T) {
	w := newWorld(t)
	first, second := w.newPod("first"), w.newPod("second")
	w.replace(port(80), port(81))
	for _, p := range []pod{first, second} {
		require.Error(t, p.reaches(t.Context(), 80))
		w.lead(p)
		require.NoError(t, p.reaches(t.Context(), 80))
		w.lead(p)
	}
	w.pods.Put(port(82))
	w.pods.Remove(port(81))
	w.pods.Remove(port(83))
	w.pods.Sync()
	for _, p := range []pod{first, second} {
		w.eventually(func() bool { return p.reaches(t.Context(), 82) == nil && p.reaches(t.Context(), 81) != nil })
		require.NoError(t, p.reaches(t.Context(), 80))
	}
	w.replace(port(80))
	w.eventually(func() bool { return first.reaches(t.Context(), 82) != nil })
	require.NoError(t, first.reaches(t.Context(), 80))

	require.NoError(t, w.pods.RemoveFrom([]string{first.path, filepath.Join(w.dir, "gone")}, nil))
	require.Empty(t, first.run("nft list ruleset"))
	w.pods.Put(port(82)) // the rules are not as they were
	w.pods.Sync()
	w.eventually(func() bool { return first.reaches(t.Context(), 82) == nil && first.reaches(t.Context(), 80) == nil })
}

// TestStart: pods that are there when the agent starts keep their rules until the ports are known, and follow them then. An ADD does not wait for
// unknown ports.
func TestStart(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("pod")
	w.replace(port(80))
	w.lead(p)
	w.pods.Close()
	require.NoError(t, p.reaches(t.Context(), 80), "what was written stays")
	before := p.run("nft list ruleset")

	w.pods = podservices.New(w.node, slog.New(slog.DiscardHandler))
	t.Cleanup(w.pods.Close)
	w.pods.Follow([]string{p.path})
	w.pods.Put(port(81))
	w.pods.Sync()
	w.lead(p)
	require.Equal(t, before, p.run("nft list ruleset"))
	w.replace(port(80), port(82))
	w.eventually(func() bool { return p.reaches(t.Context(), 82) == nil })
	require.NoError(t, p.reaches(t.Context(), 80))
	require.Error(t, p.reaches(t.Context(), 81))
	w.replace()
	w.eventually(func() bool {
		return p.run("nft list ruleset | grep -c dnat || true") != "" && p.reaches(t.Context(), 80) != nil
	})

	again := w.newPod("pod") // another sandbox with the same path
	w.replace(port(80))
	w.lead(again)
	require.NoError(t, again.reaches(t.Context(), 80))
}

// TestNoNamespace: a pod without a network namespace of its own keeps no other pod from being led, and nobody waits for it. It is led when it
// has one.
func TestNoNamespace(t *testing.T) {
	w := newWorld(t)
	w.replace(port(80))
	p := w.newPod("pod")
	gone, ofNode := pod{path: filepath.Join(w.dir, "gone")}, pod{path: filepath.Join(w.dir, "node")}
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(w.node)), ofNode.path))
	file := pod{path: filepath.Join(w.dir, "file")}
	require.NoError(t, os.WriteFile(file.path, nil, 0o600))
	w.pods.Follow([]string{gone.path, ofNode.path, file.path, p.path})
	for _, one := range []pod{gone, ofNode, file, p} {
		w.lead(one)
	}
	require.NoError(t, p.reaches(t.Context(), 80))
	require.NoError(t, links.Inside(w.node, func() error {
		out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
		require.Empty(t, string(out))
		return err
	}))
	late := w.newPod("gone")
	w.pods.Follow([]string{late.path})
	w.eventually(func() bool { return late.reaches(t.Context(), 80) == nil })
}

// TestChangedNamespace: a pod whose programs have removed the rules gets them again with the next change.
func TestChangedNamespace(t *testing.T) {
	w := newWorld(t)
	w.replace(port(80))
	p := w.newPod("pod")
	w.lead(p)
	p.run("nft flush ruleset")
	require.Error(t, p.reaches(t.Context(), 80))
	w.pods.Put(port(81))
	w.pods.Sync()
	w.eventually(func() bool { return p.reaches(t.Context(), 80) == nil && p.reaches(t.Context(), 81) == nil })
}

// TestAffinity: pods follow a port with affinity before the node does, and a pod whose rules cannot be written is waited for once.
func TestAffinity(t *testing.T) {
	w := newWorld(t)
	w.replace(port(80))
	slow, p := pod{path: filepath.Join(w.dir, "slow")}, w.newPod("pod")
	require.NoError(t, unix.Mkfifo(slow.path, 0o600)) // whoever opens it waits for a writer
	defer func() {
		end, err := os.OpenFile(slow.path, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, end.Close())
	}()
	w.pods.Follow([]string{slow.path, p.path})
	var waited []time.Duration
	for number := uint16(81); number < 86; number++ {
		sticky := port(number)
		sticky.Affinity = time.Hour
		w.pods.Put(sticky)
		begun := time.Now()
		w.pods.Sync()
		waited = append(waited, time.Since(begun))
		w.eventually(func() bool { return p.reaches(t.Context(), number) == nil }) // a busy machine can write later
	}
	const long = time.Second
	require.GreaterOrEqual(t, waited[0], long)
	require.Less(t, slices.Min(waited[1:]), long)
}
