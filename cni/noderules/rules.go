package noderules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// tableName is the name of all our tables: the table of IPv4 rules, that of IPv6 rules, and the table of rules
// for both IP families.
const tableName = "coe-bridge"

// The chains.
const (
	wayOut         = "way-out"
	noReturn       = "no-return"
	databasesHere  = "databases-here"
	databasesThere = "databases-there"
	ownPods        = "own-pods"
	egressOnly     = "egress-only"
	egressIn       = "egress-in"
	egressMarks    = "egress-marks"
	egressOwn      = "egress-own"
	noForward      = "no-forward"
	noService      = "no-service"
	noRedirect     = "no-redirect"
	ownSources     = "own-sources"
)

// egressStale is a set of connections.
const egressStale = "egress-stale"

// The ports of databases: Open vSwitch and OVN with their cluster ports, and etcd in
// deploy/kubernetes.
const (
	firstDatabase, lastDatabase = 6640, 6644
	firstEtcd, lastEtcd         = 12379, 12380
)

// OfDatabase reports whether pods do not reach a port through the node.
func OfDatabase(port uint16) bool {
	return firstDatabase <= port && port <= lastDatabase || firstEtcd <= port && port <= lastEtcd
}

// rule is an nftables rule. Its text identifies it: rules with equal texts are equal.
type rule struct {
	table *nftables.Table
	chain string
	text  string
	exprs []expr.Any
}

// rules returns the rules of the node.
func (w Wanted) rules() []rule {
	if w.Isolated {
		return slices.Concat(w.podRules(), w.isolatedRules(), w.protected(NamespacePrefix+"*", databasesHere))
	}
	all := slices.Concat(w.podRules(), w.managementRules(), w.egressRules(), w.protected(Link, databasesHere, databasesThere))
	if w.Balances {
		all = slices.Concat(all, w.protected(NamespacePrefix+"*", databasesHere, databasesThere))
	}
	return all
}

// protected returns the rules that keep pods from the programs that control their network.
func (w Wanted) protected(links string, chains ...string) []rule {
	return slices.Concat(databaseRules(links, w.Databases, chains...), w.controllerRules(links, chains...))
}

// podRules returns the rules that drop packets from the links of pods, to the node and through it. Only
// beside the userspace datapath of Open vSwitch does the kernel see them, if a pod sends them to the MAC
// address of its link's other end. OVN has not judged them: they would bypass policies, and the rules for
// traffic that comes through the switch.
func (w Wanted) podRules() []rule {
	drop := slices.Concat(inByGroup(links.Group), dropped())
	all := []rule{
		{tableBoth(), ownPods, "from links of pods only through OVN", drop},
		{tableBoth(), noForward, "from links of pods only through OVN", drop},
	}
	if w.OfPorts {
		all = append(all, nodePortRules()...)
	}
	return all
}

// dropped counts packets and drops them.
func dropped() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// accepted counts packets and ends the chain.
func accepted() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}
}

// managementRules returns the rules for the link of the management port, in each family that the node has there:
//
// way-out    source NAT for traffic to services. Servers see an address that is not on any link of
//
//	the node. So an answer of a server on this node goes back through the switch, which must
//	undo its NAT. Traffic of the node's programs has another address than traffic of others,
//	which comes in by a node port or a route: policies always allow the former to pods on the
//	node.
//
// way-out    source NAT to the node's address for pods' traffic that leaves the cluster, except to
//
//	destinations that route the addresses of pods.
//
// no-return  rejects traffic from the pod network that is routed back there: the network
//
//	has no such address. Pods' traffic to a node port goes back there, to the service.
//
// no-return  rejects traffic of others to services while the node has no edge address, and drops
//
//	packets that come from elsewhere with an address of a node, or with one that a pod sees that reaches itself.
func (w Wanted) managementRules() (all []rule) {
	for _, f := range w.families() {
		if w.Balances {
			all = append(all, f.balancing()...)
		} else {
			all = append(all, f.toServices()...)
			all = append(all, f.outside(Link)...)
		}
		all = append(all, f.byManagement()...)
	}
	return all
}

// toServices returns the rules for packets that the network leads to services.
func (f *Family) toServices() (all []rule) {
	table := f.table()
	for _, to := range f.Services {
		all = append(all, rule{
			table, wayOut, fmt.Sprintf("from the node to services %s through %s with source %s", to, Link, f.Service),
			slices.Concat(matches.OutBy(Link), destination(to), matches.FromHere(), snat(f.Service)),
		})
		if !f.Edge.IsValid() {
			all = append(all, rule{
				table, noReturn, fmt.Sprintf("from others not to services %s: the node has no edge address", to),
				slices.Concat(matches.OutBy(Link), destination(to), reject(table)),
			})
		} else {
			all = append(all, rule{
				table, wayOut, fmt.Sprintf("from others to services %s through %s with source %s", to, Link, f.Edge),
				slices.Concat(matches.OutBy(Link), destination(to), snat(f.Edge)),
			})
		}
	}
	of := hairpins[0]
	if f.Source.Is6() {
		of = hairpins[1]
	}
	return append(append(all, f.forged()...), rule{
		table, noReturn, fmt.Sprintf("from elsewhere not with the address %s, which a pod sees that reaches itself", of),
		slices.Concat(f.elsewhere(), source(single(of)), dropped()),
	})
}

// hairpins are the addresses that a pod sees as the source if it reaches itself through a service; policies allow them.
var hairpins = [...]netip.Addr{netip.MustParseAddr("169.254.169.5"), netip.MustParseAddr("fd69::5")}

// elsewhere matches packets to the pod network that come from elsewhere.
func (f *Family) elsewhere() []expr.Any {
	return append(matches.NotInBy(Link), matches.OutBy(Link)...)
}

// outside returns the rules for the source of packets of pods that leave the cluster, which come in by links.
func (f *Family) outside(links string) (all []rule) {
	for _, to := range f.Routed {
		all = append(all, rule{
			f.table(), wayOut, fmt.Sprintf("from %s to %s with the address of the pod", links, to),
			slices.Concat(matches.InBy(links), matches.NotOutBy(Link), destination(to), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}),
		})
	}
	return append(all, rule{
		f.table(), wayOut, fmt.Sprintf("from %s through other links with the address of the node", links),
		slices.Concat(matches.InBy(links), matches.NotOutBy(Link), []expr.Any{&expr.Counter{}, &expr.Masq{FullyRandom: true}}),
	})
}

// byManagement returns the rules for packets by the management port that hold for all networks.
func (f *Family) byManagement() []rule {
	table := f.table()
	return []rule{{
		table, noReturn, fmt.Sprintf("from %s not back to it, except by a node port", Link),
		slices.Concat(matches.InBy(Link), matches.OutBy(Link), matches.NotTranslated(), reject(table)),
	}, {
		table, noReturn, fmt.Sprintf("from nodes %s to pods only by %s", f.Nodes, Link),
		slices.Concat(matches.NotInBy(Link), matches.OutBy(Link), source(f.Nodes),
			[]expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}),
	}}
}

// forged returns rules that drop packets to the pod network that come from elsewhere with an address of the node, or
// of the pod network. Policies allow the node, and it gets the service address at services. The kernel itself drops
// only IPv4 packets, those with addresses of pods only if rp_filter is 1.
func (f *Family) forged() []rule {
	return []rule{
		{f.table(), noReturn, "from elsewhere not with an address of the node", slices.Concat(f.elsewhere(), matches.FromHere(), dropped())},
		{f.table(), noReturn, fmt.Sprintf("from elsewhere not with an address that is routed to %s", Link), slices.Concat(f.elsewhere(), []expr.Any{
			&expr.Fib{Register: register, FlagSADDR: true, ResultOIFNAME: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: matches.Name(Link)},
		}, dropped())},
	}
}

// families returns what is wanted for each family that is used.
func (w *Wanted) families() (all []*Family) {
	for _, f := range []*Family{&w.IPv4, &w.IPv6} {
		if f.Source.IsValid() {
			all = append(all, f)
		}
	}
	return all
}

// table returns the table of the family.
func (f *Family) table() *nftables.Table {
	if f.Source.Is4() {
		return table4()
	}
	return table6()
}

// reject refuses packets with ICMP, because there is no such host.
func reject(in *nftables.Table) []expr.Any {
	code := uint8(hostUnreachable)
	if in.Family == nftables.TableFamilyIPv6 {
		code = addressUnreachable
	}
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
}

// databaseRules returns rules that drop pods' traffic to the ports of databases, on this
// node and on others: a writer to a database controls the network of all pods. The rules
// apply after destination NAT, so that a service cannot bypass them.
func databaseRules(links string, further []uint16, chains ...string) (all []rule) {
	ranges := [][2]uint16{{firstDatabase, lastDatabase}, {firstEtcd, lastEtcd}}
	for _, port := range further {
		ranges = append(ranges, [2]uint16{port, port})
	}
	for _, chain := range chains {
		for _, ports := range ranges {
			all = append(all, rule{
				tableBoth(), chain, fmt.Sprintf("from %s not to database ports %d-%d", links, ports[0], ports[1]),
				slices.Concat(matches.InBy(links), tcpTo(ports[0], ports[1]), dropped()),
			})
		}
	}
	return all
}

// PutRules makes our tables have exactly these rules. It replaces all rules in one
// transaction; existing connections continue.
func (w Wanted) PutRules(ns netns.NsHandle) (changed bool, err error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	rules, chains := w.rules(), w.chains()
	if has, err := hasRules(c, chains, rules); has || err != nil {
		return false, err
	}
	for _, table := range tables() {
		if slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Table.Family == table.Family }) {
			c.AddTable(table)
			c.DelTable(table)
			c.AddTable(table)
			continue
		}
		if there, err := hasTable(c, table); err != nil {
			return false, err
		} else if there {
			c.DelTable(table)
		}
	}
	for _, set := range w.egressSets() {
		if err := c.AddSet(set, nil); err != nil {
			return false, fmt.Errorf("write nftables set %s: %w", set.Name, err)
		}
	}
	for _, chain := range chains {
		c.AddChain(chain)
		for _, r := range rules {
			if r.in(chain) {
				c.AddRule(&nftables.Rule{
					Table: chain.Table, Chain: chain, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.text),
				})
			}
		}
	}
	if err := c.Flush(); err != nil {
		return true, fmt.Errorf("write nftables rules: %w", err)
	}
	return true, nil
}

// RemoveRules removes our tables.
func RemoveRules(ns netns.NsHandle) (removed bool, err error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	for _, table := range tables() {
		there, err := hasTable(c, table)
		if err != nil {
			return removed, err
		}
		if !there {
			continue
		}
		c.DelTable(table)
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return removed, fmt.Errorf("remove nftables table %s: %w", tableName, err)
		}
		removed = true
	}
	return removed, nil
}

func tables() []*nftables.Table { return []*nftables.Table{table4(), table6(), tableBoth()} }

func table4() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName}
}

func table6() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyIPv6, Name: tableName}
}

func tableBoth() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// chains returns the wanted chains, in the order of their tables and names.
func (w Wanted) chains() []*nftables.Chain {
	if w.Isolated {
		all := []*nftables.Chain{
			filter(tableBoth(), databasesHere, nftables.ChainHookInput),
			filter(tableBoth(), noForward, nftables.ChainHookForward),
		}
		if w.Balances {
			all = append(all, filter(tableBoth(), noRedirect, nftables.ChainHookOutput))
		}
		all = append(all, filter(tableBoth(), ownPods, nftables.ChainHookInput))
		if w.Balances {
			sources := filter(tableBoth(), ownSources, nftables.ChainHookPrerouting)
			sources.Priority = nftables.ChainPriorityMangle // after connection tracking, before the destination is translated
			all = append(all, sources)
		}
		return all
	}
	all := w.egressChains()
	for _, f := range w.families() {
		all = append(all, filter(f.table(), noReturn, nftables.ChainHookForward))
		if w.Balances {
			all = append(all, filter(f.table(), noService, nftables.ChainHookOutput))
		}
		all = append(all, &nftables.Chain{
			Table: f.table(), Name: wayOut, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
	}
	return append(all,
		filter(tableBoth(), databasesHere, nftables.ChainHookInput),
		filter(tableBoth(), databasesThere, nftables.ChainHookForward),
		filter(tableBoth(), noForward, nftables.ChainHookForward),
		filter(tableBoth(), ownPods, nftables.ChainHookInput),
	)
}

func filter(table *nftables.Table, name string, hook *nftables.ChainHook) *nftables.Chain {
	return &nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter}
}

func hasTable(c *nftables.Conn, table *nftables.Table) (bool, error) {
	all, err := c.ListTablesOfFamily(table.Family)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	return slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == table.Name }), nil
}

// hasRules reports whether our tables have exactly these chains with these rules.
func hasRules(c *nftables.Conn, chains []*nftables.Chain, want []rule) (bool, error) {
	for _, table := range tables() {
		if has, err := hasRulesOf(c, table, chains, want); !has || err != nil {
			return false, err
		}
	}
	return true, nil
}

func hasRulesOf(c *nftables.Conn, table *nftables.Table, chains []*nftables.Chain, want []rule) (bool, error) {
	chains = slices.DeleteFunc(slices.Clone(chains), func(c *nftables.Chain) bool { return c.Table.Family != table.Family })
	if there, err := hasTable(c, table); !there || err != nil {
		return err == nil && len(chains) == 0, err
	}
	have, err := c.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != tableName })
	slices.SortFunc(have, func(a, b *nftables.Chain) int { return strings.Compare(a.Name, b.Name) })
	if len(chains) == 0 || !slices.EqualFunc(have, chains, sameChain) {
		return false, nil
	}
	for _, chain := range chains {
		rules, err := c.GetRules(table, chain)
		if err != nil {
			return false, fmt.Errorf("list nftables rules: %w", err)
		}
		here := slices.DeleteFunc(slices.Clone(want), func(r rule) bool { return !r.in(chain) })
		if !slices.EqualFunc(rules, here, sameRule) {
			return false, nil
		}
	}
	return true, nil
}

func (r rule) in(c *nftables.Chain) bool {
	return r.chain == c.Name && r.table.Family == c.Table.Family
}

func sameRule(is *nftables.Rule, w rule) bool {
	text, _ := userdata.GetString(is.UserData, userdata.TypeComment)
	return text == w.text
}

func sameChain(a, b *nftables.Chain) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Hooknum != nil && *a.Hooknum == *b.Hooknum &&
		a.Priority != nil && *a.Priority == *b.Priority
}
