package porttables

import (
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// reread reads the table, and sets what it has of groups that differ. If it is not whole, it has nothing.
func (t *table) reread(c *nftables.Conn, keepHosts bool) error {
	have, err := t.read(c)
	if err != nil {
		return err
	}
	if keepHosts && have != nil {
		t.adopted = true
		are := maps.Clone(have)
		maps.DeleteFunc(are, func(g nodeports.Group, _ []nodeports.Element) bool { return g.Set != nodeports.HostPorts })
		t.replace(nodeports.HostPorts, are)
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
	return nil
}

// read reads whether the table exists, its rules, and its content: nil if it is not whole.
func (t *table) read(c *nftables.Conn) (have nodeports.Content, err error) {
	t.exists, t.whole, t.ruled, t.texts = false, false, false, nil
	all, err := c.ListTablesOfFamily(t.family.Table().Family)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == nodeports.TableName }) {
		return nil, nil
	}
	t.exists, t.found = true, true
	if whole, err := t.hasSets(c); !whole || err != nil {
		return nil, err
	}
	have = nodeports.Content{}
	if whole, err := t.readRules(c, have); !whole || err != nil {
		return nil, err
	}
	for _, set := range t.family.ContentSets() {
		list, err := c.GetSetElements(set)
		if err != nil {
			return nil, fmt.Errorf("list nftables set %s: %w", set.Name, err)
		}
		have.Read(t.family, set, list)
	}
	have.Sort()
	t.whole = true
	return have, nil
}

// hasSets reports whether the table has exactly the sets of the package.
func (t *table) hasSets(c *nftables.Conn) (bool, error) {
	are, err := c.GetSets(t.family.Table())
	if err != nil {
		return false, fmt.Errorf("list nftables sets: %w", err)
	}
	name := func(s *nftables.Set) string {
		if s.DataType.Name == nftables.TypeVerdict.Name { // the library reads this type as that of the key
			return s.Name + " " + s.DataType.Name + " "
		}
		return s.Name + " " + s.KeyType.Name + " " + s.DataType.Name
	}
	return slices.Equal(sorted(are, name), sorted(t.family.Sets(), name)), nil
}

// readRules reads the texts of the rules, and compares them with the wanted ones. It adds the chains of ports with affinity to the
// content. It reports false if a chain is of
// another kind, or is one that elements of others may name: the rules alone cannot be replaced then.
func (t *table) readRules(c *nftables.Conn, have nodeports.Content) (whole bool, err error) {
	are, err := c.ListChainsOfTableFamily(t.family.Table().Family)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	want := map[string]nodeports.Chain{}
	for _, one := range t.node().Chains() {
		want[one.Name] = one
	}
	t.texts, t.ruled = map[string][]string{}, true
	for _, is := range are {
		if is.Table.Name != nodeports.TableName {
			continue
		}
		texts, err := t.ruleTexts(is.Name)
		if err != nil {
			return false, err
		}
		if have.ReadChain(t.family, is.Name, texts) {
			if is.Hooknum != nil {
				return false, nil
			}
			continue
		}
		one, stays := want[is.Name]
		if stays && !sameChain(is, one) || !stays && is.Hooknum == nil {
			return false, nil
		}
		t.texts[is.Name] = texts
		t.ruled = t.ruled && stays && slices.Equal(texts, one.Texts())
	}
	t.ruled = t.ruled && len(t.texts) == len(want)
	return true, nil
}

func sorted[T any](all []T, text func(T) string) []string {
	var texts []string
	for _, one := range all {
		texts = append(texts, text(one))
	}
	slices.Sort(texts)
	return texts
}

func sameChain(is *nftables.Chain, want nodeports.Chain) bool {
	if is.Name != want.Name || is.Type != want.Type || (is.Hooknum == nil) != (want.Hooknum == nil) {
		return false
	}
	return want.Hooknum == nil || *is.Hooknum == *want.Hooknum && is.Priority != nil && *is.Priority == *want.Priority
}

// Generation returns the generation of nftables in a network namespace, which increases by one with
// each transaction.
func Generation(ns netns.NsHandle) (uint32, error) {
	messages, err := query(ns, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, unix.AF_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	for _, m := range messages {
		for _, a := range m {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binaryutil.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("read the generation of nftables: the kernel did not answer")
}

// ruleTexts returns the texts of the rules of a chain. The kernel walks all rules that were asked for again for each message of its
// answer, so the rules of the whole table are not asked for at once.
func (t *table) ruleTexts(chain string) (texts []string, err error) {
	rules, err := links.Dump(func() ([][]syscall.NetlinkRouteAttr, error) {
		return query(t.cfg.Netns, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, t.family.Number,
			nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(nodeports.TableName)), nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(chain)))
	})
	if err != nil {
		return nil, fmt.Errorf("list nftables rules: %w", err)
	}
	for _, r := range rules {
		text := ""
		for _, a := range r {
			if a.Attr.Type == unix.NFTA_RULE_USERDATA {
				text, _ = userdata.GetString(a.Value, userdata.TypeComment)
			}
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// query sends a request to nftables, and returns the attributes of the answers.
func query(ns netns.NsHandle, message, flags, family int, attributes ...nl.NetlinkRequestData) (all [][]syscall.NetlinkRouteAttr, err error) {
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	defer socket.Close()
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0})
	for _, a := range attributes {
		request.AddData(a)
	}
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range answers {
		one, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
