package csit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/serve"
)

// controller is a bridge with OVN as the suites know it: they write to it, and cut its
// power.
type controller struct {
	t          *testing.T
	args       []string
	running    *serve.Process
	power      *httptest.Server
	northbound *ovsdb.Server
}

// roles are those of the users whom variables/controller.resource names.
var roles = map[string]string{"admin": "writer", "reader": "reader", "guest": "reader"}

// startController starts a bridge that ends with the test.
func startController(t *testing.T) *controller {
	c := &controller{t: t, northbound: ovsdb.Start(t)}
	c.args = []string{
		"--data-dir", t.TempDir(), "--auth-file", bridgetest.AuthFile(t, roles),
		"--backend", "ovn", "--ovn-nb", c.northbound.Endpoint(),
	}
	require.NoError(t, c.start())
	t.Cleanup(func() {
		c.running.Kill()
		if t.Failed() {
			t.Logf("the last of the bridge's log:\n%s", c.running.Log().Last())
		}
	})
	// From now on it is where it was.
	address, err := url.Parse(c.running.URL)
	require.NoError(t, err)
	c.args = append(c.args, "--listen", address.Host)
	c.power = httptest.NewServer(c)
	t.Cleanup(c.power.Close)
	return c
}

// variables are what the suites are told of it.
func (c *controller) variables() map[string]string {
	return map[string]string{
		"CONTROLLER":    c.running.URL,
		"NORTHBOUND":    c.northbound.Endpoint(),
		"KILL_COMMAND":  "curl -sSf -X POST " + c.power.URL + "/kill",
		"START_COMMAND": "curl -sSf -X POST " + c.power.URL + "/start",
	}
}

func (c *controller) start() error {
	running, err := serve.StartQuietly(context.WithoutCancel(c.t.Context()), bridgetest.Program(c.t), c.args...)
	if err == nil {
		c.running = running
	}
	return err
}

// ServeHTTP is the switch that the suites cut the power with.
func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/kill":
		c.running.Kill()
	case "/start":
		if err := c.start(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	default:
		http.NotFound(w, r)
	}
}
