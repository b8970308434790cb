package links

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// PutDirect makes the directly connected routes of a pod's link those to some prefixes. Routes that others have made stay, and a pod
// that has such a route to a prefix keeps it.
func PutDirect(pod netns.NsHandle, name string, want []netip.Prefix) error {
	err := At(pod, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		have, err := routesBy(h, link, Protocol)
		if err != nil {
			return err
		}
		for _, r := range have {
			if r.Gw != nil || slices.Contains(want, PrefixOf(r.Dst)) {
				continue
			}
			if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		for _, to := range want {
			if err := addRoute(h, link, Route{Destination: to}); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change the routes of link %s: %w", name, err)
	}
	return nil
}
