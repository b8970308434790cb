package nodeports

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
)

// table is the nftables table of one family.
type table struct {
	cfg    Config
	family *family
	// at and inside are where the node is. hostPorts, balances and isolated are as in the Place.
	at                            Addresses
	inside                        []netip.Prefix
	hostPorts, balances, isolated bool
	// want is the wanted content. invalidHosts has what it leaves out of host ports. external has the number of wanted ports
	// of each external address, and count that of the groups of each set.
	want         content
	invalidHosts error
	external     map[netip.Addr]int
	count        map[string]int
	// led is how many ports lead others than the node's programs. dated is how many ports lead to endpoints on other nodes,
	// and freshUntil until when these are current; see Refresh.
	led, dated int
	freshUntil time.Time
	// hosts and nodes were given last. adopted is set if other host ports are wanted, which a table had.
	hosts   []HostPort
	nodes   []netip.Addr
	adopted bool
	// known is set if it is known what the kernel has. exists is set if it has the table, and whole if the table can be
	// changed: then it has the wanted content except the former elements of groups that differ, and texts has the texts of
	// its rules by chain. ruled is set if these are the wanted rules.
	known, exists, whole, ruled bool
	former                      content
	texts                       map[string][]string
	// unforgotten are the ports of UDP that have changed since their connections were last forgotten, true if they lead others
	// than the node's programs; nil for all ports.
	unforgotten map[portKey]bool
	// left has the ports of a node that has left the pod network, until their connections are forgotten.
	left map[portKey]bool
	// found is set if there was a table or a port since New. Otherwise another program has opened the connections to
	// these ports.
	found   bool
	current bool // see Table.Current
}

func newTable(cfg Config, f *family) *table {
	return &table{cfg: cfg, family: f, want: content{}, former: content{}, external: map[netip.Addr]int{}, count: map[string]int{}}
}

// wanted reports whether there must be a table.
func (t *table) wanted() bool { return t.at.Edge.IsValid() && t.count[services]+t.count[hosts] > 0 }

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
func (t *table) move(at Addresses, to Place) {
	same := at.Edge == t.at.Edge && at.Network == t.at.Network && slices.Equal(at.ByGateways, t.at.ByGateways) &&
		to.HostPorts == t.hostPorts && to.Balances == t.balances && to.Isolated == t.isolated && at.Node == t.at.Node && at.Internal == t.at.Internal
	t.at, t.inside, t.ruled = at, to.Inside, t.ruled && same
	t.hostPorts, t.balances, t.isolated = to.HostPorts, to.Balances, to.Isolated
}

// putService sets the elements of a port of a service, and the element of its external address.
func (t *table) putService(at portKey, elements []element) {
	g := group{services, at}
	had, has := leads(t.want[g]), leads(elements)
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
func (t *table) set(g group, elements []element) {
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
	t.led += number(leads(elements)) - number(leads(had))
	t.dated += number(has(elements, edged, elsewhere)) - number(has(had, edged, elsewhere))
	if t.want[g] = elements; len(elements) == 0 {
		delete(t.want, g)
		t.count[g.set]--
	}
}

// has reports whether some elements have one of some sets.
func has(elements []element, sets ...string) bool {
	return slices.ContainsFunc(elements, func(e element) bool { return slices.Contains(sets, e.set) })
}

// leads reports whether a port of a service with these elements leads clients other than the node's programs.
func leads(elements []element) bool { return has(elements, services) }

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// replace sets the groups of one kind.
func (t *table) replace(set string, groups content) {
	for g := range t.want {
		if g.set == set && groups[g] == nil {
			t.set(g, nil)
		}
	}
	for g, elements := range groups {
		t.set(g, elements)
	}
}

// putHosts sets the host ports of the family.
func (t *table) putHosts(ports []HostPort) {
	if slices.Equal(t.hosts, ports) && !t.adopted {
		return
	}
	all := content{}
	t.hosts, t.adopted, t.invalidHosts = slices.Clone(ports), false, nil
	for _, p := range ports {
		if p.Address.Is4() != t.family.every.Is4() {
			continue
		}
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

// putNodes sets the addresses of nodes of the family.
func (t *table) putNodes(nodes []netip.Addr) {
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
func (t *table) changes() (all [][]change) {
	for _, g := range slices.SortedFunc(maps.Keys(t.former), group.compare) {
		if changed := t.changesOf(t.former[g], t.want[g]); len(changed) > 0 {
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
	var changes [][]change
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
			c.DelTable(one.family.nftable())
			queued = true
			continue
		case !one.ruled:
			one.putRules(c)
			queued = true
		}
		changes = append(changes, one.changes()...)
	}
	all := batches(changes, maxChanges)
	if len(all) == 0 && queued {
		all = append(all, nil)
	}
	for _, batch := range all {
		for _, one := range tables {
			err = errors.Join(err, one.putElements(c, batch))
		}
		if err := errors.Join(err, c.Flush()); err != nil {
			return commits, err
		}
		commits++
	}
	return commits, nil
}

// putElements adds the changes of the table in a batch to a transaction.
func (t *table) putElements(c *nftables.Conn, batch []change) (err error) {
	t.putClientChains(c, batch)
	for _, set := range t.family.sets() {
		var remove, add []nftables.SetElement
		for _, e := range batch {
			if e.of != t || e.set != set.Name {
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
	t.removeClientChains(c, batch)
	return err
}

// putRules adds to a transaction what gives the chains of the table the wanted rules. The sets keep their elements.
func (t *table) putRules(c *nftables.Conn) {
	chains, want := t.chains(), map[string][]string{}
	var differ []chain
	for _, one := range chains {
		want[one.Name] = one.texts()
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
	addRules(c, differ)
	for name := range t.texts {
		if _, stays := want[name]; !stays {
			c.DelChain(t.family.chain(name))
		}
	}
	t.texts = want
}

// create creates the table with its rules, and with empty sets. A table that is there is replaced.
func (t *table) create(c *nftables.Conn) error {
	t.freshUntil = time.Time{}
	is := t.family.nftable()
	c.AddTable(is)
	c.DelTable(is)
	c.AddTable(is)
	for _, set := range t.family.sets() {
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
	}
	chains := t.chains()
	for _, chain := range chains {
		c.AddChain(chain.Chain)
	}
	addRules(c, chains)
	if err := c.Flush(); err != nil {
		return err
	}
	t.texts = map[string][]string{}
	for _, chain := range chains {
		t.texts[chain.Name] = chain.texts()
	}
	t.ruled = true
	t.renew()
	return nil
}

func addRules(c *nftables.Conn, chains []chain) {
	for _, chain := range chains {
		for _, r := range chain.rules {
			c.AddRule(r.in(chain.Chain))
		}
	}
}

// refresh adds to a transaction that endpoints are current for a time. Elements may be there or not: only a new one has
// the time.
func (t *table) refresh(c *nftables.Conn, lasts time.Duration) error {
	sets := t.family.sets()
	set := sets[slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == fresh })]
	var all []nftables.SetElement
	for _, protocol := range protocols {
		all = append(all, nftables.SetElement{Key: []byte{protocol}, Timeout: lasts})
	}
	return errors.Join(c.SetAddElements(set, all), c.SetDeleteElements(set, all), c.SetAddElements(set, all))
}
