package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// physical checks that the bridges of physical networks exist and have a NIC, and that OVN knows them.
func (c *Config) physical(ctx context.Context) (string, error) {
	if len(c.Physical.Bridges) == 0 {
		return "none", nil
	}
	bridges, err := c.Switch.Bridges(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	var found []string
	for _, network := range slices.Sorted(maps.Keys(c.Physical.Bridges)) {
		name := c.Physical.Bridges[network]
		bridge, exists := bridges[name]
		if !exists {
			return "", failed(fmt.Errorf("the switch has no bridge %s, which --physical-bridge names for %s", name, network),
				fmt.Sprintf("run ovs-vsctl add-br %s -- add-port %s NIC, with the NIC of the network", name, name))
		}
		if !slices.ContainsFunc(bridge.Ports, func(port string) bool { return port != name && !strings.HasPrefix(port, "patch-") }) {
			return "", warning(fmt.Errorf("bridge %s of physical network %s has no NIC", name, network), fmt.Sprintf("run ovs-vsctl add-port %s NIC", name))
		}
		mapped, err := c.Switch.BridgeOf(ctx, c.Physical.NameOf(network))
		if err != nil {
			return "", unknown(errNoSwitch)
		}
		if mapped != name {
			return "", failed(fmt.Errorf("OVN does not know bridge %s of physical network %s: external_ids:ovn-bridge-mappings has no %s", name, network, c.Physical.NameOf(network)),
				"start the agent with --physical-bridge, and see its log")
		}
		found = append(found, network+" by "+name)
	}
	return strings.Join(found, ", "), nil
}
