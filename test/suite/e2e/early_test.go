package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// earlyRounds is so large that in some round a request arrives before the bridge has read all data.
const earlyRounds = 6

// TestWholeOrNotYet sends requests to bridges that were killed and have just started. The answer has
// all leases, or is 503. It never has only a part of the leases.
func TestWholeOrNotYet(t *testing.T) {
	if testing.Short() {
		t.Skip("needs child processes; make test runs it")
	}
	args := []string{"--data-dir", t.TempDir()}
	p := bridgetest.Serve(t, args...)
	r := rest{p.Client()}
	r.putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})
	r.putPods(t, numbered("shop", 300)...)
	await(t, converge, "all pods have an address", func() error { return leased(t, r, 300) })
	r.awaitSync(t, converge)
	trees := []string{"config/elan:elan-interfaces", "operational/coe-status:leases", "operational/coe-agent:interfaces"}
	whole := map[string]string{}
	for _, tree := range trees {
		status, answer, err := r.do(t.Context(), http.MethodGet, tree, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, answer)
		whole[tree] = settled(answer)
	}
	p.Kill()
	for range earlyRounds {
		for _, tree := range trees {
			askEarly(t, tree, whole[tree], append([]string{"--dev"}, args...))
		}
	}
}

// askEarly starts a bridge, repeats a GET of a tree until it succeeds, and kills the bridge.
func askEarly(t *testing.T, tree, whole string, args []string) {
	t.Helper()
	p, err := serve.StartQuietly(t.Context(), bridgetest.Program(t), args...)
	require.NoError(t, err)
	defer p.Kill()
	client := serve.NewClient(p.URL, converge)
	defer client.Close()
	for begun := time.Now(); time.Since(begun) < converge; {
		status, answer, err := rest{client}.do(t.Context(), http.MethodGet, tree, nil)
		require.NoError(t, err)
		if status == http.StatusServiceUnavailable {
			require.Contains(t, answer, "try again in a moment")
			continue
		}
		require.Equal(t, http.StatusOK, status, "%s: %s", tree, answer)
		require.Equal(t, whole, settled(answer), tree)
		return
	}
	require.Fail(t, tree+" is not answered")
}

// settled returns an answer without the leaves that depend on the backend. The backend is filled
// again after each start.
func settled(answer string) string {
	return strings.ReplaceAll(answer, `"confirmed":false`, `"confirmed":true`)
}
