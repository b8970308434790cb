package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// managed looks whether OpenDaylight manages the switch and programs its bridge.
func (c *Config) managed(ctx context.Context) (string, error) {
	if _, err := c.Switch.Settings(ctx); err != nil {
		return "", unknown(errNoSwitch)
	}
	if err := c.Switch.Managed(); err != nil {
		return "", failed(err, "see that OpenDaylight runs, that coe-bridge agent --ovs-manager names it, and that its ports 6640 and 6653 are reached from here; pods that are plugged in go on meanwhile")
	}
	return "it manages the switch, and programs the bridge", nil
}

// noController looks whether OVN works at the same bridge.
func (c *Config) noController(ctx context.Context) (string, error) {
	if _, err := ask(ctx, c.OVNRunDir, "ovn-controller", "connection-status"); err != nil {
		return "it does not run", nil
	}
	return "", failed(errors.New("it runs, and programs the bridge that is OpenDaylight's"),
		"systemctl disable --now ovn-controller, and ovs-ofctl del-flows on the bridge; or run agent and doctor with --backend ovn")
}

// netvirtTunnels looks whether OpenDaylight is told where the node's tunnels begin.
func (c *Config) netvirtTunnels(ctx context.Context) (string, error) {
	tunnels, err := c.Switch.Tunnels(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	const mend = "have coe-bridge agent --ovs-manager set it, or ovs-vsctl set Open_vSwitch . other_config:local_ip=…, an address of this node"
	if tunnels.From == "" {
		return "", failed(errors.New("the switch has no other_config:local_ip"), mend)
	}
	address, err := netip.ParseAddr(tunnels.From)
	if err != nil {
		return "", failed(fmt.Errorf("other_config:local_ip: %w", err), mend)
	}
	if _, err := links.MTUOf(c.Node, address); err != nil {
		return "", failed(fmt.Errorf("tunnels begin at an address that this node does not have: %w", err), mend)
	}
	return tunnels.Kinds + " from " + tunnels.From, nil
}
