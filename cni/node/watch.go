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

// The kernel's groups of news: of links, addresses and routes, and of what is
// forwarded; and of nftables.
var (
	routeGroups  = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_NETCONF}
	filterGroups = []uint{unix.NFNLGRP_NFTABLES}
)

// watchKernel rings when the kernel tells that something has changed, until ctx is done.
func (n *Node) watchKernel(ctx context.Context, bell chan<- struct{}) {
	ended := make(chan struct{}, 2)
	for _, source := range []struct {
		protocol int
		groups   []uint
	}{{unix.NETLINK_ROUTE, routeGroups}, {unix.NETLINK_NETFILTER, filterGroups}} {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				err := listen(ctx, n.cfg.Netns, source.protocol, source.groups, bell)
				if ctx.Err() != nil {
					return
				}
				n.log.Warn("the kernel's news are not heard, and are asked for again", "err", err)
				pause(ctx, retryAfter)
			}
		}()
	}
	<-ended
	<-ended
}

// listen rings for what the kernel tells of some groups, and once at first, as nobody
// has heard what was before.
func listen(ctx context.Context, ns netns.NsHandle, protocol int, groups []uint, bell chan<- struct{}) error {
	socket, err := nl.SubscribeAt(ns, netns.None(), protocol, groups...)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, socket.Close)()
	ring(bell)
	for {
		told, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // there was too much to be told
			ring(bell)
		case err != nil:
			if ctx.Err() == nil {
				socket.Close()
			}
			return err
		case slices.ContainsFunc(told, func(m syscall.NetlinkMessage) bool { return !ofPod(m) }):
			ring(bell)
		}
	}
}

// ofPod tells whether a message is about a pod's link alone. There are many, as pods
// come and go, and they mean nothing to the node's place.
func ofPod(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		value, ok := attribute(m, unix.SizeofIfInfomsg, unix.IFLA_GROUP)
		return ok && value == links.Group
	case unix.RTM_NEWNETCONF: // what is forwarded at all is told without a link
		const index, all = 1, ^uint32(0)
		value, ok := attribute(m, 4, index)
		return ok && value != all
	}
	return m.Header.Type == unix.RTM_DELNETCONF // that the link has gone is told too
}

// attribute is a number that a message has behind its header.
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

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it has rung already
	}
}
