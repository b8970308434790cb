package hostile_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A bridge in development mode has a public password. It does not start at an address that other
// machines can reach.
func TestDevelopmentModeStaysOnLoopback(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, bridgetest.Program(t), "serve", "--dev", "--listen", listen).CombinedOutput()
		require.Error(t, err, "serve must not start with --listen %s", listen)
		require.NoError(t, ctx.Err(), "serve must end by itself with --listen %s", listen)
		require.Contains(t, string(out), "--dev without users is for loopback only")
	}
}
