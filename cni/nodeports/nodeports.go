// Package nodeports programs the node ports and the external addresses of services, and the host ports of
// pods, in nftables. Each port of a service leads to its endpoints: all of them or, if it is local, those on
// the node. A port without known endpoints leads to the cluster address, where the pod network balances. A host port
// leads to its pod. The package has one table of its own for each address family, and touches no other. It knows neither
// the bridge nor the network behind the link.
//
// Rules look ports up in maps, so neither their number nor the work for a packet depends on the number
// of services, except that a port with affinity has a chain. A changed port changes its elements of the maps,
// this chain, and nothing else. Only the set of ranges of clients is slower if it is larger, for connections to
// ports that have ranges.
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
	"time"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
)

// TableName is the name of the nftables tables, of the families ip and ip6.
const TableName = "coe-bridge-node-ports"

// MaxEndpoints is how many endpoints of a port can serve. The table has chains for each number of endpoints, and all
// rules together must fit into one message to the kernel.
const MaxEndpoints = 64

// Port is a port on which the node answers for a service. All its addresses are of one family.
type Port struct {
	// Address is an external address of the service, or its cluster address; unspecified for every address of the node of its
	// family.
	Address netip.Addr
	// Own: the node leads only its own programs. Address is the cluster address if the port is local. Otherwise it is the
	// address of a node, and Endpoints are those that programs reach by it; while nobody keeps them current, the port leads
	// nowhere, unless Place.Balances.
	Own bool
	// Inside: the node leads only clients inside the cluster: packets of pods that come in by Config.Link and Config.EgressLinks, and its own
	// programs. They reach Endpoints, on any node, not the endpoints of the Port without Inside. It has an effect only if Place.Balances.
	Inside   bool
	Protocol string // "tcp", "udp", "sctp"
	Number   uint16
	Service  netip.AddrPort // the cluster address of the service
	// Restricted: only clients in Sources reach the port, by Address. Sources can be of both families.
	Restricted bool
	Sources    []netip.Prefix
	// Local: Endpoints are those on this node. Without any, clients see no answer. Otherwise Endpoints are those on all
	// nodes. Without any, clients are led to Service. The node's own programs are led to Service, unless a port is Own.
	Local     bool
	Endpoints []netip.AddrPort
	// Affinity is how long a client keeps its endpoint after a connection; 0: no affinity. Fractions of a second do not count.
	Affinity time.Duration
	// Refuses: if the port is local and has no endpoints, clients are refused. Otherwise their packets are dropped, so that
	// they wait for an endpoint.
	Refuses bool
}

// String returns the port for messages.
func (p Port) String() string {
	switch {
	case p.Own:
		return fmt.Sprintf("%s port %d of %s for the node's programs", p.Protocol, p.Number, p.Address)
	case p.Inside:
		return fmt.Sprintf("%s port %d of %s for clients inside the cluster", p.Protocol, p.Number, p.Address)
	case p.Address == netip.IPv6Unspecified():
		return fmt.Sprintf("IPv6 node port %s %d", p.Protocol, p.Number)
	case p.Address.IsUnspecified():
		return fmt.Sprintf("node port %s %d", p.Protocol, p.Number)
	}
	return fmt.Sprintf("external address %s %s %d", p.Address, p.Protocol, p.Number)
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
	// IPv4 and IPv6 are where it is in each family.
	IPv4, IPv6 Addresses
	// Inside has the addresses of pods and services.
	Inside []netip.Prefix
	// HostPorts is set if pods may have host ports: only then the tables have rules for them.
	HostPorts bool
	// Balances is set if the pod network does not balance. Then all clients are led to endpoints, also programs of the node,
	// and pods that ask a cluster address.
	Balances bool
	// Isolated is set if namespaces are isolated: packets of pods come in, and leave to endpoints, by Config.EgressLinks. Then the
	// node leads nobody else, and Balances is set.
	Isolated bool
}

// Addresses are what a node needs to know of the pod network in one family.
type Addresses struct {
	// Edge is the source address of connections of nodes and pods to endpoints. Without it the node answers on no port of
	// the family.
	Edge netip.Addr
	// Network has the addresses of all nodes in the pod network. Traffic from there has already been
	// through a service, and is not led to another one.
	Network netip.Prefix
	// ByGateways has the addresses of pods whose answers leave the network by gateways. So they must
	// see Edge instead of clients outside.
	ByGateways []netip.Prefix
	// Node is the address of the node in the pod network: the source of connections of its programs to host ports.
	Node netip.Addr
	// Internal is an address of the node outside the pod network that is routed to its link too; zero for none. Answers to
	// further addresses do not come back, so programs with these as source get Node.
	Internal netip.Addr
}

// Hosts are the host ports of the pods on a node.
type Hosts struct {
	Ports []HostPort
	// Unknown: the tables keep their host ports.
	Unknown bool
}

// Table is the nftables tables of both families. It remembers what it has written, and reads a table only if
// nftables was changed by others. Only one goroutine at a time may use it.
type Table struct {
	cfg    Config
	tables []*table // of IPv4, of IPv6
	// invalid has what the tables leave out, by the port of a service.
	invalid map[string]error
	// generation is the generation of nftables at which the content of tables is known.
	generation uint32
	alone      bool // see Alone
}

// New returns a Table without ports.
func New(cfg Config) *Table {
	return &Table{cfg: cfg, tables: []*table{newTable(cfg, &ipv4), newTable(cfg, &ipv6)}, invalid: map[string]error{}}
}

// Current reports whether the last Sync has written what it was given, without invalid ports and endpoints. On a node that
// has IPv4, only IPv4 counts: what keeps IPv6 from being written does not end the service by IPv4.
func (t *Table) Current() bool {
	four, six := t.tables[0], t.tables[1]
	if !four.at.Edge.IsValid() && six.at.Edge.IsValid() {
		return six.current
	}
	return four.current
}

// Services returns the number of ports of services on which the node answers, without those for its own programs alone.
func (t *Table) Services() (n int) {
	for _, one := range t.tables {
		if one.wanted() {
			n += one.led
		}
	}
	return n
}

// Own returns the number of ports of services that lead only the node's own programs, each counted at every address.
func (t *Table) Own() (n int) {
	for _, one := range t.tables {
		if one.wanted() {
			n += one.count[services] - one.led
		}
	}
	return n
}

// Begin notes a generation of nftables at which the caller has begun to check tables of its own. If nobody has changed
// nftables since, only the Table changes it, until Alone reports otherwise.
func (t *Table) Begin(generation uint32) { t.alone = t.known() && t.generation == generation }

// Alone reports whether only the Table has changed nftables since the generation of Begin. So the tables of the caller
// are as it has left them.
func (t *Table) Alone() bool {
	now, err := Generation(t.cfg.Netns)
	t.alone = t.alone && err == nil && t.known() && t.generation == now
	return t.alone
}

// known reports whether the content of both tables is known.
func (t *Table) known() bool {
	return !slices.ContainsFunc(t.tables, func(one *table) bool { return !one.known })
}

// forgetAll notes that others may have changed the tables.
func (t *Table) forgetAll() {
	for _, one := range t.tables {
		one.known = false
	}
}

// of returns the table for an address; nil if the address is invalid.
func (t *Table) of(a netip.Addr) *table {
	for _, one := range t.tables {
		if one.family.has(a) {
			return one
		}
	}
	return nil
}

// Put adds or changes a port of a service. Its address, protocol, number and Inside identify it. Sync writes it. An invalid
// port or endpoint is an error of Sync.
func (t *Table) Put(p Port) {
	delete(t.invalid, p.String())
	one := t.of(p.Address)
	if one == nil {
		t.invalid[p.String()] = fmt.Errorf("%s: the address is invalid", p)
		return
	}
	at, elements, err := one.family.service(p)
	if err != nil {
		t.invalid[p.String()] = err
	}
	if p.Inside {
		one.set(group{insiders, at}, elements)
		return
	}
	one.putService(at, elements)
}

// Remove removes the port of a service that has the address, the protocol, the number and Inside of a Port. A port that is Own
// and one that is not replace each other, and neither removes the other.
func (t *Table) Remove(p Port) {
	delete(t.invalid, p.String())
	switch one, at := t.key(p); {
	case one == nil:
	case p.Inside:
		one.set(group{insiders, at}, nil)
	case p.Own != leads(one.want[group{services, at}]):
		one.putService(at, nil)
	}
}

// key returns the key of a port, and the table that has it; nil if the port is invalid.
func (t *Table) key(p Port) (*table, portKey) {
	one := t.of(p.Address)
	if one == nil {
		return nil, portKey{}
	}
	at, err := one.family.keyOf(p.Address, p.Protocol, p.Number)
	if err != nil {
		return nil, portKey{}
	}
	return one, at
}

// Replace replaces all ports of services. The work of the next Sync depends on those that differ.
func (t *Table) Replace(ports []Port) {
	stay := map[group]bool{}
	for _, p := range ports {
		if one, at := t.key(p); one != nil && p.Inside {
			stay[group{insiders, at}] = true
		} else if one != nil {
			stay[group{services, at}] = true
		}
	}
	clear(t.invalid)
	for _, one := range t.tables {
		for g := range one.want {
			switch {
			case stay[g]:
			case g.set == services:
				one.putService(g.at, nil)
			case g.set == insiders:
				one.set(g, nil)
			}
		}
	}
	for _, p := range ports {
		t.Put(p)
	}
}

// Sync makes a node answer on exactly the ports of services and these host ports, and reports whether it changed
// anything. nodes are the addresses of all nodes. Without ports of a family it has no table. An invalid port or endpoint is
// an error, and the others are served.
//
// Open connections continue. UDP has none, so clients of a changed UDP port go to its current
// endpoints at once.
func (t *Table) Sync(place Place, at Hosts, nodes []netip.Addr) (changed bool, err error) {
	if !place.HostPorts {
		at = Hosts{}
	}
	for i, addresses := range []Addresses{place.IPv4, place.IPv6} { // as tables
		one := t.tables[i]
		one.current = false
		if !at.Unknown {
			one.putHosts(at.Ports)
		}
		one.putNodes(nodes)
		one.move(addresses, place)
	}
	changed, err = t.sync(at.Unknown)
	for _, one := range t.tables {
		if one.current && one.found {
			err = errors.Join(err, one.forget())
		}
		err = errors.Join(err, one.invalidHosts)
	}
	for _, port := range slices.Sorted(maps.Keys(t.invalid)) { // in the same order each time
		err = errors.Join(err, t.invalid[port])
	}
	return changed, err
}

// sync makes the tables have the wanted content. After an error it tries each table alone, because a kernel can lack what
// one family needs. With keepHosts the host ports of a table that is read are wanted.
func (t *Table) sync(keepHosts bool) (changed bool, err error) {
	if changed, err = t.syncTables(t.tables, keepHosts); err == nil {
		return changed, nil
	}
	err = nil
	for _, one := range t.tables {
		also, failed := t.syncTables([]*table{one}, keepHosts)
		changed, err = changed || also, errors.Join(err, failed)
	}
	return changed, err
}

func (t *Table) syncTables(tables []*table, keepHosts bool) (changed bool, err error) {
	now, err := Generation(t.cfg.Netns)
	if err != nil {
		return false, err
	}
	if now != t.generation {
		t.generation, t.alone = now, false
		t.forgetAll()
	}
	c, err := t.open()
	if err != nil {
		return false, err
	}
	var work []*table
	for _, one := range tables {
		if !one.known {
			t.alone = false
			if err := one.reread(c, keepHosts); err != nil {
				return false, err
			}
		}
		if one.differs() {
			work = append(work, one)
		} else {
			one.settle()
		}
	}
	if len(work) == 0 {
		return false, nil
	}
	for _, one := range work {
		one.found, one.known = true, false // unknown until everything is written
		one.noteChanged()
	}
	commits, err := write(c, work)
	if err != nil {
		return true, fmt.Errorf("write nftables table %s: %w", TableName, err)
	}
	for _, one := range work {
		one.settle()
	}
	// If nobody else has written meanwhile, the tables are known.
	if t.generation, err = Generation(t.cfg.Netns); err != nil || t.generation != now+commits {
		t.forgetAll()
	}
	return true, nil
}

// hold gives a socket space for a transaction with all rules, and for the answers to it. The kernel repeats each
// rule, and acknowledges each message.
func hold(c *mdlayher.Conn) error {
	return errors.Join(c.SetWriteBuffer(4<<20), c.SetReadBuffer(8<<20), c.SetDeadline(time.Now().Add(answerWithin)))
}

// answerWithin is how long the kernel may take for a transaction. After some errors the library waits for answers that do not come.
const answerWithin = 30 * time.Second

func (t *Table) open() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(t.cfg.Netns)), nftables.WithSockOptions(hold))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return c, nil
}

// refreshEvery is how much longer a Refresh must last than the one before to be written.
const refreshEvery = 5 * time.Second

// Refresh says until when the endpoints of ports that are not local are current. From then on, unless Place.Balances, clients of these ports
// are led to the cluster address, and programs of the node to the address that they ask: an endpoint on another node can have ended, and its address can belong to
// another pod. The kernel keeps the time, so nothing depends on the process. A new table is not fresh.
func (t *Table) Refresh(until time.Time) error {
	lasts := time.Until(until)
	due := slices.DeleteFunc(slices.Clone(t.tables), func(one *table) bool {
		return !one.known || !one.whole || one.dated == 0 || until.Sub(one.freshUntil) < refreshEvery
	})
	if len(due) == 0 || lasts <= 0 {
		return nil
	}
	c, err := t.open()
	if err != nil {
		return err
	}
	for _, one := range due {
		err = errors.Join(err, one.refresh(c, lasts))
	}
	if err := errors.Join(err, c.Flush()); err != nil {
		t.forgetAll()
		return fmt.Errorf("refresh nftables table %s: %w", TableName, err)
	}
	for _, one := range due {
		one.freshUntil = until
	}
	now, err := Generation(t.cfg.Netns)
	if err != nil || now != t.generation+1 {
		t.forgetAll()
	}
	t.generation = now
	return err
}
