package nic

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// tableName is the name of the nftables table, which is for both IP families.
const tableName = "coe-bridge-nics"

// table returns the table, and its chain. A rule for each NIC drops the packets that the kernel receives by it:
// the userspace datapath of Open vSwitch reads a copy of each packet, and sends it to the bridge's own link.
// Without the rule programs would receive each packet twice.
func table() (*nftables.Table, *nftables.Chain) {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	return t, &nftables.Chain{
		Table: t, Name: "arriving", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	}
}

// ignoredNICs returns the NICs whose packets the kernel ignores.
func ignoredNICs(ns netns.NsHandle) (nics []string, err error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	rules, err := c.GetRules(table())
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables table %s: %w", tableName, err)
	}
	for _, r := range rules {
		if nic, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok {
			nics = append(nics, nic)
		}
	}
	return nics, nil
}

// setIgnored adds a NIC to those whose packets the kernel ignores, or removes it.
func setIgnored(ns netns.NsHandle, nic string, ignored bool) error {
	nics, err := ignoredNICs(ns)
	if err != nil {
		return err
	}
	nics = slices.DeleteFunc(nics, func(n string) bool { return n == nic })
	if ignored {
		nics = append(nics, nic)
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	t, chain := table()
	c.AddTable(t)
	c.DelTable(t)
	if len(nics) > 0 {
		c.AddTable(t)
		c.AddChain(chain)
	}
	for _, n := range nics {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: dropFrom(n), UserData: userdata.AppendString(nil, userdata.TypeComment, n)})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", tableName, err)
	}
	return nil
}

func dropFrom(nic string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, nic)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}
