package odl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Bridge is the bridge that the controller programs on a host.
const Bridge = "br-int"

const (
	// manageTimeout bounds the wait until switches and controller are connected.
	manageTimeout = 3 * time.Minute
	// manageInterval is the interval of checks.
	manageInterval = time.Second
)

// await calls f until it returns nil. After the time limit it returns the last error of f, without one that f has returned because the
// time was over.
func await(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, manageTimeout)
	defer cancel()
	tick := time.NewTicker(manageInterval)
	defer tick.Stop()
	for {
		now := f(ctx)
		if now == nil {
			return nil
		}
		if err == nil || ctx.Err() == nil {
			err = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// Managers returns the controller's address in the form of a switch's managers.
func (c *Controller) Managers() string { return fmt.Sprintf("tcp:%s:%d", c.address, ovsdbPort) }

// Manage lets the controller manage a host's switch, and waits until it does. Then it sets the end of the host's tunnels: the controller
// loses tunnels that it creates earlier.
func (c *Controller) Manage(ctx context.Context, host *ovnhost.Host) error {
	_, err := host.VSCtl(ctx, "--no-wait", "set", "Bridge", Bridge, "protocols=OpenFlow13", "--", "set-manager", c.Managers())
	if err == nil {
		err = c.AwaitManaged(ctx, host)
	}
	if err == nil {
		_, err = host.VSCtl(ctx, "--no-wait", "set", "Open_vSwitch", ".", "other_config:local_ip="+host.Address.String())
	}
	if err != nil {
		return fmt.Errorf("have the controller manage host %s: %w", host.Name, err)
	}
	return nil
}

// AwaitManaged waits until the controller is connected to the host's database and bridge. After a restart of one of them that
// takes some time.
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

// OpenFlow runs ovs-ofctl on a host's bridge, and returns its output. Example arguments: "dump-flows" with "table=21", or
// "dump-groups".
func (c *Controller) OpenFlow(ctx context.Context, host *ovnhost.Host, command string, args ...string) (string, error) {
	bridge := "unix:" + filepath.Join(host.Dir, Bridge+".mgmt")
	argv := append([]string{"ovs-ofctl", "--protocols=OpenFlow13", "--no-stats", command, bridge}, args...)
	return c.Lab.Exec(ctx, host.Name, argv...)
}
