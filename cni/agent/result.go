package agent

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// The indexes of the interfaces in a result.
const (
	onNode = iota
	inPod
)

// result returns the CNI result of a plan: the links as they are, and the addresses and
// routes of the plan.
func (p plan) result() (*current.Result, error) {
	node, err := links.Glance(p.pair.Node, p.pair.Port)
	if err != nil {
		return nil, err
	}
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			onNode: {Name: p.pair.Port, Mac: node.MAC.String(), Mtu: node.MTU},
			inPod:  {Name: p.pair.Name, Mac: p.pair.MAC.String(), Mtu: p.pair.MTU, Sandbox: p.at.Netns},
		},
		DNS: p.at.network.DNS,
	}
	for _, a := range p.record.Addresses {
		r.IPs = append(r.IPs, &current.IPConfig{Interface: current.Int(inPod), Address: ipNet(a.Prefix()), Gateway: ip(a.Gateway)})
	}
	for _, route := range p.pair.Routes {
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(route.Destination), GW: ip(route.Gateway)})
	}
	return r, nil
}

func ip(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// compare fails if a link differs from what was configured, and names the difference.
func compare(is links.Link, mac net.HardwareAddr, addresses []netip.Prefix, routes []links.Route) error {
	switch {
	case !bytes.Equal(is.MAC, mac):
		return fmt.Errorf("its MAC address is %s, want %s", is.MAC, mac)
	case !is.Up:
		return fmt.Errorf("it is down")
	}
	for _, a := range addresses {
		if !slices.Contains(is.Addresses, a) {
			return fmt.Errorf("address %s is missing", a)
		}
	}
	for _, r := range routes {
		if !slices.Contains(is.Routes, r) {
			return fmt.Errorf("the route to %s is missing", r.Destination)
		}
	}
	return nil
}
