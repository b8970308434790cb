package agent_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNodeWithoutSwitchInProcess: while the database of the switch does not answer, the node follows the endpoints of services and
// repairs its rules.
func TestNodeWithoutSwitchInProcess(t *testing.T) {
	t.Parallel()
	w, bridge, a := managedHost(t, ledByNode, "10.42.0.7")
	a.joins(nil)
	await(t, "the node is connected", func() error { return w.connected("coe0", "10.42.0.7") })

	database := w.lab.Host("host1").OVSDB
	require.NoError(t, database.Stop())
	t.Cleanup(func() { require.NoError(t, database.Cont()) })
	await(t, "the agent has noticed", func() error {
		if a.vswitch.Ready() == nil {
			return errors.New("it is connected to the switch")
		}
		return nil
	})
	links := w.onHost1("ip -o -4 addr")
	w.onHost1("nft delete table inet coe-bridge")
	bridge.serve(2, ledByNode, "10.42.0.8")
	await(t, "it has its rules and the new endpoint", func() error { return w.connected("coe0", "10.42.0.8") })
	require.ErrorContains(t, w.connected("coe0", "10.42.0.7"), "10.42.0.7")
	require.Equal(t, links, w.onHost1("ip -o -4 addr"))
}
