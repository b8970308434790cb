package podservices_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

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

var inside = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.96.0.0/12")}

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

// pod is a pod in whose network namespace an endpoint answers too.
type pod struct {
	podservices.Pod
	run func(command string) string
	ns  netns.NsHandle
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
	return pod{podservices.Pod{Netns: path, Address: netip.MustParseAddr(address)}, run, ns}
}

// reaches fails unless a program of a pod reaches a port of the service.
func (p pod) reaches(ctx context.Context, port uint16) error {
	return links.Inside(p.ns, func() error {
		conn, err := (&net.Dialer{Timeout: patience.Brief}).DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", service, port))
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
		Address: netip.MustParseAddr(service), Own: true, Protocol: "tcp", Number: number, Service: netip.AddrPortFrom(netip.MustParseAddr(service), number),
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort(server + ":8080")},
	}
}

// TestLead: a pod is led to the ports of now, and follows them. A pod that is gone is led no more, and the others are.
func TestLead(t *testing.T) {
	w := newWorld(t)
	first, second := w.newPod("first"), w.newPod("second")
	w.pods.Replace([]nodeports.Port{port(80), port(81)})
	for _, p := range []pod{first, second} {
		require.Error(t, p.reaches(t.Context(), 80))
		require.NoError(t, w.pods.Lead(t.Context(), p.Pod))
		require.NoError(t, w.pods.Lead(t.Context(), p.Pod))
		require.NoError(t, p.reaches(t.Context(), 80))
	}
	w.pods.Put(port(82))
	w.pods.Remove(port(81))
	w.pods.Remove(port(83))
	for _, p := range []pod{first, second} {
		w.eventually(func() bool { return p.reaches(t.Context(), 82) == nil && p.reaches(t.Context(), 81) != nil })
		require.NoError(t, p.reaches(t.Context(), 80))
	}
	w.pods.Replace([]nodeports.Port{port(80)})
	w.eventually(func() bool { return first.reaches(t.Context(), 82) != nil })
	require.NoError(t, first.reaches(t.Context(), 80))

	w.pods.Follow([]podservices.Pod{second.Pod}, inside)
	w.eventually(func() bool { return first.run("nft list ruleset") == "" })
	require.NoError(t, second.reaches(t.Context(), 80))
}

// TestFollow: pods that are there when the agent starts are led.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("pod")
	w.pods.Put(port(80))
	w.pods.Follow([]podservices.Pod{p.Pod}, inside)
	w.eventually(func() bool { return p.reaches(t.Context(), 80) == nil })
	before := p.run("nft list ruleset")
	w.pods.Follow([]podservices.Pod{p.Pod}, inside)
	require.NoError(t, w.pods.Lead(t.Context(), p.Pod))
	require.Equal(t, before, p.run("nft list ruleset"))

	again := w.newPod("pod") // another sandbox with the same path
	require.NoError(t, w.pods.Lead(t.Context(), again.Pod))
	require.NoError(t, again.reaches(t.Context(), 80))
}

// TestNoNamespace: a pod without a network namespace of its own is an error, which keeps no other pod from being led.
func TestNoNamespace(t *testing.T) {
	w := newWorld(t)
	w.pods.Put(port(80))
	p := w.newPod("pod")
	gone := podservices.Pod{Netns: filepath.Join(w.dir, "gone"), Address: p.Address}
	require.ErrorIs(t, w.pods.Lead(t.Context(), gone), os.ErrNotExist)

	ofNode := podservices.Pod{Netns: filepath.Join(w.dir, "node"), Address: p.Address}
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(w.node)), ofNode.Netns))
	require.ErrorContains(t, w.pods.Lead(t.Context(), ofNode), "it is the node's own")

	w.pods.Follow([]podservices.Pod{gone, ofNode, p.Pod}, inside)
	require.NoError(t, w.pods.Lead(t.Context(), p.Pod))
	require.NoError(t, p.reaches(t.Context(), 80))
}

// TestClose: what was written stays when the agent ends.
func TestClose(t *testing.T) {
	w := newWorld(t)
	w.pods = podservices.New(w.node, slog.New(slog.DiscardHandler))
	w.pods.Put(port(80))
	p := w.newPod("pod")
	require.NoError(t, w.pods.Lead(t.Context(), p.Pod))
	w.pods.Close()
	require.NoError(t, p.reaches(t.Context(), 80))
}
