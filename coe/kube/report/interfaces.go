package report

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Interface is what the annotation kube.InterfacesAnnotation says of one interface of a pod.
type Interface struct {
	Name    string `json:"name"`    // of the Netvirt interface
	Network string `json:"network"` // the elan-instance that it is on
	// IPs are its addresses, at most one of a family, each with the length of its
	// subnet's prefix.
	IPs      []netip.Prefix `json:"ips"`
	MAC      string         `json:"mac"`
	Gateways []netip.Addr   `json:"gateways,omitempty"` // one an address
	MTU      int            `json:"mtu,omitempty"`      // 0: as the node's network has it
	// Default tells that the pod's default routes go through the gateways. Beside
	// them and its subnet an interface has no routes.
	Default bool `json:"default,omitempty"`
}

// interfaces are those of the leases that are not released.
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

// Encode makes the annotation's value, the same bytes for the same interfaces. It
// is empty for none: then there is to be no annotation.
func Encode(all []Interface) string {
	if len(all) == 0 {
		return ""
	}
	value, err := json.Marshal(all)
	if err != nil { // nothing in an Interface fails to be written
		panic(fmt.Sprintf("report: encode interfaces: %v", err))
	}
	return string(value)
}
