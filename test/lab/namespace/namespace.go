// Package namespace makes network namespaces for tests of what the kernel of a node does.
package namespace

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// New creates a network namespace without a name, which ends with the test. With -short the test is skipped, because it needs root.
func New(t testing.TB) (ns netns.NsHandle) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	home, err := netns.Get()
	require.NoError(t, err)
	defer func() { require.NoError(t, home.Close()) }()
	require.NoError(t, links.Inside(home, func() (err error) {
		ns, err = netns.New()
		return err
	}), "a network namespace needs root")
	t.Cleanup(func() { require.NoError(t, ns.Close()) })
	return ns
}

// WithShell is New. The function runs a command of the shell in the namespace, and returns what it prints.
func WithShell(t testing.TB) (ns netns.NsHandle, run func(command string) string) {
	t.Helper()
	ns = New(t)
	return ns, func(command string) (out string) {
		t.Helper()
		require.NoError(t, links.Inside(ns, func() (err error) {
			out, err = Output(exec.CommandContext(t.Context(), "sh", "-c", command))
			return err
		}))
		return out
	}
}

// Output runs a command, and returns its standard output. Standard error is only in the error: there ip complains, while it
// succeeds, about a namespace that another test is about to create.
func Output(cmd *exec.Cmd) (string, error) {
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", cmd, err, failure.Bytes(), out)
	}
	return string(out), err
}

// Listen accepts connections of TCP to ports in a namespace.
func Listen(t testing.TB, ns netns.NsHandle, ports ...string) {
	for _, port := range ports {
		require.NoError(t, links.Inside(ns, func() error {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+port)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}))
	}
}

// Dial opens a connection of TCP from a namespace, and closes it.
func Dial(t testing.TB, from netns.NsHandle, host, port string, within time.Duration) error {
	return links.Inside(from, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}
