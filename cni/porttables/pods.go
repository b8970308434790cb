package porttables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// MaxInPods is how many endpoints the ports of PodPorts have together. The kernel has a copy for each pod.
const MaxInPods = 2000

// PodPorts are the cluster addresses and external addresses to which programs of pods are led, in the network namespaces of the pods. They are the same in all
// pods, and of IPv4. The content of a namespace is never read, because programs of its pod can fill it. The methods that change ports must not be
// called at the same time as others; Create, Change and Remove may be called concurrently.
type PodPorts struct {
	table  *table
	inside []netip.Prefix // the addresses of services and pods
	count  int            // of endpoints
}

// NewPodPorts returns PodPorts without ports.
func NewPodPorts() *PodPorts { return &PodPorts{table: newTable(Config{}, nodeports.IPv4())} }

// PodChanges are changed ports. They stay valid when the ports change again.
type PodChanges struct {
	groups [][]nodeports.Change
	// udp has the endpoints of changed ports of UDP, by their address and number. all is set if these are all ports. inside has the
	// addresses of services and pods then.
	udp    map[netip.AddrPort][]netip.AddrPort
	all    bool
	inside []netip.Prefix
}

// Put adds or changes a port. Own and Local do not count. It returns false, and leaves the port out until the next Put or Replace, if the port is
// invalid, leads to no endpoints, or exceeds MaxInPods.
func (p *PodPorts) Put(port nodeports.Port) bool {
	port.Own, port.Local = true, false
	at, elements, err := p.table.family.Service(port)
	had := len(p.endpointsAt(at))
	if err != nil || len(port.Endpoints) == 0 || p.count-had+len(port.Endpoints) > MaxInPods {
		elements = nil
	}
	p.table.putService(at, elements)
	p.count += len(p.endpointsAt(at)) - had
	return elements != nil
}

// Remove removes a port with the address, the protocol and the number of another one.
func (p *PodPorts) Remove(port nodeports.Port) {
	if at, err := p.table.family.KeyOf(port.Address, port.Protocol, port.Number); err == nil {
		p.count -= len(p.endpointsAt(at))
		p.table.putService(at, nil)
	}
}

// Replace replaces all ports. inside has the addresses of services and pods.
func (p *PodPorts) Replace(ports []nodeports.Port, inside []netip.Prefix) {
	p.inside = inside
	stay := map[nodeports.PortKey]bool{}
	for _, port := range ports {
		if at, err := p.table.family.KeyOf(port.Address, port.Protocol, port.Number); err == nil {
			stay[at] = true
		}
	}
	for g := range p.table.want {
		if !stay[g.At] {
			p.count -= len(p.endpointsAt(g.At))
			p.table.putService(g.At, nil)
		}
	}
	for _, port := range ports {
		p.Put(port)
	}
}

// Take returns the changes since the last Take.
func (p *PodPorts) Take() PodChanges {
	c := PodChanges{groups: p.table.changes(), udp: map[netip.AddrPort][]netip.AddrPort{}}
	for g := range p.table.former {
		p.noteUDP(c, g.At)
	}
	clear(p.table.former)
	return c
}

// All returns all ports.
func (p *PodPorts) All() PodChanges {
	c := PodChanges{udp: map[netip.AddrPort][]netip.AddrPort{}, all: true, inside: p.inside}
	for _, g := range slices.SortedFunc(maps.Keys(p.table.want), nodeports.Group.Compare) {
		c.groups = append(c.groups, p.table.family.Diff(nil, p.table.want[g]))
		p.noteUDP(c, g.At)
	}
	return c
}

func (p *PodPorts) noteUDP(c PodChanges, at nodeports.PortKey) {
	if at.Protocol == unix.IPPROTO_UDP {
		c.udp[netip.AddrPortFrom(at.Address, at.Number)] = p.endpointsAt(at)
	}
}

// endpointsAt returns the endpoints of a port.
func (p *PodPorts) endpointsAt(at nodeports.PortKey) []netip.AddrPort {
	return nodeports.EndpointsOf(p.table.want[nodeports.Group{Set: nodeports.Services, At: at}])
}

// Empty reports whether nothing has changed.
func (c PodChanges) Empty() bool { return len(c.groups) == 0 && !c.all }

// inOne is how many batches are in one transaction, which must fit into the buffer of a socket.
const inOne = 16

// Create gives a network namespace exactly these ports, in one transaction if they are not too many: open connections continue.
func (p *PodPorts) Create(ns netns.NsHandle, all PodChanges) error {
	c, err := (&Table{cfg: Config{Netns: ns}}).open()
	if err != nil {
		return err
	}
	is := p.table.family.Table()
	c.AddTable(is)
	c.DelTable(is)
	if len(all.groups) > 0 {
		c.AddTable(is)
		for _, set := range p.table.family.PodSets() {
			if err := c.AddSet(set, nil); err != nil {
				return err
			}
		}
		chains := p.table.family.PodChains()
		for _, chain := range chains {
			c.AddChain(chain.Chain)
		}
		nodeports.AddRules(c, chains)
	}
	return p.write(c, ns, all)
}

// Change changes ports in a network namespace that has them all. If it fails, they possibly must be created again.
func (p *PodPorts) Change(ns netns.NsHandle, changes PodChanges) error {
	c, err := (&Table{cfg: Config{Netns: ns}}).open()
	if err != nil {
		return err
	}
	return p.write(c, ns, changes)
}

// RemoveAll removes all ports from a network namespace. inside has the addresses of services and pods.
func (p *PodPorts) RemoveAll(ns netns.NsHandle, inside []netip.Prefix) error {
	return p.Create(ns, PodChanges{all: true, inside: inside})
}

func (p *PodPorts) write(c *nftables.Conn, ns netns.NsHandle, changes PodChanges) error {
	for i, batch := range append(nodeports.Batches(changes.groups, maxChanges), nil) {
		if err := p.table.family.Put(c, batch); err != nil {
			return err
		}
		if batch != nil && (i+1)%inOne != 0 {
			continue
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("write nftables table %s: %w", nodeports.TableName, err)
		}
	}
	if len(changes.udp) == 0 && !changes.all {
		return nil
	}
	if err := changes.forget(ns); err != nil {
		return fmt.Errorf("forget the UDP connections of changed ports of services: %w", err)
	}
	return nil
}

// forget deletes connections of UDP to changed ports that do not lead to an endpoint. If all ports count, these are also the translated
// connections to other addresses of services, and those that lead to pods.
func (c PodChanges) forget(ns netns.NsHandle) error {
	tuples := []conntrack.Tuple{{Protocol: unix.IPPROTO_UDP}}
	if !c.all {
		tuples = nil
		for at := range c.udp {
			tuples = append(tuples, conntrack.Tuple{To: at.Addr(), Protocol: unix.IPPROTO_UDP, ToPort: at.Port()})
		}
	}
	return conntrack.Sweep(ns, unix.AF_INET, tuples, c.isStale)
}

// isStale reports whether a connection must be deleted. One to a port that leads to endpoints now, and that was not translated, is stale too.
func (c PodChanges) isStale(of conntrack.Connection) bool {
	if of.Protocol != unix.IPPROTO_UDP {
		return false
	}
	at, by := of.Sent.To, of.Answers.From
	endpoints, counts := c.udp[at]
	switch {
	case !counts:
		return at != by && slices.ContainsFunc(c.inside, func(p netip.Prefix) bool { return p.Contains(at.Addr()) || p.Contains(by.Addr()) })
	case at == by:
		return len(endpoints) > 0
	}
	return !slices.Contains(endpoints, by)
}
