// Package porttables makes the nftables tables in the kernel agree with the ports of services and pods, as package nodeports encodes them. A Table
// has the tables of a node, one for each address family, and PodPorts have an IPv4 table in the network namespace of each pod. The package
// writes what differs, deletes the connections that no longer lead where they should, and touches no other table. It knows neither the bridge nor
// the network behind the link.
package porttables

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

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// Config configures a Table.
type Config struct {
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// Link is the link to the pod network. EgressLinks are further links by which packets of pods come in: a name that
	// ends in * means every link whose name begins so.
	Link, EgressLinks string
}

// Hosts are the host ports of the pods on a node.
type Hosts struct {
	Ports []nodeports.HostPort
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
	return &Table{cfg: cfg, tables: []*table{newTable(cfg, nodeports.IPv4()), newTable(cfg, nodeports.IPv6())}, invalid: map[string]error{}}
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
			n += one.count[nodeports.Services] - one.led
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
		if one.family.Has(a) {
			return one
		}
	}
	return nil
}

// Put adds or changes a port of a service. Its address, protocol, number and Inside identify it. Sync writes it. An invalid
// port or endpoint is an error of Sync.
func (t *Table) Put(p nodeports.Port) {
	delete(t.invalid, p.String())
	one := t.of(p.Address)
	if one == nil {
		t.invalid[p.String()] = fmt.Errorf("%s: the address is invalid", p)
		return
	}
	at, elements, err := one.family.Service(p)
	if err != nil {
		t.invalid[p.String()] = err
	}
	if p.Inside {
		one.set(nodeports.Group{Set: nodeports.Insiders, At: at}, elements)
		return
	}
	one.putService(at, elements)
}

// Remove removes the port of a service that has the address, the protocol, the number and Inside of a Port. A port that is Own
// and one that is not replace each other, and neither removes the other.
func (t *Table) Remove(p nodeports.Port) {
	delete(t.invalid, p.String())
	switch one, at := t.key(p); {
	case one == nil:
	case p.Inside:
		one.set(nodeports.Group{Set: nodeports.Insiders, At: at}, nil)
	case p.Own != nodeports.LeadsOthers(one.want[nodeports.Group{Set: nodeports.Services, At: at}]):
		one.putService(at, nil)
	}
}

// key returns the key of a port, and the table that has it; nil if the port is invalid.
func (t *Table) key(p nodeports.Port) (*table, nodeports.PortKey) {
	one := t.of(p.Address)
	if one == nil {
		return nil, nodeports.PortKey{}
	}
	at, err := one.family.KeyOf(p.Address, p.Protocol, p.Number)
	if err != nil {
		return nil, nodeports.PortKey{}
	}
	return one, at
}

// Replace replaces all ports of services. The work of the next Sync depends on those that differ.
func (t *Table) Replace(ports []nodeports.Port) {
	stay := map[nodeports.Group]bool{}
	for _, p := range ports {
		if one, at := t.key(p); one != nil && p.Inside {
			stay[nodeports.Group{Set: nodeports.Insiders, At: at}] = true
		} else if one != nil {
			stay[nodeports.Group{Set: nodeports.Services, At: at}] = true
		}
	}
	clear(t.invalid)
	for _, one := range t.tables {
		for g := range one.want {
			switch {
			case stay[g]:
			case g.Set == nodeports.Services:
				one.putService(g.At, nil)
			case g.Set == nodeports.Insiders:
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
func (t *Table) Sync(place nodeports.Place, at Hosts, nodes []netip.Addr) (changed bool, err error) {
	if !place.HostPorts {
		at = Hosts{}
	}
	for i, addresses := range []nodeports.Addresses{place.IPv4, place.IPv6} { // as tables
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
		return true, fmt.Errorf("write nftables table %s: %w", nodeports.TableName, err)
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
		err = errors.Join(err, one.family.Refresh(c, lasts))
	}
	if err := errors.Join(err, c.Flush()); err != nil {
		t.forgetAll()
		return fmt.Errorf("refresh nftables table %s: %w", nodeports.TableName, err)
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
