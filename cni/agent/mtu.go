package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// tunnelOverhead is the overhead in bytes of each kind of tunnel, without the outer IP
// header: the inner Ethernet header, the tunnel header with OVN's options, and UDP.
var tunnelOverhead = map[string]int{"geneve": 38, "vxlan": 30, "stt": 54}

const (
	headerIPv4 = 20
	headerIPv6 = 40
)

// MTU returns the MTU of pod links for records without one: the MTU of the link that carries
// the tunnels of the switch of a node, minus their overhead.
func MTU(ctx context.Context, s *ovs.Switch, node netns.NsHandle) (int, error) {
	tunnels, err := s.Tunnels(ctx)
	if err != nil {
		return 0, err
	}
	return TunnelMTU(node, tunnels)
}

// TunnelMTU returns the MTU that the node's tunnels leave to pods. If the switch may use
// several kinds of tunnels, the one with the largest overhead counts.
func TunnelMTU(node netns.NsHandle, tunnels ovs.Tunnels) (int, error) {
	first, _, _ := strings.Cut(tunnels.From, ",")
	address, err := netip.ParseAddr(first)
	if err != nil {
		return 0, fmt.Errorf("find the MTU for pods: read the tunnel address of the switch (external_ids:ovn-encap-ip, with OpenDaylight other_config:local_ip): %w", err)
	}
	under, err := links.MTUOf(node, address)
	if err != nil {
		return 0, fmt.Errorf("find the MTU for pods: %w", err)
	}
	overhead := 0
	for kind := range strings.SplitSeq(tunnels.Kinds, ",") {
		overhead = max(overhead, tunnelOverhead[kind])
	}
	if address.Is4() {
		return under - overhead - headerIPv4, nil
	}
	return under - overhead - headerIPv6, nil
}
