package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
)

// Advertised sets eth0 of a pod down and up, without its addresses and routes, and returns the default route that the kernel of the pod
// learns by a router advertisement, which it solicits.
func (l *Lab) Advertised(ctx context.Context, pod string) (route string, err error) {
	const up = "ip -6 address flush dev eth0; ip link set eth0 down; sysctl -q -w net.ipv6.conf.eth0.accept_ra=2; ip link set eth0 up"
	if _, err := l.Exec(ctx, pod, "sh", "-c", up); err != nil {
		return "", err
	}
	err = Poll(ctx, func(ctx context.Context) error {
		route, err = l.Exec(ctx, pod, "ip", "-6", "route", "show", "default", "proto", "ra")
		if route = strings.TrimSpace(route); err == nil && route == "" {
			err = errors.New("no router has been advertised")
		}
		return err
	})
	return route, err
}

// AskDHCPv6 asks for an address on eth0 of a pod, in the four messages of RFC 8415.
func (l *Lab) AskDHCPv6(ctx context.Context, pod string) (a netip.Addr, err error) {
	err = inNamespace(l.Namespace(pod), func() error {
		client, err := nclient6.New("eth0")
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		advertise, err := client.Solicit(ctx)
		if err != nil {
			return fmt.Errorf("solicit: %w", err)
		}
		reply, err := client.Request(ctx, advertise)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		ia := reply.Options.OneIANA()
		if ia == nil || ia.Options.OneAddress() == nil {
			return fmt.Errorf("no address in %s", reply.Summary())
		}
		a, _ = netip.AddrFromSlice(ia.Options.OneAddress().IPv6Addr)
		return nil
	})
	return a, err
}
