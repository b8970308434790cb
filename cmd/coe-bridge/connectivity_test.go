package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
)

// kubeconfigOf returns the path of a kubeconfig for an API server.
func kubeconfigOf(t *testing.T, server string) string {
	return file(t, "kubeconfig", fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "x",
"clusters": [{"name": "x", "cluster": {"server": %q}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`, server))
}

// A connectivity test that cannot be run ends with status 2, because 1 means that a check has failed.
func TestConnectivityCannotRun(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/nodes" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"kind": "NodeList", "apiVersion": "v1", "items": [
{"metadata": {"name": "a"}, "spec": {"unschedulable": true}},
{"metadata": {"name": "b"}, "spec": {"taints": [{"key": "full", "effect": "NoSchedule"}]}},
{"metadata": {"name": "c"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
{"metadata": {"name": "d", "labels": {"kubernetes.io/os": "windows"}}}]}`)
	}))
	t.Cleanup(api.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--kubeconfig", kubeconfigOf(t, api.URL)}, "no node can run the pods of the test: a is cordoned, b has the taint full, c is not ready, d is a Windows node"},
		{[]string{"--kubeconfig", kubeconfigOf(t, gone.URL)}, "connectivity test: list nodes: "},
		{[]string{"--kubeconfig", "/nowhere"}, "connect to Kubernetes: stat /nowhere: no such file or directory"},
		{[]string{"--skip", "dns,policy"}, "--skip policy: want one of same-node, other-node, mtu, "},
		{[]string{"--skip", "pod-start"}, "--skip pod-start: want one of "},
		{[]string{"--max-nodes", "0"}, "--max-nodes 0: want 1 or more"},
		{[]string{"--timeout", "0s"}, "want times above 0"},
		{[]string{"--outside", "192.0.2.1"}, "--outside 192.0.2.1: want HOST:PORT"},
		{[]string{"--nosuch"}, "unknown flag: --nosuch; coe-bridge connectivity test --help lists the flags"},
		{[]string{"shop"}, `connectivity test: "shop": want only flags`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			_, err := run(t, "", append([]string{"connectivity", "test"}, test.args...)...)
			require.ErrorContains(t, err, test.says)
			var ends output.Exit
			require.ErrorAs(t, err, &ends)
			require.Equal(t, 2, ends.Status)
		})
	}
	_, err := run(t, "", "connectivity", "tset")
	require.EqualError(t, err, "connectivity tset: unknown; want test (coe-bridge connectivity --help)")
	words, err := run(t, "", "__complete", "connectivity", "test", "--skip", "p")
	require.NoError(t, err)
	require.Contains(t, words, "policy-deny\n")
}

// The program writes the message of an error that has a status of its own.
func TestStatusOfAnError(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "connectivity", "test", "--max-nodes", "0")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Equal(t, "coe-bridge: connectivity test: --max-nodes 0: want 1 or more\n", string(out))
}
