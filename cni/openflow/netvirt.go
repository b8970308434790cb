package openflow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Tables of Netvirt, the same in all of its releases:
//
//	0   gives a packet the tag of its port, in the metadata
//	21  routes packets of a vpn-instance: to a group that loads the tag of the port into a register
//	50  has the source addresses of an elan-instance: a tag of a port, and the tag of the elan-instance
//	51  has the destination addresses of an elan-instance
//	220 sends a packet to the port whose tag is in register 6
const portTable, routeTable, sourceTable, destinationTable, outputTable = 0, 21, 50, 51, 220

// The places of tags: in the metadata and in register 6.
const (
	portShift, portMask = 40, 0x0fffff0000000000
	elanMask            = 0x000000ffff000000

	portRegister, registerShift = 6, 8

	registerMask = 0x0fffff00 // the other bits have the index of a service, and the type of the port
)

// Port is a port of a pod on a switch that Netvirt programs.
type Port struct {
	Number    uint32 // OpenFlow port number
	MAC       net.HardwareAddr
	Addresses []netip.Addr
	// Neighbours are the MAC addresses that the pod sends to without a router, beside the pods of its elan-instance.
	Neighbours []net.HardwareAddr
}

// Lacks returns which flows to a pod the switch does not have; empty if it has all. Flows of a former port with the same addresses do
// not count: Netvirt can leave them behind. IPv6 addresses are not looked for.
func (c *Conn) Lacks(ctx context.Context, p Port) (string, error) {
	port, err := c.portTag(ctx, p.Number)
	if err != nil || port == 0 {
		return fmt.Sprintf("table %d has no flow for port %d", portTable, p.Number), err
	}
	elan, err := c.elanTag(ctx, port, p.MAC)
	if err != nil || elan == 0 {
		return fmt.Sprintf("table %d has no flow from %s", sourceTable, p.MAC), err
	}
	for _, to := range append([]net.HardwareAddr{p.MAC}, p.Neighbours...) {
		flows, err := c.Flows(ctx, destinationTable, Match{Destination: to})
		if err != nil || !slices.ContainsFunc(flows, func(f Flow) bool { return f.Metadata.Mask&elanMask != 0 && f.Metadata.Value&elanMask == elan }) {
			return fmt.Sprintf("table %d has no flow to %s", destinationTable, to), err
		}
	}
	for _, to := range p.Addresses {
		if !to.Is4() {
			continue
		}
		leads, err := c.routes(ctx, to, port)
		if err != nil || !leads {
			return fmt.Sprintf("table %d has no flow to %s", routeTable, to), err
		}
	}
	flows, err := c.Flows(ctx, outputTable, Match{Register6: Bits{port << registerShift, registerMask}})
	if err != nil || !slices.ContainsFunc(flows, func(f Flow) bool { return slices.Contains(f.Outputs, p.Number) }) {
		return fmt.Sprintf("table %d has no flow to port %d", outputTable, p.Number), err
	}
	return "", nil
}

// portTag returns the tag of a port, 0 if it has none yet.
func (c *Conn) portTag(ctx context.Context, number uint32) (uint64, error) {
	flows, err := c.Flows(ctx, portTable, Match{InPort: number})
	for _, f := range flows {
		if f.Writes.Mask&portMask == portMask {
			return f.Writes.Value & portMask >> portShift, err
		}
	}
	return 0, err
}

// elanTag returns the tag of the elan-instance that has a port with a MAC address, in its place in the metadata; 0 if none has it yet.
func (c *Conn) elanTag(ctx context.Context, port uint64, mac net.HardwareAddr) (uint64, error) {
	flows, err := c.Flows(ctx, sourceTable, Match{Source: mac})
	for _, f := range flows {
		if f.Metadata.Mask&portMask == portMask && f.Metadata.Value&portMask>>portShift == port {
			return f.Metadata.Value & f.Metadata.Mask & elanMask, err
		}
	}
	return 0, err
}

// routes reports whether the route to an address leads to a port.
func (c *Conn) routes(ctx context.Context, to netip.Addr, port uint64) (bool, error) {
	flows, err := c.Flows(ctx, routeTable, Match{IPv4: to})
	if err != nil || len(flows) == 0 {
		return false, err
	}
	groups, err := c.Groups(ctx)
	leads := func(a Actions) bool { return slices.Contains(a.Registers, Load{portRegister, port << registerShift}) }
	return slices.ContainsFunc(flows, func(f Flow) bool {
		return leads(f.Actions) || slices.ContainsFunc(f.Groups, func(g uint32) bool { return leads(groups[g]) })
	}), err
}
