package dhcpclient

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// AskV6 asks for an address on eth0 of a pod, in the four messages of RFC 8415.
func AskV6(ctx context.Context, lab *ovnhost.Lab, pod string) (a netip.Addr, err error) {
	err = lab.In(pod, func() error {
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
