package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The table of ours, and its chains.
const (
	tableName = "coe-bridge"
	wayOut    = "way-out"
	noReturn  = "no-return"
)

// rule is one of ours. Its text says all that it does: two of one text are the same.
type rule struct {
	chain string
	text  string
	exprs []expr.Any
}

// rules are those of a node. The first are for what the node's programs send to
// services: whoever serves sees the node by an address that the node itself does not
// have. So the node can serve itself: the answer goes back through the switch, which
// must turn it round. What pods send out of the cluster has the node's address. What comes
// from the network is never sent back there: it has nobody of that address.
func (w wanted) rules() []rule {
	var all []rule
	for _, to := range w.services {
		all = append(all, rule{
			wayOut, fmt.Sprintf("to services %s by %s as %s", to, linkName, w.service),
			slices.Concat(outBy(linkName, expr.CmpOpEq), destination(to), snat(w.service)),
		})
	}
	return append(all, rule{
		wayOut, fmt.Sprintf("from %s out by another link as the node", linkName),
		slices.Concat(inBy(linkName), outBy(linkName, expr.CmpOpNeq), []expr.Any{&expr.Counter{}, &expr.Masq{FullyRandom: true}}),
	}, rule{
		noReturn, fmt.Sprintf("from %s nothing goes back", linkName),
		slices.Concat(inBy(linkName), outBy(linkName, expr.CmpOpEq), []expr.Any{
			&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: hostUnreachable},
		}),
	})
}

// putRules sees to it that the table of ours has these rules and no others. They are
// replaced as a whole, at one moment; connections that are there go on as they are.
func putRules(ns netns.NsHandle, w wanted) (changed bool, err error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	rules := w.rules()
	if has, err := hasRules(c, rules); has || err != nil {
		return false, err
	}
	c.AddTable(table())
	c.DelTable(table())
	c.AddTable(table())
	for _, chain := range chains() {
		c.AddChain(chain)
	}
	for _, r := range rules {
		c.AddRule(&nftables.Rule{
			Table: table(), Chain: &nftables.Chain{Name: r.chain}, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.text),
		})
	}
	if err := c.Flush(); err != nil {
		return true, fmt.Errorf("write nftables rules: %w", err)
	}
	return true, nil
}

// removeRules removes the table of ours.
func removeRules(ns netns.NsHandle) (removed bool, err error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	there, err := hasTable(c)
	if !there || err != nil {
		return false, err
	}
	c.DelTable(table())
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("remove nftables table %s: %w", tableName, err)
	}
	return true, nil
}

func table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName}
}

// chains are those of ours, in the order of their names.
func chains() []*nftables.Chain {
	return []*nftables.Chain{
		{
			Table: table(), Name: noReturn, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		},
		{
			Table: table(), Name: wayOut, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		},
	}
}

func hasTable(c *nftables.Conn) (bool, error) {
	all, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	return slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == tableName }), nil
}

// hasRules tells whether the table of ours has just these rules, in chains that are
// where they have to be.
func hasRules(c *nftables.Conn, want []rule) (bool, error) {
	if there, err := hasTable(c); !there || err != nil {
		return false, err
	}
	have, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != tableName })
	slices.SortFunc(have, func(a, b *nftables.Chain) int { return strings.Compare(a.Name, b.Name) })
	if !slices.EqualFunc(have, chains(), sameChain) {
		return false, nil
	}
	for _, chain := range have {
		rules, err := c.GetRules(table(), chain)
		if err != nil {
			return false, fmt.Errorf("list nftables rules: %w", err)
		}
		here := slices.DeleteFunc(slices.Clone(want), func(r rule) bool { return r.chain != chain.Name })
		if !slices.EqualFunc(rules, here, sameRule) {
			return false, nil
		}
	}
	return true, nil
}

func sameRule(is *nftables.Rule, w rule) bool {
	text, _ := userdata.GetString(is.UserData, userdata.TypeComment)
	return text == w.text
}

func sameChain(a, b *nftables.Chain) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Hooknum != nil && *a.Hooknum == *b.Hooknum &&
		a.Priority != nil && *a.Priority == *b.Priority
}

const register = 1

// hostUnreachable is ICMP's code of that name.
const hostUnreachable = 1

func inBy(link string) []expr.Any {
	return byName(expr.MetaKeyIIFNAME, expr.CmpOpEq, link)
}

func outBy(link string, op expr.CmpOp) []expr.Any { return byName(expr.MetaKeyOIFNAME, op, link) }

func byName(key expr.MetaKey, op expr.CmpOp, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Key: key, Register: register},
		&expr.Cmp{Op: op, Register: register, Data: name},
	}
}

// destination matches what goes to a range of addresses.
func destination(to netip.Prefix) []expr.Any {
	const offset, size = 16, 4 // of the address in an IPv4 header
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: size, Mask: net.CIDRMask(to.Bits(), 8*size), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: to.Masked().Addr().AsSlice()},
	}
}

func snat(as netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Counter{},
		&expr.Immediate{Register: register, Data: as.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register},
	}
}
