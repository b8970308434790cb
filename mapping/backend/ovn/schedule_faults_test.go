package ovn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// fault is something that can happen to a database.
type fault struct {
	name string
	// begin returns what ends the fault; nil if it cannot happen now.
	begin func(t *testing.T) (end func())
}

// faults returns the faults of the database.
func (d *database) faults() []fault {
	all := []fault{
		{"killed", d.ofMember(member.Kill, member.Restart)},
		{"frozen", d.ofMember(member.Stop, member.Continue)},
		{"disk full", d.ofMember(member.FillDisk, d.freeDisk)},
		{"killed with a full disk", d.ofMember(
			func(m member, t testing.TB) { m.FillDisk(t); m.Kill(t) },
			func(m member, t testing.TB) { m.FreeDisk(t); d.restart(m, t) },
		)},
		{"all disks full", d.ofAll(member.FillDisk, d.freeDisk)},
		{"all killed", d.ofAll(member.Kill, member.Restart)},
		{"wiped", d.wipe},
		{"reset", d.reset},
		{"reset", d.reset},
		{"unreachable", d.unreachable},
		{"external writer", d.write},
		{"damage", d.damage},
		{"damage", d.damage},
	}
	if d.cluster != nil {
		all = append(all,
			fault{"isolated", d.ofMember(func(m member, t testing.TB) { m.(*ovsdb.Member).Isolate(t) }, func(m member, t testing.TB) { m.(*ovsdb.Member).Connect(t) })},
			fault{"election", d.elect}, fault{"election", d.elect},
		)
	}
	return all
}

// freeDisk ends a full disk. A member of a cluster that could not write takes no part until it is restarted.
func (d *database) freeDisk(m member, t testing.TB) {
	m.FreeDisk(t)
	if d.cluster != nil {
		d.restart(m, t)
	}
}

// restart restarts a server that had a full disk. A member of a cluster can have written that an entry is committed which it
// could not write. Then it refuses its data, and stays away until repair is called.
func (d *database) restart(m member, t testing.TB) {
	if d.cluster == nil {
		m.Restart(t)
	} else if m.TryRestart() != nil {
		d.broken = append(d.broken, m.(*ovsdb.Member))
	}
}

// repair replaces the members that refuse their data, or the whole cluster if no majority is left.
func (d *database) repair(t *testing.T) {
	switch broken := d.broken; len(broken) {
	case 0:
	case 1:
		d.cluster.Replace(t, broken[0])
	default:
		d.replace(t)
	}
	d.broken = nil
}

// ofMember returns a fault of the leader or, sometimes, of any member, that does not fail already.
func (d *database) ofMember(begin, end func(member, testing.TB)) func(*testing.T) func() {
	return func(t *testing.T) func() {
		m := d.choose(t)
		if m == nil {
			return nil
		}
		d.failing[m] = true
		begin(m, t)
		return func() {
			end(m, t)
			d.works(m)
		}
	}
}

// works notes that a member does not fail any more.
func (d *database) works(m member) {
	one, _ := m.(*ovsdb.Member)
	if !slices.Contains(d.broken, one) {
		delete(d.failing, m)
	}
}

// choose returns a member that does not fail, usually the leader; nil if all fail.
func (d *database) choose(t *testing.T) member {
	var healthy []member
	for _, m := range d.members {
		if d.failing[m] {
			continue
		}
		healthy = append(healthy, m)
		if one, ok := m.(*ovsdb.Member); ok && d.rng.IntN(4) > 0 && one.IsLeader(t) {
			return m
		}
	}
	if len(healthy) == 0 {
		return nil
	}
	return healthy[d.rng.IntN(len(healthy))]
}

// ofAll returns a fault of all members. It does not begin while one fails.
func (d *database) ofAll(begin, end func(member, testing.TB)) func(*testing.T) func() {
	return func(t *testing.T) func() {
		if len(d.failing) > 0 {
			return nil
		}
		for _, m := range d.members {
			d.failing[m] = true
			begin(m, t)
		}
		return func() {
			for _, m := range d.members {
				end(m, t)
				d.works(m)
			}
		}
	}
}

// wipe replaces the database by an empty one, to which the external writer adds its rows before the backend reaches it.
func (d *database) wipe(t *testing.T) func() {
	if len(d.failing) > 0 {
		return nil
	}
	d.replace(t)
	return func() {}
}

func (d *database) replace(t *testing.T) {
	for _, r := range d.relays {
		r.Refuse()
	}
	if d.cluster != nil {
		d.cluster.Wipe(t)
	} else {
		d.server.Wipe(t)
	}
	d.addExternal(t)
	for _, r := range d.relays {
		r.Admit()
	}
}

// reset cuts the connections in the middle of an answer.
func (d *database) reset(*testing.T) func() {
	for _, r := range d.relays {
		r.CutAfter(d.rng.IntN(5000))
	}
	return func() {}
}

// unreachable lets the backend reach no member.
func (d *database) unreachable(*testing.T) func() {
	for _, r := range d.relays {
		r.Refuse()
	}
	return func() {
		for _, r := range d.relays {
			r.Admit()
		}
	}
}

// elect lets the leader transfer its role: that is what a compaction begins with.
func (d *database) elect(t *testing.T) func() {
	for _, m := range d.cluster.Members {
		if !d.failing[m] && m.IsLeader(t) {
			if m.TryCompact() != nil { // nothing has changed since it was compacted
				return nil
			}
			return func() {}
		}
	}
	return nil
}

// nbctl runs commands of an external writer on a member that does not fail. They have no effect while the database
// does not accept writes.
func (d *database) nbctl(t *testing.T, args ...string) (string, bool) {
	m := d.choose(t)
	if m == nil {
		return "", false
	}
	out, err := m.TryNBCtl(append([]string{"--timeout=2"}, args...)...)
	return out, err == nil
}

// write lets the external writer change the row with the epoch, and a row of its own until restore is called.
func (d *database) write(t *testing.T) func() {
	set := func(value string) bool {
		_, ok := d.nbctl(t, "set", "NB_Global", ".", "options:x="+value, "external_ids:of_others="+value, "--", "set", "Address_Set", "external", "external_ids:x="+value)
		return ok
	}
	if !set(fmt.Sprint(d.rng.IntN(100))) {
		return nil
	}
	return func() {}
}

// restore lets the external writer change its rows back.
func (d *database) restore(t *testing.T) {
	require.Eventually(t, func() bool {
		_, ok := d.nbctl(t, "remove", "Address_Set", "external", "external_ids", "x")
		return ok
	}, *within, tick)
}

// damages are commands on a row of a table.
var damages = [][2]string{
	{"Logical_Switch_Port", "lsp-del %s"},
	{"Logical_Switch_Port", "lsp-del %s"},
	{"Logical_Switch_Port", "lsp-set-addresses %s unknown"},
	{"Logical_Switch_Port", "clear Logical_Switch_Port %s external_ids"},
	{"Logical_Switch", "ls-del %s"},
	{"Logical_Switch", "set Logical_Switch %s external_ids:x=y"},
	{"Logical_Router", "lr-del %s"},
	{"Logical_Router", "clear Logical_Router %s external_ids"},
	{"Load_Balancer", "lb-del %s"},
	{"Load_Balancer", "clear Load_Balancer %s vips"},
	{"ACL", "set ACL %s action=allow"},
	{"Port_Group", "pg-del %s"},
	{"Port_Group", "clear Port_Group %s ports"},
	{"Address_Set", "destroy Address_Set %s"},
	{"Address_Set", "clear Address_Set %s addresses"},
	{"DHCP_Options", "dhcp-options-del %s"},
	{"Logical_Switch", "remove NB_Global . external_ids coe-bridge/epoch"},
}

// damage lets the external writer change or delete a row of the bridge.
func (d *database) damage(t *testing.T) func() {
	one := damages[d.rng.IntN(len(damages))]
	find := []string{"--bare", "--columns=_uuid", "find", one[0], `external_ids:"coe-bridge/owner"=coe-bridge`}
	if kind := map[string]string{"Logical_Switch_Port": "interface", "Logical_Router": "vpn-instance"}[one[0]]; kind != "" {
		find = append(find, `external_ids:"coe-bridge/kind"=`+kind)
	}
	out, ok := d.nbctl(t, find...)
	if !ok {
		return nil
	}
	var rows []string
	for _, uuid := range strings.Fields(out) {
		if !d.uuids[uuid] {
			rows = append(rows, uuid)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	command := one[1]
	if strings.Contains(command, "%s") {
		command = fmt.Sprintf(command, rows[d.rng.IntN(len(rows))])
	}
	if _, ok := d.nbctl(t, strings.Fields(command)...); !ok {
		return nil
	}
	return func() {}
}
