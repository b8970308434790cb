package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/unixctl"
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

// netvirtTunnels checks that OpenDaylight can find the node's tunnel address.
func (c *Config) netvirtTunnels(ctx context.Context) (string, error) {
	tunnels, err := c.Switch.Tunnels(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	const mend = "let coe-bridge agent --ovs-manager set it, or run ovs-vsctl set Open_vSwitch . other_config:local_ip=… with an address of this node"
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
