package odl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// Bridge is the one that the controller programs on a host.
const Bridge = "br-int"

const (
	// manageTimeout bounds the wait for switches and the controller to find each other.
	manageTimeout = 3 * time.Minute
	// manageInterval is how often is looked whether they have.
	manageInterval = time.Second
)

// await waits until f returns nil. Its last error tells what was missing.
func await(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, manageTimeout)
	defer cancel()
	tick := time.NewTicker(manageInterval)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// Managers is where the controller waits for switches, as they take it.
func (c *Controller) Managers() string { return fmt.Sprintf("tcp:%s:%d", ovnhost.Central, ovsdbPort) }

// Manage has the controller manage a host's switch, and waits until it does.
func (c *Controller) Manage(ctx context.Context, host *ovnhost.Host) error {
	_, err := host.VSCtl(ctx, "--no-wait",
		"set", "Open_vSwitch", ".", "other_config:local_ip="+host.Address.String(), "--",
		"set", "Bridge", Bridge, "protocols=OpenFlow13", "--",
		"set-manager", c.Managers())
	if err != nil {
		return fmt.Errorf("have the controller manage host %s: %w", host.Name, err)
	}
	return c.AwaitManaged(ctx, host)
}

// AwaitManaged waits until the controller has the host's database and programs its bridge,
// as it is for a time not when one of them was started.
func (c *Controller) AwaitManaged(ctx context.Context, host *ovnhost.Host) error {
	if err := await(ctx, func(ctx context.Context) error { return managed(ctx, host) }); err != nil {
		return fmt.Errorf("wait for the controller to manage host %s: %w; %s", host.Name, err, c.LastErrors())
	}
	return nil
}

func managed(ctx context.Context, host *ovnhost.Host) error {
	for _, table := range []string{"Manager", "Controller"} {
		out, err := host.VSCtl(ctx, "--bare", "--columns=is_connected", "list", table)
		if err != nil {
			return err
		}
		if !strings.Contains(out, "true") {
			return errors.New("the switch has no connection in its table " + table)
		}
	}
	return nil
}

// OpenFlow runs ovs-ofctl on a host's bridge and returns what it prints: "dump-flows" with
// "table=21", say, or "dump-groups".
func (c *Controller) OpenFlow(ctx context.Context, host *ovnhost.Host, command string, args ...string) (string, error) {
	bridge := "unix:" + filepath.Join(host.Dir, Bridge+".mgmt")
	argv := append([]string{"ovs-ofctl", "--protocols=OpenFlow13", "--no-stats", command, bridge}, args...)
	return c.Lab.Exec(ctx, host.Name, argv...)
}
