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
//	17  leads it to the services of the port: its vpn-instance and its elan-instance, whose tags it adds
//	21  routes packets of a vpn-instance: to a group that loads the tag of the port into a register
//	36  takes packets from tunnels: packets of a vpn-instance have the label of a route as tunnel ID, and go to the group of the route
//	50  has the source addresses of an elan-instance: a tag of a port, and the tag of the elan-instance
//	51  has the destination addresses of an elan-instance: those on the switch lead to a port, the others to a tunnel, with a tunnel ID
//	52  leads other packets of an elan-instance to a group, which sends them to table 55 for each port, with the tag of the port as tunnel ID
//	220 sends a packet to the port whose tag is in register 6
const portTable, serviceTable, routeTable, tunnelTable, sourceTable, destinationTable, broadcastTable, outputTable = 0, 17, 21, 36, 50, 51, 52, 220

// The places of tags: in the metadata and in register 6.
const (
	portShift, portMask = 40, 0x0fffff0000000000
	elanMask            = 0x000000ffff000000
	vpnMask             = 0x0000000000fffffe

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
	if to, err := c.destination(ctx, elan, p.MAC); err != nil || to != port {
		return fmt.Sprintf("table %d has no flow to %s", destinationTable, p.MAC), err
	}
	for _, mac := range p.Neighbours {
		if lacks, err := c.lacksNeighbour(ctx, elan, mac); err != nil || lacks != "" {
			return lacks, err
		}
	}
	if lacks, err := c.lacksServices(ctx, p, port, elan); err != nil || lacks != "" {
		return lacks, err
	}
	outputs, err := c.outputs(ctx, port)
	if err != nil || !slices.Contains(outputs, p.Number) {
		return fmt.Sprintf("table %d has no flow to port %d", outputTable, p.Number), err
	}
	if heard, err := c.broadcasts(ctx, elan, port); err != nil || !heard {
		return fmt.Sprintf("the groups of table %d do not lead to port %d", broadcastTable, p.Number), err
	}
	return "", nil
}

// lacksNeighbour returns which flows of a neighbour in an elan-instance are missing. It is a port of the same switch.
func (c *Conn) lacksNeighbour(ctx context.Context, elan uint64, mac net.HardwareAddr) (string, error) {
	port, err := c.destination(ctx, elan, mac)
	if err != nil || port == 0 {
		return fmt.Sprintf("table %d has no flow to %s", destinationTable, mac), err
	}
	if of, err := c.elanTag(ctx, port, mac); err != nil || of != elan {
		return fmt.Sprintf("table %d has no flow from %s", sourceTable, mac), err
	}
	if joins, err := c.serves(ctx, port, elanMask, elan); err != nil || !joins {
		return fmt.Sprintf("table %d has no flow of the elan-instance from %s", serviceTable, mac), err
	}
	if outputs, err := c.outputs(ctx, port); err != nil || len(outputs) == 0 {
		return fmt.Sprintf("table %d has no flow to %s", outputTable, mac), err
	}
	return "", nil
}

// lacksServices returns which flows are missing by which packets from a port reach its elan-instance and its vpn-instance, and packets in
// the vpn-instance reach the port.
func (c *Conn) lacksServices(ctx context.Context, p Port, port, elan uint64) (string, error) {
	if joins, err := c.serves(ctx, port, elanMask, elan); err != nil || !joins {
		return fmt.Sprintf("table %d has no flow of the elan-instance from %s", serviceTable, p.MAC), err
	}
	for _, to := range p.Addresses {
		if !to.Is4() {
			continue
		}
		if joins, err := c.serves(ctx, port, vpnMask, 0); err != nil || !joins {
			return fmt.Sprintf("table %d has no flow of the vpn-instance from %s", serviceTable, p.MAC), err
		}
		if lacks, err := c.lacksRoute(ctx, to, port); err != nil || lacks != "" {
			return lacks, err
		}
	}
	return "", nil
}

// serves reports whether packets from a port get a tag in a place of the metadata; tag 0 stands for any.
func (c *Conn) serves(ctx context.Context, port, mask, tag uint64) (bool, error) {
	flows, err := c.Flows(ctx, serviceTable, Match{Metadata: Bits{port << portShift, portMask}})
	return slices.ContainsFunc(flows, func(f Flow) bool {
		writes := f.Writes.Value & f.Writes.Mask & mask
		return writes != 0 && (tag == 0 || writes == tag)
	}), err
}

// destination returns the tag of the port to which an elan-instance leads packets to a MAC address; 0 if it leads to none.
func (c *Conn) destination(ctx context.Context, elan uint64, mac net.HardwareAddr) (port uint64, err error) {
	flows, err := c.Flows(ctx, destinationTable, Match{Destination: mac})
	for _, f := range flows {
		if f.Metadata.Mask&elanMask == 0 || f.Metadata.Value&elanMask != elan {
			continue
		}
		if port := f.destination(); port != 0 {
			return port, err
		}
	}
	return 0, err
}

// destination returns the tag of the port to which a flow or a group leads; 0 if it leads to none. One that sets a tunnel ID
// leads to another switch, and loads the tag of the tunnel.
func (a Actions) destination() (port uint64) {
	if len(a.Tunnels) > 0 {
		return 0
	}
	for _, load := range a.Registers {
		if load.Register == portRegister {
			return load.Value >> registerShift
		}
	}
	return 0
}

// outputs returns the numbers of ports to which packets for the port with a tag go.
func (c *Conn) outputs(ctx context.Context, port uint64) (numbers []uint32, err error) {
	flows, err := c.Flows(ctx, outputTable, Match{Register6: Bits{port << registerShift, registerMask}})
	for _, f := range flows {
		numbers = append(numbers, f.Outputs...)
	}
	return numbers, err
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

// Stage is how far Netvirt is with a port.
type Stage int

// The stages.
const (
	Unknown  Stage = iota // it has no tag
	Tagged                // its elan-instance does not lead packets to it
	Led                   // a route to an IPv4 address of the port leads to it from the switch, and not from tunnels
	Complete              // it lacks nothing of this; it can have no route
	Reached               // the same, and a group of a route leads to it from tunnels
)

// Addresses are the addresses of ports, by their OpenFlow numbers.
type Addresses map[uint32][]netip.Addr

// Ports returns the stages of the ports that Netvirt has given a tag, by their numbers. Tunnels have a tag, and no elan-instance. A port
// without an IPv4 address among the addresses is never Led. No port is Led or Reached without addresses, and if routes
// cannot be read: then there is an error too.
func (c *Conn) Ports(ctx context.Context, addresses Addresses) (map[uint32]Stage, error) {
	flows, err := c.Flows(ctx, portTable, Match{})
	if err != nil {
		return nil, err
	}
	led, err := c.led(ctx)
	if err != nil {
		return nil, err
	}
	ports, tags, to := map[uint32]Stage{}, map[uint32]uint64{}, map[uint64][]netip.Addr{}
	for _, f := range flows {
		if f.InPort == 0 || f.Writes.Mask&portMask != portMask {
			continue
		}
		tag := f.Writes.Value & portMask >> portShift
		if ports[f.InPort] = Tagged; led[tag] {
			ports[f.InPort], tags[f.InPort] = Complete, tag
			to[tag] = append(to[tag], addresses[f.InPort]...) // a former port can still have the tag
		}
	}
	if addresses == nil {
		return ports, nil
	}
	routed, err := c.routed(ctx, to)
	if err != nil {
		return ports, err
	}
	for number, tag := range tags {
		ports[number] = routed[tag]
	}
	return ports, nil
}

// routed returns the stages of ports that have their elan-instances, by their tags. Routes are read only for a port to which a group
// leads that no flow from tunnels leads to.
func (c *Conn) routed(ctx context.Context, to map[uint64][]netip.Addr) (map[uint64]Stage, error) {
	groups, err := c.Groups(ctx)
	if err != nil {
		return nil, err
	}
	fromTunnels, err := c.fromTunnels(ctx)
	if err != nil {
		return nil, err
	}
	stages, local := map[uint64]Stage{}, map[uint64]bool{}
	for tag := range to {
		stages[tag] = Complete
	}
	for group, does := range groups {
		if tag := does.destination(); fromTunnels[group] {
			stages[tag] = Reached
		} else {
			local[tag] = true
		}
	}
	for tag, addresses := range to {
		for _, a := range addresses {
			if !a.Is4() || !local[tag] {
				continue
			}
			routes, err := c.Flows(ctx, routeTable, Match{IPv4: a})
			if err != nil {
				return nil, err
			}
			if leading := leading(routes, groups, tag); len(leading) > 0 && !anyOf(leading, fromTunnels) {
				stages[tag] = Led
			}
		}
	}
	return stages, nil
}

// leading returns the groups by which routes lead to a port.
func leading(routes []Flow, groups map[uint32]Actions, port uint64) (all []uint32) {
	for _, f := range routes {
		for _, g := range f.Groups {
			if groups[g].destination() == port {
				all = append(all, g)
			}
		}
	}
	return all
}

// fromTunnels returns the groups to which flows from tunnels lead.
func (c *Conn) fromTunnels(ctx context.Context) (map[uint32]bool, error) {
	flows, err := c.Flows(ctx, tunnelTable, Match{})
	groups := map[uint32]bool{}
	for _, f := range flows {
		for _, g := range f.Groups {
			groups[g] = true
		}
	}
	return groups, err
}

// anyOf reports whether one of the groups is in a set.
func anyOf(groups []uint32, set map[uint32]bool) bool {
	return slices.ContainsFunc(groups, func(g uint32) bool { return set[g] })
}

// led returns the tags of the ports to which elan-instances lead packets.
func (c *Conn) led(ctx context.Context) (map[uint64]bool, error) {
	flows, err := c.Flows(ctx, destinationTable, Match{})
	tags := map[uint64]bool{}
	for _, f := range flows {
		if tag := f.destination(); tag != 0 {
			tags[tag] = true
		}
	}
	return tags, err
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

// lacksRoute returns what the route to an address lacks to lead to a port, from the switch and from tunnels. Both go to the group of the
// route, which can lead to a former port. If Netvirt does not know the tunnel address of the switch when it computes the route, it never
// writes the flow for tunnels.
func (c *Conn) lacksRoute(ctx context.Context, to netip.Addr, port uint64) (string, error) {
	flows, err := c.Flows(ctx, routeTable, Match{IPv4: to})
	if err != nil || len(flows) == 0 {
		return fmt.Sprintf("table %d has no flow to %s", routeTable, to), err
	}
	groups, err := c.Groups(ctx)
	leading := leading(flows, groups, port)
	if err != nil || len(leading) == 0 {
		return fmt.Sprintf("table %d does not lead packets to %s to its port", routeTable, to), err
	}
	fromTunnels, err := c.fromTunnels(ctx)
	if err != nil || !anyOf(leading, fromTunnels) {
		return fmt.Sprintf("table %d has no flow from tunnels to %s", tunnelTable, to), err
	}
	return "", nil
}

// broadcasts reports whether broadcasts in an elan-instance go to a port, from ports of the switch and from tunnels.
func (c *Conn) broadcasts(ctx context.Context, elan, port uint64) (bool, error) {
	flows, err := c.Flows(ctx, broadcastTable, Match{Metadata: Bits{elan, elanMask}})
	if err != nil || len(flows) == 0 {
		return false, err
	}
	groups, err := c.Groups(ctx)
	for _, f := range flows {
		if !slices.Contains(tunnels(groups, f.Groups), port) {
			return false, err
		}
	}
	return true, err
}

// tunnels returns the tunnel IDs that groups set, and groups to which they lead.
func tunnels(groups map[uint32]Actions, of []uint32) (ids []uint64) {
	all := slices.Clone(of)
	for i := 0; i < len(all); i++ {
		one := groups[all[i]]
		ids = append(ids, one.Tunnels...)
		for _, next := range one.Groups {
			if !slices.Contains(all, next) {
				all = append(all, next)
			}
		}
	}
	return ids
}
