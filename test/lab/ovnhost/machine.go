package ovnhost

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
)

// firstMachine is the address of a lab's first machine. The addresses of hosts come after it.
var firstMachine = Central.Next()

// maxMachines is the number of addresses from firstMachine on.
const maxMachines = 9

// AddMachine creates a network namespace with an address in the underlay, and without a switch: a machine for programs that hosts
// reach. It is the i-th machine of the lab; the first is 0. It returns the address.
func (l *Lab) AddMachine(ctx context.Context, i int, name string) (netip.Addr, error) {
	address, err := l.addMachine(ctx, i, name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("add machine %s: %w", name, err)
	}
	return address, nil
}

func (l *Lab) addMachine(ctx context.Context, i int, name string) (netip.Addr, error) {
	if !labName.MatchString(name) || i >= maxMachines {
		return netip.Addr{}, fmt.Errorf("machine %d: want a name of a host, and at most %d machines", i, maxMachines)
	}
	namespace, address := l.Namespace(name), nth(firstMachine, i)
	if err := l.addNamespace(ctx, namespace); err != nil {
		return address, err
	}
	if err := l.linkToUnderlay("m"+strconv.Itoa(i), namespace); err != nil {
		return address, fmt.Errorf("join the underlay: %w", err)
	}
	err := withLinks(namespace, func(h *netlink.Handle) error {
		if err := addAddress(h, hostLink, netip.PrefixFrom(address, underlayPrefix.Bits())); err != nil {
			return err
		}
		return setUp(h, hostLink)
	})
	if err != nil {
		return address, err
	}
	return address, softwareChecksums(ctx, namespace, hostLink)
}
