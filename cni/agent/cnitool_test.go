package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/stretchr/testify/require"
)

// TestCNITool calls the plugin with cnitool, as a runtime without Kubernetes does: with a
// configuration list and cached results.
func TestCNITool(t *testing.T) {
	w := newWorld(t, patient, "host1")
	dir := t.TempDir()
	list, err := json.Marshal(object{"cniVersion": "1.1.0", "name": "coe", "plugins": []object{
		{"type": "coe-cni", "socket": w.agents["host1"].socket, "capabilities": object{"ips": true}},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "10-coe.conflist"), list, 0o600))
	run := func(ctx context.Context, args ...string) ([]byte, error) {
		t.Helper()
		program, err := cnitool()
		require.NoError(t, err)
		path, err := plugin()
		require.NoError(t, err)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "NETCONFPATH="+dir, "CNI_PATH="+filepath.Dir(path))
		return cmd.CombinedOutput()
	}
	tool := func(ctx context.Context, args ...string) []byte {
		t.Helper()
		out, err := run(ctx, args...)
		require.NoError(t, err, "%s", out)
		return out
	}
	pods := []*sandbox{w.sandbox("host1", "", "", "", "tool1"), w.sandbox("host1", "", "", "", "tool2")}
	for _, p := range pods {
		var answer current.Result
		require.NoError(t, json.Unmarshal(tool(t.Context(), "add", "coe", p.path()), &answer))
		p.address = addressOf(&answer)
		t.Cleanup(func() { tool(context.Background(), "del", "coe", p.path()) })
	}
	w.reach(pods...)
	for _, p := range pods {
		tool(t.Context(), "check", "coe", p.path())
	}
	tool(t.Context(), "status", "coe", pods[0].path())
	out, err := run(t.Context(), "gc", "coe", pods[0].path())
	require.Error(t, err, "the tool sends no list of valid attachments")
	require.Contains(t, string(out), "cni.dev/valid-attachments")
	// cnitool itself calls DEL for its cached results.
	tool(t.Context(), "del", "coe", pods[0].path())
	pods[0].nothingIn()
}
