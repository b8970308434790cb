package nodeports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
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
func NewPodPorts() *PodPorts { return &PodPorts{table: newTable(Config{}, &ipv4)} }

// PodChanges are changed ports. They stay valid when the ports change again.
type PodChanges struct {
	groups [][]change
	// udp has the endpoints of changed ports of UDP, by their address and number. all is set if these are all ports. inside has the
	// addresses of services and pods then.
	udp    map[netip.AddrPort][]netip.AddrPort
	all    bool
	inside []netip.Prefix
}

// Put adds or changes a port. Own and Local do not count. It returns false, and leaves the port out until the next Put or Replace, if the port is
// invalid, leads to no endpoints, or exceeds MaxInPods.
func (p *PodPorts) Put(port Port) bool {
	port.Own, port.Local = true, false
	at, elements, err := p.table.family.service(port)
	had := len(p.endpointsOf(at))
	if err != nil || len(port.Endpoints) == 0 || p.count-had+len(port.Endpoints) > MaxInPods {
		elements = nil
	}
	p.table.putService(at, elements)
	p.count += len(p.endpointsOf(at)) - had
	return elements != nil
}

// Remove removes a port with the address, the protocol and the number of another one.
func (p *PodPorts) Remove(port Port) {
	if at, err := p.table.family.keyOf(port.Address, port.Protocol, port.Number); err == nil {
		p.count -= len(p.endpointsOf(at))
		p.table.putService(at, nil)
	}
}

// Replace replaces all ports. inside has the addresses of services and pods.
func (p *PodPorts) Replace(ports []Port, inside []netip.Prefix) {
	p.inside = inside
	stay := map[portKey]bool{}
	for _, port := range ports {
		if at, err := p.table.family.keyOf(port.Address, port.Protocol, port.Number); err == nil {
			stay[at] = true
		}
	}
	for g := range p.table.want {
		if !stay[g.at] {
			p.count -= len(p.endpointsOf(g.at))
			p.table.putService(g.at, nil)
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
		p.noteUDP(c, g.at)
	}
	clear(p.table.former)
	return c
}

// All returns all ports.
func (p *PodPorts) All() PodChanges {
	c := PodChanges{udp: map[netip.AddrPort][]netip.AddrPort{}, all: true, inside: p.inside}
	for _, g := range slices.SortedFunc(maps.Keys(p.table.want), group.compare) {
		c.groups = append(c.groups, p.table.changesOf(nil, p.table.want[g]))
		p.noteUDP(c, g.at)
	}
	return c
}

func (p *PodPorts) noteUDP(c PodChanges, at portKey) {
	if at.protocol == unix.IPPROTO_UDP {
		c.udp[netip.AddrPortFrom(at.address, at.number)] = p.endpointsOf(at)
	}
}

// endpointsOf returns the endpoints of a port.
func (p *PodPorts) endpointsOf(at portKey) (all []netip.AddrPort) {
	for _, e := range p.table.want[group{services, at}] {
		if e.set == endpoints {
			all = append(all, addressIn(e.value))
		}
	}
	return all
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
	is := p.table.family.nftable()
	c.AddTable(is)
	c.DelTable(is)
	if len(all.groups) > 0 {
		c.AddTable(is)
		for _, set := range p.table.family.sets() {
			if slices.Contains([]string{elsewhere, endpoints, clients}, set.Name) {
				if err := c.AddSet(set, nil); err != nil {
					return err
				}
			}
		}
		chains := p.table.family.ofPod()
		for _, chain := range chains {
			c.AddChain(chain.Chain)
		}
		addRules(c, chains)
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
	for i, batch := range append(batches(changes.groups, maxChanges), nil) {
		if err := p.table.putElements(c, batch); err != nil {
			return err
		}
		if batch != nil && (i+1)%inOne != 0 {
			continue
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("write nftables table %s: %w", TableName, err)
		}
	}
	if len(changes.udp) == 0 && !changes.all {
		return nil
	}
	if err := p.table.family.forgetOfPod(ns, changes); err != nil {
		return fmt.Errorf("forget the UDP connections of changed ports of services: %w", err)
	}
	return nil
}

// ofPod returns the chains for the namespace of a pod. A connection of TCP is led from its first packet on, so one that began before continues.
// The chain has the priority after the usual one: a proxy in the pod that takes its connections over comes first.
func (f *family) ofPod() []chain {
	to := f.toChain(elsewhere)
	all := []chain{{
		f.nat(own, nftables.ChainHookOutput, nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest+1)),
		[]rule{
			{"to endpoints, a connection of TCP that begins", slices.Concat(isTCP(expr.CmpOpEq), firstOfTCP(), to)},
			{"to endpoints", slices.Concat(isTCP(expr.CmpOpNeq), to)},
		},
	}}
	for n := 1; n <= MaxEndpoints; n++ {
		all = append(all, f.anyOf(n))
	}
	slices.SortFunc(all, func(a, b chain) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isTCP matches packets of TCP, or of other protocols.
func isTCP(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Cmp{Op: op, Register: first, Data: []byte{unix.IPPROTO_TCP}},
	}
}

// firstOfTCP matches packets with the flag SYN and without ACK.
func firstOfTCP() []expr.Any {
	const flags, syn, ack = 13, 0x02, 0x10
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{syn}},
	}
}

// forgetOfPod deletes connections of UDP to changed ports that do not lead to an endpoint. If all ports count, these are also the translated
// connections to other addresses of services, and those that lead to pods.
func (f *family) forgetOfPod(ns netns.NsHandle, changes PodChanges) error {
	tuples := []conntrack.Tuple{{Protocol: unix.IPPROTO_UDP}}
	if !changes.all {
		tuples = nil
		for at := range changes.udp {
			tuples = append(tuples, conntrack.Tuple{To: at.Addr(), Protocol: unix.IPPROTO_UDP, ToPort: at.Port()})
		}
	}
	return conntrack.Sweep(ns, f.number, tuples, changes.isStale)
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
