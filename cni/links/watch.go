package links

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// subscribeAgain is the delay before a lost subscription is repeated.
const subscribeAgain = 2 * time.Second

// Watch notifies changed of changes in multicast groups of the kernel until ctx is done, and once at
// each start of the subscription, because earlier changes were missed. Messages that concerns refuses
// cause no notification.
func Watch(
	ctx context.Context, ns netns.NsHandle, log *slog.Logger, protocol int, groups []uint, concerns func(syscall.NetlinkMessage) bool, changed chan<- struct{},
) {
	for ctx.Err() == nil {
		err := listen(ctx, ns, protocol, groups, concerns, changed)
		if ctx.Err() != nil {
			return
		}
		log.Warn("lost the subscription to kernel changes; subscribing again", "err", err)
		again := time.NewTimer(subscribeAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

func listen(
	ctx context.Context, ns netns.NsHandle, protocol int, groups []uint, concerns func(syscall.NetlinkMessage) bool, changed chan<- struct{},
) error {
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
		case slices.ContainsFunc(messages, concerns):
			notify(changed)
		}
	}
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // a notification is already pending
	}
}

// OfPod reports whether a message is about a pod's link. There are many of them.
func OfPod(m syscall.NetlinkMessage) bool {
	if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK {
		return false
	}
	value, ok := Attribute(m, unix.SizeofIfInfomsg, unix.IFLA_GROUP)
	return ok && value == Group
}

// Attribute returns the number in an attribute of a message that has a header of this length.
func Attribute(m syscall.NetlinkMessage, header int, kind uint16) (uint32, bool) {
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
