package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/unixctl"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// managed checks that OpenDaylight manages the switch and programs its bridge.
func (c *Config) managed(ctx context.Context) (string, error) {
	if _, err := c.Switch.Settings(ctx); err != nil {
		return "", unknown(errNoSwitch)
	}
	if err := c.Switch.Managed(); err != nil {
		return "", failed(err, "check that OpenDaylight runs, that coe-bridge agent --ovs-manager names it, and that this node can connect to its ports 6640 and 6653; attached pods keep their network meanwhile")
	}
	return "it manages the switch and programs the bridge", nil
}

// noController checks that ovn-controller does not program the same bridge.
func (c *Config) noController(ctx context.Context) (string, error) {
	if _, err := unixctl.Ask(ctx, c.OVNRunDir, "ovn-controller", "connection-status"); err != nil {
		return "it does not run", nil
	}
	return "", failed(errors.New("it runs and programs the bridge of OpenDaylight"),
		"systemctl disable --now ovn-controller, and ovs-ofctl del-flows on the bridge; or run agent and doctor with --backend ovn")
}

// backends checks that a replica serves nodes with OpenDaylight.
func (c *Config) backends(ctx context.Context, url string) (string, error) {
	switch err := c.Uplink.CheckOrder(ctx, url); {
	case errors.Is(err, uplink.ErrServesOVN):
		return "", failed(err, "restart all replicas of the bridge with this order of backends; until then attached pods keep their network, and new pods wait")
	case err != nil:
		return "", unknown(errors.New("the bridge must send the records of this node first"))
	}
	return "the bridge serves nodes with OpenDaylight", nil
}

// netvirtTunnels checks that OpenDaylight can find the node's tunnel address.
func (c *Config) netvirtTunnels(ctx context.Context) (string, error) {
	tunnels, err := c.Switch.Tunnels(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	const mend = "let coe-bridge agent --ovs-manager set it, which waits for OpenDaylight, or run ovs-vsctl set Open_vSwitch . other_config:local_ip=… with an address of this node"
	if tunnels.From == "" {
		return "", failed(errors.New("the switch has no other_config:local_ip"), mend)
	}
	address, err := netip.ParseAddr(tunnels.From)
	if err != nil {
		return "", failed(fmt.Errorf("other_config:local_ip: %w", err), mend)
	}
	if _, err := links.MTUOf(c.Node, address); err != nil {
		return "", failed(fmt.Errorf("the tunnel address is not an address of this node: %w", err), mend)
	}
	return tunnels.Kinds + " from " + tunnels.From, nil
}
