package csit

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// controller is a bridge to which the suites write, and which they kill.
type controller struct {
	t       *testing.T
	args    []string
	running *serve.Process
}

// roles are the roles of the users in variables/controller.resource.
var roles = map[string]string{"admin": "writer", "reader": "reader", "guest": "reader"}

// startController starts a bridge that ends with the test. The further arguments determine its
// backend.
func startController(t *testing.T, backend ...string) *controller {
	c := &controller{t: t}
	// After a restart the bridge has the same address.
	c.args = append([]string{"--listen", "127.0.0.1:" + ovsdb.FreePort(t), "--data-dir", t.TempDir(), "--auth-file", bridgetest.AuthFile(t, roles)}, backend...)
	require.NoError(t, c.start())
	t.Cleanup(func() {
		c.running.Kill()
		if t.Failed() {
			t.Logf("the last of the bridge's log:\n%s", c.running.Log().Last())
		}
	})
	return c
}

// variables returns the variables of the suites for this controller.
func (c *controller) variables() map[string]string {
	command := installPower(c.t, power{"/kill": c.kill, "/start": c.start})
	return map[string]string{
		"CONTROLLER": c.running.URL, "KILL_COMMAND": command("/kill"), "START_COMMAND": command("/start"),
	}
}

func (c *controller) kill() error {
	c.running.Kill()
	return nil
}

func (c *controller) start() error {
	running, err := serve.StartQuietly(context.WithoutCancel(c.t.Context()), bridgetest.Program(c.t), c.args...)
	if err == nil {
		c.running = running
	}
	return err
}

// onOVN returns the variables of a bridge with OVN.
func onOVN(t *testing.T) map[string]string {
	northbound, err := ovsdb.Run()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, northbound.Close()) })
	variables := startController(t, "--backend", "ovn", "--ovn-nb", northbound.Endpoint()).variables()
	variables["NORTHBOUND"] = northbound.Endpoint()
	maps.Copy(variables, backendPower(t, northbound.Kill, northbound.Restart, northbound.Wipe))
	return variables
}

// backendPower returns the commands that kill a backend, start it, and start it without data.
func backendPower(t *testing.T, kill, start, empty func() error) map[string]string {
	command := installPower(t, power{"/kill": kill, "/start": start, "/empty": empty})
	return map[string]string{
		"BACKEND_KILL_COMMAND": command("/kill"), "BACKEND_START_COMMAND": command("/start"), "BACKEND_EMPTY_COMMAND": command("/empty"),
	}
}
