package report

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Interface is an interface of a pod in the annotation kube.InterfacesAnnotation.
type Interface struct {
	Name    string `json:"name"`    // name of the Netvirt interface
	Network string `json:"network"` // name of its elan-instance
	// IPs are its addresses, at most one per family, each with the prefix length of its
	// subnet.
	IPs      []netip.Prefix `json:"ips"`
	MAC      string         `json:"mac"`
	Gateways []netip.Addr   `json:"gateways,omitempty"` // one per address
	MTU      int            `json:"mtu,omitempty"`      // 0: the node decides
	// Default is true if the pod's default routes use the gateways. An interface has no other
	// routes besides those and its subnet.
	Default bool `json:"default,omitempty"`
}

// interfaces returns the interfaces of the active leases.
func interfaces(leases []*coe.Lease, mtu int) []Interface {
	var all []Interface
	for _, l := range leases {
		if l.Released == 0 && len(l.Addresses) > 0 {
			all = append(all, newInterface(l, mtu))
		}
	}
	return all
}

func newInterface(l *coe.Lease, mtu int) Interface {
	i := Interface{
		Name: l.Name, Network: netvirt.ELANName(l.Node, l.Namespace),
		MAC: l.MAC, MTU: mtu, Default: l.Primary,
	}
	for _, a := range l.Addresses {
		i.IPs = append(i.IPs, netip.PrefixFrom(a.Address, a.Network.Bits()))
		if a.Gateway.IsValid() {
			i.Gateways = append(i.Gateways, a.Gateway)
		}
	}
	return i
}

// Encode returns the annotation's value, the same bytes for the same interfaces. It is empty for
// no interfaces: then there is no annotation.
func Encode(all []Interface) string {
	if len(all) == 0 {
		return ""
	}
	value, err := json.Marshal(all)
	if err != nil { // an Interface always encodes
		panic(fmt.Sprintf("report: encode interfaces: %v", err))
	}
	return string(value)
}
