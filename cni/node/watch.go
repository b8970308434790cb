package node

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
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

// listen rings for whatever the kernel tells of some groups, and once at first, as
// nobody has heard what was before.
func listen(ctx context.Context, ns netns.NsHandle, protocol int, groups []uint, bell chan<- struct{}) error {
	socket, err := nl.SubscribeAt(ns, netns.None(), protocol, groups...)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, socket.Close)()
	for {
		ring(bell)
		if _, _, err := socket.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) { // too many to be told: ring
			if ctx.Err() == nil {
				socket.Close()
			}
			return err
		}
	}
}

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it has rung already
	}
}
