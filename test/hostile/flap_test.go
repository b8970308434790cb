package hostile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

const (
	flapRounds = 6
	flapWithin = 20 * time.Second
)

// TestNorthboundServerFlaps kills the northbound server, starts it, and kills it again
// as soon as the bridge says that it is connected. The bridge says each time that the
// server is gone, without waiting for the resync interval.
func TestNorthboundServerFlaps(t *testing.T) {
	server := ovsdb.Start(t)
	b := bridgetest.Start(t, bridgetest.OVN(server.Endpoint()))
	connected := func(want bool) func() error {
		return func() error {
			if b.Status().Backend.Connected != want {
				return errors.New("the status says otherwise")
			}
			return nil
		}
	}
	b.AwaitSync(flapWithin)
	for range flapRounds {
		server.Kill(t)
		bridgetest.Await(t, time.Millisecond, flapWithin, "the status says that the server is gone", connected(false))
		server.Restart(t)
		bridgetest.Await(t, time.Millisecond, flapWithin, "the status says that the server is back", connected(true))
	}
	b.AwaitSync(flapWithin)
	require.Empty(t, b.Status().Problems)
}
