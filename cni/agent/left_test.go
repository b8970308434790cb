package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// left is what remains of the agent on a host: ports, links and notes by name.
type left struct{ ports, links, notes []string }

func (w *world) left(host, dir string) left {
	w.t.Helper()
	var l left
	out, err := w.lab.Host(host).VSCtl(w.t.Context(), "--format=csv", "--no-headings", "--columns=name,external_ids", "list", "Interface")
	require.NoError(w.t, err)
	for line := range strings.Lines(out) {
		if name, ids, _ := strings.Cut(line, ","); strings.Contains(ids, "coe-container") {
			l.ports = append(l.ports, name)
		}
	}
	node := w.node(host)
	defer func() { _ = node.Close() }()
	owned, err := links.Owned(node)
	require.NoError(w.t, err)
	for name := range owned {
		l.links = append(l.links, name)
	}
	l.notes, err = filepath.Glob(filepath.Join(dir, "pods", "*"))
	require.NoError(w.t, err)
	return l
}

// node opens a host's network namespace.
func (w *world) node(host string) netns.NsHandle {
	w.t.Helper()
	node, err := netns.GetFromName(w.lab.Namespace(host))
	require.NoError(w.t, err)
	return node
}

// nothingLeft fails if a host has more than that many pods.
func (l left) is(pods int) error {
	if len(l.ports) != pods || len(l.links) != pods || len(l.notes) != 0 {
		return fmt.Errorf("want %d pods, and there are: ports %q, links %q, notes %q", pods, l.ports, l.links, l.notes)
	}
	return nil
}

// awaitPods waits until a host has exactly that many attached pods, and nothing else.
func (w *world) awaitPods(host string, pods int) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s has %d pods", host, pods), func() error { return w.left(host, w.agents[host].dir).is(pods) })
}

// inPod fails if a sandbox still has a link from ADD.
func (s *sandbox) nothingIn() {
	s.w.t.Helper()
	pod, err := netns.GetFromPath(s.path())
	require.NoError(s.w.t, err)
	defer func() { _ = pod.Close() }()
	_, err = links.Look(pod, "eth0")
	require.ErrorIs(s.w.t, err, links.ErrNotFound)
}

// pings sends echo requests until one is answered.
func (s *sandbox) pings(ctx context.Context, to *sandbox) error {
	return s.w.lab.Ping(ctx, s.inLab(), to.address)
}
