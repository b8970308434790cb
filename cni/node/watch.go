package node

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// The kernel's multicast groups: for links, addresses, routes and forwarding; and for
// nftables.
var (
	routeGroups  = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF}
	filterGroups = []uint{unix.NFNLGRP_NFTABLES}
)

// watchKernel notifies of changes in the kernel until ctx is done.
func (n *Node) watchKernel(ctx context.Context, changed chan<- struct{}) {
	ended := make(chan struct{}, 2)
	for _, source := range []struct {
		protocol int
		groups   []uint
	}{{unix.NETLINK_ROUTE, routeGroups}, {unix.NETLINK_NETFILTER, filterGroups}} {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				err := listen(ctx, n.cfg.Netns, source.protocol, source.groups, changed)
				if ctx.Err() != nil {
					return
				}
				n.log.Warn("lost the subscription to kernel changes; subscribing again", "err", err)
				pause(ctx, retryAfter)
			}
		}()
	}
	<-ended
	<-ended
}

// listen notifies of changes in some groups, and once at the start, because earlier changes
// were missed.
func listen(ctx context.Context, ns netns.NsHandle, protocol int, groups []uint, changed chan<- struct{}) error {
	socket, err := nl.SubscribeAt(ns, netns.None(), protocol, groups...)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, socket.Close)()
	notify(changed)
	for {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // messages were lost
			notify(changed)
		case err != nil:
			if ctx.Err() == nil {
				socket.Close()
			}
			return err
		case slices.ContainsFunc(messages, func(m syscall.NetlinkMessage) bool { return !ofPod(m) }):
			notify(changed)
		}
	}
}

// ofPod reports whether a message is about a pod's link only. There are many of them, and
// they do not concern the node's own connection.
func ofPod(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		value, ok := attribute(m, unix.SizeofIfInfomsg, unix.IFLA_GROUP)
		return ok && value == links.Group
	case unix.RTM_NEWNETCONF: // the setting for all links has no link
		const index, all = 1, ^uint32(0)
		value, ok := attribute(m, 4, index)
		return ok && value != all
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // every link has IPv6 routes
		const family, from = 0, 5
		return len(m.Data) > from && m.Data[family] == unix.AF_INET6 && m.Data[from] != protocol
	}
	return m.Header.Type == unix.RTM_DELNETCONF // RTM_DELLINK reports the same
}

// attribute returns the number in an attribute of a message.
func attribute(m syscall.NetlinkMessage, header int, kind uint16) (uint32, bool) {
	if len(m.Data) < header {
		return 0, false
	}
	attributes, err := nl.ParseRouteAttr(m.Data[header:])
	i := slices.IndexFunc(attributes, func(a syscall.NetlinkRouteAttr) bool { return a.Attr.Type == kind && len(a.Value) == 4 })
	if err != nil || i < 0 {
		return 0, false
	}
	return nl.NativeEndian().Uint32(attributes[i].Value), true
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // a notification is already pending
	}
}
