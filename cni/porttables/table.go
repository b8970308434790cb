package porttables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// table is the nftables table of one family.
type table struct {
	cfg    Config
	family *nodeports.Family
	// at and inside are where the node is. hostPorts, balances and isolated are as in the Place.
	at                            nodeports.Addresses
	inside                        []netip.Prefix
	hostPorts, balances, isolated bool
	// want is the wanted content. invalidHosts has what it leaves out of host ports. external has the number of wanted ports
	// of each external address, and count that of the groups of each set.
	want         nodeports.Content
	invalidHosts error
	external     map[netip.Addr]int
	count        map[string]int
	// led is how many ports lead others than the node's programs. dated is how many ports lead to endpoints on other nodes,
	// and freshUntil until when these are current; see Refresh.
	led, dated int
	freshUntil time.Time
	// hosts and nodes were given last. adopted is set if other host ports are wanted, which a table had.
	hosts   []nodeports.HostPort
	nodes   []netip.Addr
	adopted bool
	// known is set if it is known what the kernel has. exists is set if it has the table, and whole if the table can be
	// changed: then it has the wanted content except the former elements of groups that differ, and texts has the texts of
	// its rules by chain. ruled is set if these are the wanted rules.
	known, exists, whole, ruled bool
	former                      nodeports.Content
	texts                       map[string][]string
	// unforgotten are the ports of UDP that have changed since their connections were last forgotten, true if they lead others
	// than the node's programs; nil for all ports.
	unforgotten map[nodeports.PortKey]bool
	// left has the ports of a node that has left the pod network, until their connections are forgotten.
	left map[nodeports.PortKey]bool
	// found is set if there was a table or a port since New. Otherwise another program has opened the connections to
	// these ports.
	found   bool
	current bool // see Table.Current
}

func newTable(cfg Config, f *nodeports.Family) *table {
	return &table{cfg: cfg, family: f, want: nodeports.Content{}, former: nodeports.Content{}, external: map[netip.Addr]int{}, count: map[string]int{}}
}

// wanted reports whether there must be a table.
func (t *table) wanted() bool {
	return t.at.Edge.IsValid() && t.count[nodeports.Services]+t.count[nodeports.HostPorts] > 0
}

// differs reports whether something must be written.
func (t *table) differs() bool {
	if !t.wanted() {
		return t.exists
	}
	for g, had := range t.former {
		if !slices.Equal(had, t.want[g]) {
			return true
		}
	}
	return !t.whole || !t.ruled
}

// move sets where the node is. Other rules are wanted then, and the same sets.
func (t *table) move(at nodeports.Addresses, to nodeports.Place) {
	same := at.Edge == t.at.Edge && at.Network == t.at.Network && slices.Equal(at.ByGateways, t.at.ByGateways) &&
		to.HostPorts == t.hostPorts && to.Balances == t.balances && to.Isolated == t.isolated && at.Node == t.at.Node && at.Internal == t.at.Internal
	t.at, t.inside, t.ruled = at, to.Inside, t.ruled && same
	t.hostPorts, t.balances, t.isolated = to.HostPorts, to.Balances, to.Isolated
}

// node returns the node that rules are for.
func (t *table) node() nodeports.Node {
	return nodeports.Node{
		Family: t.family, Link: t.cfg.Link, EgressLinks: t.cfg.EgressLinks, At: t.at,
		HostPorts: t.hostPorts, Balances: t.balances, Isolated: t.isolated,
	}
}

// putService sets the elements of a port of a service, and the element of its external address.
func (t *table) putService(at nodeports.PortKey, elements []nodeports.Element) {
	g := nodeports.Group{Set: nodeports.Services, At: at}
	had, has := nodeports.LeadsOthers(t.want[g]), nodeports.LeadsOthers(elements)
	t.set(g, elements)
	if had == has || at.Address == t.family.Every {
		return
	}
	if has {
		t.external[at.Address]++
	} else if t.external[at.Address]--; t.external[at.Address] == 0 {
		delete(t.external, at.Address)
	}
	g, one := nodeports.OfAddress(nodeports.Externals, at.Address)
	if t.external[at.Address] == 0 {
		one = nil
	}
	t.set(g, one)
}

// set sets the wanted elements of a group; none removes it.
func (t *table) set(g nodeports.Group, elements []nodeports.Element) {
	had := t.want[g]
	if slices.Equal(had, elements) {
		return
	}
	if _, noted := t.former[g]; !noted {
		t.former[g] = had
	}
	if had == nil {
		t.count[g.Set]++
	}
	t.led += number(nodeports.LeadsOthers(elements)) - number(nodeports.LeadsOthers(had))
	t.dated += number(nodeports.Dated(elements)) - number(nodeports.Dated(had))
	if t.want[g] = elements; len(elements) == 0 {
		delete(t.want, g)
		t.count[g.Set]--
	}
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// replace sets the groups of one kind.
func (t *table) replace(set string, groups nodeports.Content) {
	for g := range t.want {
		if g.Set == set && groups[g] == nil {
			t.set(g, nil)
		}
	}
	for g, elements := range groups {
		t.set(g, elements)
	}
}

// putHosts sets the host ports of the family.
func (t *table) putHosts(ports []nodeports.HostPort) {
	if slices.Equal(t.hosts, ports) && !t.adopted {
		return
	}
	all := nodeports.Content{}
	t.hosts, t.adopted, t.invalidHosts = slices.Clone(ports), false, nil
	for _, p := range ports {
		if p.Address.Is4() != t.family.Every.Is4() {
			continue
		}
		at, one, err := t.family.Host(p)
		g := nodeports.Group{Set: nodeports.HostPorts, At: at}
		if is := all[g]; err == nil && is != nil && is[0] != one[0] {
			err = fmt.Errorf("%s: it belongs to another pod than %s", p, p.Pod)
		}
		if err != nil {
			t.invalidHosts = errors.Join(t.invalidHosts, err)
			continue
		}
		all[g] = one
	}
	t.replace(nodeports.HostPorts, all)
}

// putNodes sets the addresses of nodes of the family.
func (t *table) putNodes(nodes []netip.Addr) {
	if slices.Equal(t.nodes, nodes) {
		return
	}
	all := nodeports.Content{}
	t.nodes = slices.Clone(nodes)
	for _, n := range nodes {
		if t.family.Has(n) {
			g, one := nodeports.OfAddress(nodeports.Nodes, n)
			all[g] = one
		}
	}
	t.replace(nodeports.Nodes, all)
}

// settle notes that the kernel has what is wanted.
func (t *table) settle() {
	t.known, t.current = true, true
	t.exists = t.wanted()
	t.whole, t.ruled = t.exists, t.exists
	clear(t.former)
}

// renew notes that the table has nothing, so that everything wanted is a change.
func (t *table) renew() {
	clear(t.former)
	for g := range t.want {
		t.former[g] = nil
	}
}

// changes returns the changed elements of groups, in the order of the groups.
func (t *table) changes() (all [][]nodeports.Change) {
	for _, g := range slices.SortedFunc(maps.Keys(t.former), nodeports.Group.Compare) {
		if changed := t.family.Diff(t.former[g], t.want[g]); len(changed) > 0 {
			all = append(all, changed)
		}
	}
	return all
}

// maxChanges is how much the changes of one transaction weigh at most: its messages must fit into the
// buffer of a socket, and the elements of a set into an attribute of 64 KiB.
const maxChanges = 500

// write changes tables, after it has created those that are not whole, or removes them. Changed rules and the first
// changed elements of all tables are in one transaction. It returns the number of its transactions.
func write(c *nftables.Conn, tables []*table) (commits uint32, err error) {
	var changes [][]nodeports.Change
	queued := false
	for _, one := range tables {
		if one.wanted() && !one.whole {
			if err := one.create(c); err != nil {
				return commits, err
			}
			commits++
		}
	}
	for _, one := range tables {
		switch {
		case !one.wanted():
			c.DelTable(one.family.Table())
			queued = true
			continue
		case !one.ruled:
			one.putRules(c)
			queued = true
		}
		changes = append(changes, one.changes()...)
	}
	all := nodeports.Batches(changes, maxChanges)
	if len(all) == 0 && queued {
		all = append(all, nil)
	}
	for _, batch := range all {
		for _, one := range tables {
			err = errors.Join(err, one.family.Put(c, batch))
		}
		if err := errors.Join(err, c.Flush()); err != nil {
			return commits, err
		}
		commits++
	}
	return commits, nil
}

// putRules adds to a transaction what gives the chains of the table the wanted rules. The sets keep their elements.
func (t *table) putRules(c *nftables.Conn) {
	chains, want := t.node().Chains(), map[string][]string{}
	var differ []nodeports.Chain
	for _, one := range chains {
		want[one.Name] = one.Texts()
		is, there := t.texts[one.Name]
		switch {
		case !there:
			c.AddChain(one.Chain)
		case slices.Equal(is, want[one.Name]):
			continue
		default:
			c.FlushChain(one.Chain)
		}
		differ = append(differ, one)
	}
	nodeports.AddRules(c, differ)
	for name := range t.texts {
		if _, stays := want[name]; !stays {
			c.DelChain(t.family.Chain(name))
		}
	}
	t.texts = want
}

// create creates the table with its rules, and with empty sets. A table that is there is replaced.
func (t *table) create(c *nftables.Conn) error {
	t.freshUntil = time.Time{}
	is := t.family.Table()
	c.AddTable(is)
	c.DelTable(is)
	c.AddTable(is)
	for _, set := range t.family.Sets() {
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
	}
	chains := t.node().Chains()
	for _, chain := range chains {
		c.AddChain(chain.Chain)
	}
	nodeports.AddRules(c, chains)
	if err := c.Flush(); err != nil {
		return err
	}
	t.texts = map[string][]string{}
	for _, chain := range chains {
		t.texts[chain.Name] = chain.Texts()
	}
	t.ruled = true
	t.renew()
	return nil
}
