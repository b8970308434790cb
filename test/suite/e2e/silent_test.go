package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestSilentBackend: the status reports a lost backend even if the bridge has nothing to write.
func TestSilentBackend(t *testing.T) {
	server := ovsdb.Start(t)
	b := bridgetest.Start(t, bridgetest.OVN(server.Endpoint()))
	b.AwaitSync(patience.Patience)
	server.Stop(t)
	require.Eventually(t, func() bool {
		st := b.Status()
		return !st.InSync && !st.Backend.Connected
	}, 2*patience.Patience, 50*time.Millisecond)
	server.Continue(t)
	b.AwaitSync(patience.Patience)
}
