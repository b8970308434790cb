// Package nodeports programs the node ports and the external addresses of services, and the host ports of
// pods, in nftables. Each port of a service leads to its endpoints: all of them or, if it is local, those on
// the node. A port without known endpoints leads to the cluster address, where the pod network balances. A host port
// leads to its pod. The package has one table of its own, and touches no other. It knows neither the bridge
// nor the network behind the link.
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
	"time"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
)

// TableName is the name of the nftables table, of the family ip.
const TableName = "coe-bridge-node-ports"

// MaxEndpoints is how many endpoints of a port can serve. The table has chains for each number of endpoints, and all
// rules together must fit into one message to the kernel.
const MaxEndpoints = 64

// Port is a port on which the node answers for a service.
type Port struct {
	// Address is an external address of the service; zero for every address of the node.
	Address  netip.Addr
	Protocol string // "tcp", "udp", "sctp"
	Number   uint16
	Service  netip.AddrPort // the cluster address of the service
	// Restricted: only clients in Sources reach the port, by Address.
	Restricted bool
	Sources    []netip.Prefix
	// Local: Endpoints are those on this node. Without any, clients see no answer. Otherwise Endpoints are those on all
	// nodes. Without any, clients are led to Service. The node's own programs are always led to Service. Sticky: a client
	// keeps its endpoint while the endpoints stay the same.
	Local, Sticky bool
	Endpoints     []netip.AddrPort
	// Refuses: if the port is local and has no endpoints, clients are refused. Otherwise their packets are dropped, so that
	// they wait for an endpoint.
	Refuses bool
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

// Hosts are the host ports of the pods on a node.
type Hosts struct {
	Ports []HostPort
	// Unknown: the table keeps its host ports.
	Unknown bool
}

// Table is the nftables table. It remembers what it has written, and reads the table only if
// nftables was changed by others. Only one goroutine at a time may use it.
type Table struct {
	cfg    Config
	family *family
	place  Place
	// want is the wanted content. invalid has what it leaves out, by the port of a service, and invalidHosts for host
	// ports. external has the number of wanted ports of each external address, and count that of the groups of each set.
	want         content
	invalid      map[string]error
	invalidHosts error
	external     map[netip.Addr]int
	count        map[string]int
	// edges is how many ports are edged, and freshUntil until when their endpoints are current; see Refresh.
	edges      int
	freshUntil time.Time
	// hosts and nodes were given last. adopted is set if other host ports are wanted, which a table had.
	hosts   []HostPort
	nodes   []netip.Addr
	adopted bool
	// known is set if the table had the wanted content at a generation of nftables, except that it has the former
	// elements of groups that have changed since.
	known      bool
	generation uint32
	former     content
	// unforgotten are the ports of UDP that have changed since their connections were last forgotten; nil
	// for all ports.
	unforgotten map[portKey]bool
	// found is set if there was a table or a port since New. Otherwise connections to these ports are those of
	// another program.
	found   bool
	current bool // see Current
	alone   bool // see Alone
}

// New returns a Table without ports.
func New(cfg Config) *Table {
	return &Table{
		cfg: cfg, family: &ipv4, want: content{}, former: content{},
		invalid: map[string]error{}, external: map[netip.Addr]int{}, count: map[string]int{},
	}
}

// Current reports whether the last Sync has written what it was given, without invalid ports and endpoints.
func (t *Table) Current() bool { return t.current }

// Services returns the number of ports of services.
func (t *Table) Services() int { return t.count[services] }

// Begin notes a generation of nftables at which the caller has begun to check tables of its own. If nobody has changed
// nftables since, only the Table changes it, until Alone reports otherwise.
func (t *Table) Begin(generation uint32) { t.alone = t.known && t.generation == generation }

// Alone reports whether only the Table has changed nftables since the generation of Begin. So the tables of the caller
// are as it has left them.
func (t *Table) Alone() bool {
	now, err := Generation(t.cfg.Netns)
	t.alone = t.alone && err == nil && t.known && t.generation == now
	return t.alone
}

// Put adds or changes a port of a service. Its address, protocol and number identify it. Sync writes it. An invalid
// port or endpoint is an error of Sync.
func (t *Table) Put(p Port) {
	at, elements, err := t.family.service(p)
	if delete(t.invalid, p.String()); err != nil {
		t.invalid[p.String()] = err
	}
	t.putService(at, elements)
}

// Remove removes the port of a service that has the address, the protocol and the number of a Port.
func (t *Table) Remove(p Port) {
	delete(t.invalid, p.String())
	if at, err := t.family.keyOf(p.Address, p.Protocol, p.Number); err == nil {
		t.putService(at, nil)
	}
}

// Replace replaces all ports of services. The work of the next Sync depends on those that differ.
func (t *Table) Replace(ports []Port) {
	stay := map[portKey]bool{}
	for _, p := range ports {
		if at, err := t.family.keyOf(p.Address, p.Protocol, p.Number); err == nil {
			stay[at] = true
		}
	}
	clear(t.invalid)
	for g := range t.want {
		if g.set == services && !stay[g.at] {
			t.putService(g.at, nil)
		}
	}
	for _, p := range ports {
		t.Put(p)
	}
}

// putService sets the elements of a port of a service, and the element of its external address.
func (t *Table) putService(at portKey, elements []element) {
	g := group{services, at}
	had, has := t.want[g] != nil, len(elements) > 0
	t.set(g, elements)
	if had == has || at.address == t.family.every {
		return
	}
	if has {
		t.external[at.address]++
	} else if t.external[at.address]--; t.external[at.address] == 0 {
		delete(t.external, at.address)
	}
	var one []element
	if t.external[at.address] > 0 {
		one = []element{{externals, string(at.address.AsSlice()), ""}}
	}
	t.set(group{externals, portKey{address: at.address}}, one)
}

// set sets the wanted elements of a group; none removes it.
func (t *Table) set(g group, elements []element) {
	had := t.want[g]
	if slices.Equal(had, elements) {
		return
	}
	if _, noted := t.former[g]; !noted {
		t.former[g] = had
	}
	if had == nil {
		t.count[g.set]++
	}
	t.edges += edgedIn(elements) - edgedIn(had)
	if t.want[g] = elements; len(elements) == 0 {
		delete(t.want, g)
		t.count[g.set]--
	}
}

// edgedIn returns 1 if the elements have one of the set edged.
func edgedIn(elements []element) int {
	if slices.ContainsFunc(elements, func(e element) bool { return e.set == edged }) {
		return 1
	}
	return 0
}

// replace sets the groups of one kind.
func (t *Table) replace(set string, groups content) {
	for g := range t.want {
		if g.set == set && groups[g] == nil {
			t.set(g, nil)
		}
	}
	for g, elements := range groups {
		t.set(g, elements)
	}
}

// putHosts sets the host ports.
func (t *Table) putHosts(ports []HostPort) {
	if slices.Equal(t.hosts, ports) && !t.adopted {
		return
	}
	all := content{}
	t.hosts, t.adopted, t.invalidHosts = slices.Clone(ports), false, nil
	for _, p := range ports {
		at, one, err := t.family.host(p)
		g := group{hosts, at}
		if is := all[g]; err == nil && is != nil && is[0] != one[0] {
			err = fmt.Errorf("%s: it belongs to another pod than %s", p, p.Pod)
		}
		if err != nil {
			t.invalidHosts = errors.Join(t.invalidHosts, err)
			continue
		}
		all[g] = one
	}
	t.replace(hosts, all)
}

// putNodes sets the addresses of nodes.
func (t *Table) putNodes(nodes []netip.Addr) {
	if slices.Equal(t.nodes, nodes) {
		return
	}
	all := content{}
	t.nodes = slices.Clone(nodes)
	for _, n := range nodes {
		if t.family.has(n) {
			all[group{nodesSet, portKey{address: n}}] = []element{{nodesSet, string(n.AsSlice()), ""}}
		}
	}
	t.replace(nodesSet, all)
}

// Sync makes a node answer on exactly the ports of services and these host ports, and reports whether it changed
// anything. nodes are the addresses of all nodes. Without ports there is no table. An invalid port or endpoint is an
// error, and the others are served.
//
// Open connections continue. UDP has none, so clients of a changed UDP port go to its current
// endpoints at once.
func (t *Table) Sync(place Place, at Hosts, nodes []netip.Addr) (changed bool, err error) {
	if !place.HostPorts {
		at = Hosts{}
	}
	if !at.Unknown {
		t.putHosts(at.Ports)
	}
	t.putNodes(nodes)
	if !place.sameRules(t.place) {
		t.known = false
	}
	t.place = place
	changed, err = t.sync(at.Unknown)
	t.current = err == nil
	if err == nil && t.found {
		err = t.forget()
	}
	return changed, errors.Join(err, t.invalidPorts(), t.invalidHosts)
}

// invalidPorts returns what is invalid about ports of services, in the same order each time.
func (t *Table) invalidPorts() (all error) {
	for _, port := range slices.Sorted(maps.Keys(t.invalid)) {
		all = errors.Join(all, t.invalid[port])
	}
	return all
}

// sync makes the table have the wanted content, or removes it if there are no ports. With keepHosts the host ports of a
// table that is read are wanted.
func (t *Table) sync(keepHosts bool) (changed bool, err error) {
	now, err := Generation(t.cfg.Netns)
	if err != nil {
		return false, err
	}
	c, err := t.open()
	if err != nil {
		return false, err
	}
	whole, exists := t.known && t.generation == now, true
	if !whole {
		t.alone = false
		if whole, exists, err = t.reread(c, keepHosts); err != nil {
			return false, err
		}
	}
	changes, remove := t.changes(), t.count[services]+t.count[hosts] == 0
	if remove && !exists || !remove && whole && len(changes) == 0 {
		t.settle(whole, now)
		return false, nil
	}
	t.found, t.known = true, false // unknown until everything is written
	t.noteChanged(whole)
	commits, err := t.write(c, whole, remove, changes)
	if err != nil {
		return true, fmt.Errorf("write nftables table %s: %w", TableName, err)
	}
	// If nobody else has written meanwhile, the table is known.
	after, err := Generation(t.cfg.Netns)
	t.settle(err == nil && after == now+commits && !remove, after)
	return true, nil
}

// holdAnswers gives a socket space for the answers to a transaction that creates the table. The kernel repeats each
// rule, and acknowledges each message.
func holdAnswers(c *mdlayher.Conn) error { return c.SetReadBuffer(4 << 20) }

// refreshEvery is how much longer a Refresh must last than the one before to be written.
const refreshEvery = 5 * time.Second

// Refresh says until when the endpoints of ports that are not local are current. From then on, clients of these ports
// are led to the cluster address: an endpoint on another node can have ended, and its address can belong to
// another pod. The kernel keeps the time, so nothing depends on the process. A new table is not fresh.
func (t *Table) Refresh(until time.Time) error {
	lasts := time.Until(until)
	if !t.known || t.edges == 0 || lasts <= 0 || until.Sub(t.freshUntil) < refreshEvery {
		return nil
	}
	c, err := t.open()
	if err != nil {
		return err
	}
	sets := t.family.sets()
	set := sets[slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == fresh })]
	var all []nftables.SetElement
	for _, protocol := range protocols {
		all = append(all, nftables.SetElement{Key: []byte{protocol}, Timeout: lasts})
	}
	// Elements may be there or not. Only a new one has the time.
	err = errors.Join(c.SetAddElements(set, all), c.SetDeleteElements(set, all), c.SetAddElements(set, all))
	if err := errors.Join(err, c.Flush()); err != nil {
		t.known = false
		return fmt.Errorf("refresh nftables table %s: %w", TableName, err)
	}
	t.freshUntil = until
	now, err := Generation(t.cfg.Netns)
	if t.known = err == nil && now == t.generation+1; t.known {
		t.generation = now
	}
	return err
}

func (t *Table) open() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(t.cfg.Netns)), nftables.WithSockOptions(holdAnswers))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return c, nil
}

// settle notes that the table has the wanted content, if it is known, at a generation.
func (t *Table) settle(known bool, generation uint32) {
	t.known, t.generation = known, generation
	clear(t.former)
}

// reread reads the table, and sets what it has of groups that differ. whole is false if it is not as the package
// creates it; then it has nothing.
func (t *Table) reread(c *nftables.Conn, keepHosts bool) (whole, exists bool, err error) {
	t.known = false
	have, exists, err := t.read(c)
	if err != nil {
		return false, false, err
	}
	if keepHosts && have != nil {
		t.adopted = true
		are := maps.Clone(have)
		maps.DeleteFunc(are, func(g group, _ []element) bool { return g.set != hosts })
		t.replace(hosts, are)
	}
	clear(t.former)
	for g, want := range t.want {
		if is := have[g]; !slices.Equal(is, want) {
			t.former[g] = is
		}
	}
	for g, is := range have {
		if t.want[g] == nil {
			t.former[g] = is
		}
	}
	return have != nil, exists, nil
}

// read returns the content of the table, nil if it is not as the package creates it, and whether
// the table exists.
func (t *Table) read(c *nftables.Conn) (have content, exists bool, err error) {
	all, err := c.ListTablesOfFamily(t.family.table)
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
	have = content{}
	for _, set := range t.family.sets() {
		if set.Name == fresh {
			continue
		}
		list, err := c.GetSetElements(set)
		if err != nil {
			return nil, true, fmt.Errorf("list nftables set %s: %w", set.Name, err)
		}
		for _, e := range list {
			have.add(t.family, element{set.Name, string(e.Key) + string(e.KeyEnd), valueOf(set, e)})
		}
	}
	for _, elements := range have {
		slices.SortFunc(elements, element.compare)
	}
	return have, true, nil
}

// changes returns the changed elements of groups, in the order of the groups.
func (t *Table) changes() (all [][]change) {
	for _, g := range slices.SortedFunc(maps.Keys(t.former), group.compare) {
		if changed := changesOf(t.former[g], t.want[g]); len(changed) > 0 {
			all = append(all, changed)
		}
	}
	return all
}

// maxChanges is how many elements one transaction changes at most: its messages must fit into the
// buffer of a socket, and the elements of a set into an attribute of 64 KiB.
const maxChanges = 500

// write changes the table, after it has created it if it is not whole, or removes it. It returns
// the number of its transactions.
func (t *Table) write(c *nftables.Conn, whole, remove bool, changes [][]change) (commits uint32, err error) {
	if remove {
		c.DelTable(t.family.nftable())
		return 1, c.Flush()
	}
	if !whole {
		if err := t.create(c); err != nil {
			return 0, err
		}
		commits++
	}
	for _, batch := range batches(changes, maxChanges) {
		for _, set := range t.family.sets() {
			var remove, add []nftables.SetElement
			for _, e := range batch {
				if e.set != set.Name {
					continue
				}
				if e.has {
					remove = append(remove, e.keyOnly())
				}
				if e.wanted {
					add = append(add, e.nft())
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
	t.freshUntil = time.Time{}
	table := t.family.nftable()
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	for _, set := range t.family.sets() {
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
