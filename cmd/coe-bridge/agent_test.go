package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAgentFlags(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"no bridge", nil, "name its URLs with --bridge"},
		{"no node", []string{"--bridge", "http://127.0.0.1:1"}, "--node-address"},
		{"no URL", []string{"--bridge", "127.0.0.1:1", "--node-address", "10.0.0.1"}, "want a URL like https://"},
		{"two credentials", []string{"--bridge", "http://x", "--user", "a", "--password-file", "a", "--token-file", "b"}, "give one of them"},
		{"user without password", []string{"--bridge", "http://x", "--user", "a"}, "belong together"},
		{"certificate without key", []string{"--bridge", "https://x", "--node-address", "10.0.0.1", "--cert", "a"}, "--cert is given without --key"},
		{"no time", []string{"--bridge", "http://x", "--call-deadline", "0s"}, "--call-deadline"},
		{"no interval", []string{"--bridge", "http://x", "--sweep-interval", "-1s"}, "--sweep-interval"},
		{"half a DaemonSet", []string{"--bridge", "http://x", "--install-cni", "--daemonset", "a"}, "want NAMESPACE/NAME"},
		{"DaemonSet that installs nothing", []string{"--bridge", "http://x", "--daemonset", "a/b"}, "given without --install-cni"},
		{"backend", []string{"--bridge", "http://x", "--node-address", "10.0.0.1", "--backend", "memory"}, "want ovn or odl"},
		{"manager of OVN", []string{"--bridge", "http://x", "--node-address", "10.0.0.1", "--ovs-manager", "tcp:10.0.0.5:6640"}, "without --backend odl"},
		{"no manager", []string{"--bridge", "http://x", "--node-address", "10.0.0.1", "--backend", "odl", "--ovs-manager", "10.0.0.5:6640"}, "want tcp:HOST:PORT"},
		{"log", []string{"--log-level", "loud"}, "--log-level"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			_, err := run(t, "", append([]string{"agent", "--state-dir", state}, c.args...)...)
			require.ErrorContains(t, err, c.says)
			require.NoDirExists(t, state, "what is refused leaves nothing behind")
		})
	}
}
