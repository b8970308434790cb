package hostile_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// The texts of entries cannot forge a row of a table, a line of a message or a command for a terminal,
// in any command and any format.
func TestNothingForgesATerminal(t *testing.T) {
	b := bridgetest.Start(t)
	const row = "\\nshop/evil   in sync   10.0.0.1\\u202eevil\\u2066\\u200f\\u2028"
	status, answer := b.Do(http.MethodPost, "/restconf/config/service:service-information", `{"services":[{
		"uid":"00000000-0000-4000-8000-000000000001","name":"web","network-NS":"shop","external-ip-address":["192.0.2.1"],
		"service-ports":[{"name":"`+row+`","port":80,"target-port":"`+row+`"}]}]}`)
	require.Equal(t, http.StatusNoContent, status, answer)
	for n, name := range []string{"pod" + row, "a\\u0085b", "a\\u202eb", "a\\u200bb", "a\\tb"} {
		status, answer := b.Do(http.MethodPost, "/restconf/config/pod:coe", fmt.Sprintf(`{"pods":[{
			"uid":"00000000-0000-4000-8000-00000000001%d","name":"%s","host-ip-address":"192.168.33.11"}]}`, n, name))
		require.Equal(t, http.StatusBadRequest, status, answer)
		require.Contains(t, answer, "name", "the answer names the leaf")
	}
	for _, args := range []string{
		"status", "get services", "get services -o json", "get services -o yaml", "get services --documents",
		"get services --documents -o json", "get problems", "get problems -o yaml", "get problems -o json",
	} {
		command := exec.CommandContext(t.Context(), bridgetest.Program(t), append(strings.Fields(args), "--server", b.URL(), "--user", serve.User)...)
		command.Env = append(command.Environ(), "COE_BRIDGE_PASSWORD="+serve.Password)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
		for _, r := range string(out) {
			require.True(t, unicode.IsPrint(r) || r == '\n', "%s: %U in %q", args, r, out)
		}
		for line := range strings.Lines(string(out)) {
			require.False(t, strings.HasPrefix(line, "shop/evil"), "%s: %s", args, out)
		}
	}
}
