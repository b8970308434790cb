package nic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

const (
	// retryAfter is the delay before a failed move is repeated.
	retryAfter = 2 * time.Second
	// quiet is how long a change waits for others: a network manager that has put an address on a NIC
	// may be about to add a route that needs it there. lastQuiet is the limit for all of them.
	quiet     = time.Second
	lastQuiet = 10 * time.Second
)

// Run settles the NICs that have joined a bridge, at once and after each change in the kernel or the
// switch, until ctx is done. It restores deleted rules of nftables at once. It leaves them where they are then. Network managers put addresses on a NIC
// after a boot, and when a lease is renewed; and the switch can remove the link of a bridge, and create it
// again.
func (m *Mover) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	kernel, rules := make(chan struct{}, 1), make(chan struct{}, 1)
	watching.Go(func() {
		links.Watch(ctx, m.cfg.Netns, m.log, unix.NETLINK_ROUTE, groups, concerns, kernel)
	})
	watching.Go(func() {
		links.Watch(ctx, m.cfg.Netns, m.log, unix.NETLINK_NETFILTER, []uint{unix.NFNLGRP_NFTABLES}, deletesRules, rules)
	})
	ports, stop := m.cfg.Switch.ListenNICs()
	defer stop()
	failure := fmt.Sprint(nil)
	for ctx.Err() == nil {
		taken, err := m.Settle(ctx)
		if len(taken) > 0 {
			m.log.Info("moved what NICs had to their bridges", "steps", texts(taken))
		}
		if is := fmt.Sprint(err); is != failure {
			failure = is
			if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				m.log.Error("a NIC is not where it should be", "err", err)
			}
		}
		retry := time.NewTimer(retryAfter)
		if err == nil {
			retry.Stop()
		}
		select {
		case <-ctx.Done():
		case <-kernel:
			await(ctx, kernel, rules)
		case <-rules:
		case <-ports:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// await waits until nothing has changed for a while, or something is urgent.
func await(ctx context.Context, changed, urgent <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, lastQuiet)
	defer cancel()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case <-changed:
			timer.Reset(quiet)
		case <-urgent:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func texts(steps []Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.String())
	}
	return all
}

// groups are the kernel's multicast groups for links, addresses and routes.
var groups = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}

// concerns reports whether a message can be about a NIC or a bridge. There are many about the links of pods,
// and routes that the kernel has made come with an address.
func concerns(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE:
		return len(m.Data) > routeProtocolAt && m.Data[routeProtocolAt] != unix.RTPROT_KERNEL
	case unix.RTM_DELROUTE:
		return false
	}
	return !links.OfPod(m)
}

// deletesRules reports whether a message of nftables is about something deleted from the table of the package.
func deletesRules(m syscall.NetlinkMessage) bool {
	switch m.Header.Type &^ (unix.NFNL_SUBSYS_NFTABLES << 8) {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
	default:
		return false
	}
	const tableOf = unix.NFTA_TABLE_NAME // the same attribute for chains and rules
	if len(m.Data) < nl.SizeofNfgenmsg {
		return false
	}
	attributes, err := nl.ParseRouteAttr(m.Data[nl.SizeofNfgenmsg:])
	return err == nil && slices.ContainsFunc(attributes, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == tableOf && unix.ByteSliceToString(a.Value) == tableName
	})
}
