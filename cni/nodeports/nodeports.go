// Package nodeports programs the node ports and the external addresses of services, and the host ports of
// pods, in nftables. Each port of a service leads to its cluster address or, if it is local, to the endpoints
// on the node. A host port leads to its pod. The package has one table of its own, and touches no other. It knows neither the bridge nor the network
// behind the link.
//
// Rules look ports up in maps, so neither their number nor the work for a packet depends on the number
// of services. A changed port changes its elements of the maps and nothing else. Only the set of ranges of
// clients is slower if it is larger, for connections to ports that have ranges.
//
// Network policies of pods judge these connections by their source, which is never an address that a
// policy allows because the pod is on the node.
package nodeports

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
)

// TableName is the name of the nftables table, of the family ip.
const TableName = "coe-bridge-node-ports"

// Slots is how many endpoints of a local port on a node can serve. Each slot of a port with several
// endpoints leads to one, and endpoints share the slots evenly if their number divides this one.
const Slots = 60

// Port is a port on which the node answers for a service.
type Port struct {
	// Address is an external address of the service, IPv4; zero for every address of the node.
	Address  netip.Addr
	Protocol string // "tcp", "udp", "sctp"
	Number   uint16
	Service  netip.AddrPort // the cluster address of the service, IPv4
	// Restricted: only clients in Sources reach the port, by Address.
	Restricted bool
	Sources    []netip.Prefix
	// Local: all clients except the node's own programs reach Endpoints, and see no answer if there are
	// none. Sticky: a client keeps its endpoint while the endpoints stay the same.
	Local, Sticky bool
	Endpoints     []netip.AddrPort // on this node, IPv4
}

// String returns the port for messages.
func (p Port) String() string {
	if p.Address.IsValid() {
		return fmt.Sprintf("external address %s %s %d", p.Address, p.Protocol, p.Number)
	}
	return fmt.Sprintf("node port %s %d", p.Protocol, p.Number)
}

// Config configures a Table.
type Config struct {
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// Link is the link to the pod network. EgressLinks are further links by which packets of pods come in: a name that
	// ends in * means every link whose name begins so.
	Link, EgressLinks string
}

// Place is where a node is in the pod network.
type Place struct {
	// Edge is the source address of connections of nodes and pods to endpoints.
	Edge netip.Addr
	// Network has the addresses of all nodes in the pod network. Traffic from there has already been
	// through a service, and is not led to another one.
	Network netip.Prefix
	// Inside has the addresses of pods and services.
	Inside []netip.Prefix
	// ByGateways has the addresses of pods whose answers leave the network by gateways, IPv4. So they must
	// see Edge instead of clients outside.
	ByGateways []netip.Prefix
	// Node is the source address of connections of the node's programs to host ports.
	Node netip.Addr
	// HostPorts is set if pods may have host ports: only then the table has rules for them.
	HostPorts bool
}

// sameRules reports whether two nodes have the same rules.
func (p Place) sameRules(o Place) bool {
	return p.Edge == o.Edge && p.Network == o.Network && p.HostPorts == o.HostPorts && (p.Node == o.Node || !p.HostPorts) &&
		slices.Equal(p.ByGateways, o.ByGateways)
}

// Ports are all ports on which a node answers.
type Ports struct {
	Services []Port
	// Hosts are served only if Place.HostPorts is set. If they are unknown, the table keeps its host ports.
	Hosts        []HostPort
	HostsUnknown bool
}

// Table is the nftables table. It remembers what it has written, and reads the table only if
// nftables was changed by others. Only one goroutine at a time may use it.
type Table struct {
	cfg   Config
	place Place
	// have has the elements of the table; nil if they are unknown, or if the table is not as the
	// package creates it. generation is that of nftables for which have holds.
	have       elements
	generation uint32
	// unforgotten are the ports of UDP that have changed since their connections were last forgotten; nil
	// for all ports.
	unforgotten map[portKey]bool
	// found is set if there was a table or a port since New. Otherwise connections to these ports are those of
	// another program.
	found   bool
	current bool // see Current
}

// New returns a Table.
func New(cfg Config) *Table { return &Table{cfg: cfg} }

// Current reports whether the last Sync has written what it was given, without invalid ports and endpoints.
func (t *Table) Current() bool { return t.current }

// Sync makes a node answer on exactly these ports, and reports whether it changed anything. nodes
// are the addresses of all nodes. Without ports there is no table. An invalid port or endpoint is an
// error, and the others are served.
//
// Open connections continue. UDP has none, so clients of a changed UDP port go to its current
// endpoints at once.
func (t *Table) Sync(place Place, ports Ports, nodes []netip.Addr) (changed bool, err error) {
	if !place.HostPorts {
		ports.Hosts, ports.HostsUnknown = nil, false
	}
	want, invalid := elementsOf(ports, nodes)
	if !place.sameRules(t.place) {
		t.have = nil
	}
	t.place = place
	changed, err = t.sync(want, len(ports.Services) == 0 && len(ports.Hosts) == 0, ports.HostsUnknown)
	t.current = err == nil
	if err == nil && t.found {
		err = t.forget(want)
	}
	return changed, errors.Join(err, invalid)
}

// sync makes the table have these elements, or removes it. With keepHosts it adds the host ports that the table has
// to want, and keeps a table that has some.
func (t *Table) sync(want elements, remove, keepHosts bool) (changed bool, err error) {
	now, err := generation(t.cfg.Netns)
	if err != nil {
		return false, err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(t.cfg.Netns)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	exists, err := t.reread(c, now)
	if err != nil {
		return false, err
	}
	before := t.have
	if keepHosts && before.copyHosts(want) {
		remove = false
	}
	if remove && !exists || !remove && before != nil && maps.Equal(before, want) {
		t.generation = now
		return false, nil
	}
	t.have = nil // unknown until everything is written
	t.found = true
	t.noteChanged(before, want)
	commits, err := t.write(c, before, want, remove)
	if err != nil {
		return true, fmt.Errorf("write nftables table %s: %w", TableName, err)
	}
	// If nobody else has written meanwhile, the table is known.
	if after, err := generation(t.cfg.Netns); err == nil && after == now+commits && !remove {
		t.have, t.generation = want, after
	}
	return true, nil
}

// reread reads the table unless its content is known for this generation. It reports whether the table exists.
func (t *Table) reread(c *nftables.Conn, now uint32) (exists bool, err error) {
	if t.have != nil && t.generation == now {
		return true, nil
	}
	t.have, exists, err = t.read(c)
	return exists, err
}

// read returns the elements of the table, nil if it is not as the package creates it, and whether
// the table exists.
func (t *Table) read(c *nftables.Conn) (have elements, exists bool, err error) {
	all, err := c.ListTablesOfFamily(table().Family)
	if err != nil {
		return nil, false, fmt.Errorf("list nftables tables: %w", err)
	}
	if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == TableName }) {
		return nil, false, nil
	}
	t.found = true
	whole, err := t.hasRules(c)
	if err != nil || !whole {
		return nil, true, err
	}
	have = elements{}
	for _, set := range sets() {
		list, err := c.GetSetElements(set)
		if err != nil {
			return nil, true, fmt.Errorf("list nftables set %s: %w", set.Name, err)
		}
		for _, e := range list {
			have[key{set.Name, string(e.Key) + string(e.KeyEnd)}] = string(e.Val)
		}
	}
	return have, true, nil
}

// maxChanges is how many elements one transaction changes at most: its messages must fit into the
// buffer of a socket, and the elements of a set into an attribute of 64 KiB.
const maxChanges = 500

// write changes the table from one content to another, nil for unknown, or removes it. It returns
// the number of its transactions.
func (t *Table) write(c *nftables.Conn, have, want elements, remove bool) (commits uint32, err error) {
	if remove {
		c.DelTable(table())
		return 1, c.Flush()
	}
	if have == nil {
		if err := t.create(c); err != nil {
			return 0, err
		}
		commits++
	}
	for _, changes := range batches(have.diff(want), maxChanges) {
		for _, set := range sets() {
			var remove, add []nftables.SetElement
			for _, k := range changes {
				if k.set != set.Name {
					continue
				}
				if _, has := have[k]; has {
					remove = append(remove, k.element(""))
				}
				if value, wanted := want[k]; wanted {
					add = append(add, k.element(value))
				}
			}
			if len(remove) > 0 {
				err = errors.Join(err, c.SetDeleteElements(set, remove))
			}
			if len(add) > 0 {
				err = errors.Join(err, c.SetAddElements(set, add))
			}
		}
		if err := errors.Join(err, c.Flush()); err != nil {
			return commits, err
		}
		commits++
	}
	return commits, nil
}

// create creates the table with its rules, and with empty sets. A table that is there is replaced.
func (t *Table) create(c *nftables.Conn) error {
	c.AddTable(table())
	c.DelTable(table())
	c.AddTable(table())
	for _, set := range sets() {
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
	}
	chains := t.chains()
	for _, chain := range chains {
		c.AddChain(chain.Chain)
	}
	for _, chain := range chains {
		for _, r := range chain.rules {
			c.AddRule(r.in(chain.Chain))
		}
	}
	return c.Flush()
}
