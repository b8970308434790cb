package node

import (
	"context"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// The kernel's multicast groups: for links, addresses, routes, routing rules and forwarding; and for
// nftables.
var (
	routeGroups = []uint{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}
	filterGroups = []uint{unix.NFNLGRP_NFTABLES}
)

// watchKernel notifies of changes in the kernel, and of changes of nftables, until ctx is done.
func (n *Node) watchKernel(ctx context.Context, routes, filters chan<- struct{}) {
	var watching sync.WaitGroup
	for _, source := range []struct {
		protocol int
		groups   []uint
		changed  chan<- struct{}
	}{{unix.NETLINK_ROUTE, routeGroups, routes}, {unix.NETLINK_NETFILTER, filterGroups, filters}} {
		watching.Go(func() {
			links.Watch(ctx, n.cfg.Netns, n.log, source.protocol, source.groups, concerns, source.changed)
		})
	}
	watching.Wait()
}

// concerns reports whether a message can be about the node's own connection. There are many about the
// links of pods.
func concerns(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWNETCONF: // the setting for all links has no link
		const index, all = 1, ^uint32(0)
		value, ok := links.Attribute(m, 4, index)
		return !ok || value == all
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // every link has IPv6 routes
		const family, from = 0, 5
		return len(m.Data) <= from || m.Data[family] != unix.AF_INET6 || m.Data[from] == protocol
	case unix.RTM_NEWADDR: // each router advertisement repeats IPv6 addresses
		return len(m.Data) == 0 || m.Data[0] != unix.AF_INET6
	case unix.RTM_DELADDR: // every link has a link-local IPv6 address
		const family, scope = 0, 3
		return len(m.Data) <= scope || m.Data[family] != unix.AF_INET6 || m.Data[scope] != unix.RT_SCOPE_LINK
	case unix.RTM_DELNETCONF: // RTM_DELLINK reports the same
		return false
	}
	return !links.OfPod(m)
}
