package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Management is how OpenDaylight manages a switch. The zero value means not at all, as far
// as the agent is concerned: managers that others have set stay.
type Management struct {
	// Managers are the addresses at which OpenDaylight accepts switches, tcp:HOST:PORT or
	// ssl:HOST:PORT: one, or all members of a cluster.
	Managers []string
	// Tunnels is the node's tunnel address. It is set when OpenDaylight programs the bridge: it loses tunnels that it creates earlier
	// (decision 103).
	Tunnels netip.Addr
	// Settled reports whether OpenDaylight has stopped to write flows to the bridge. Nil: it always has.
	Settled func(context.Context) bool
	// Empty reports whether the bridge has no flows. Nil: it has some.
	Empty func(context.Context) bool
	// KeepARP makes the bridge keep ARP packets from OpenDaylight. Nil: nothing does.
	KeepARP func(context.Context) error
}

// Keys in the database that mark our management.
const (
	keyManager = "coe-manager"  // marks managers
	keyTunnels = "coe-local-ip" // the tunnel address that we set, perhaps later
	keyLocalIP = "local_ip"     // in other_config; ours if equal to the value of keyTunnels
)

// openFlow13 is the OpenFlow version that OpenDaylight supports. Without this setting the
// switch negotiates a newer version that OpenDaylight does not fully support.
const openFlow13 = "OpenFlow13"

// managerProbe is the inactivity probe of a manager in milliseconds. OpenDaylight is silent
// for longer than the default of five seconds when it starts on a busy machine.
const managerProbe = 30_000

// Manage makes the switch have as much of this management as it can have now, in one transaction, and reports whether it
// changed anything. If our managers are removed, it also removes the controllers and
// tunnels that they have set up.
func (s *Switch) Manage(ctx context.Context, m Management) (changed bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ops, err := s.management(ctx, one, m)
	if err == nil && len(ops) > 0 {
		_, err = one.Transact(ctx, ops...)
	}
	if err != nil {
		return false, fmt.Errorf("set the switch's managers: %w", err)
	}
	return len(ops) > 0, nil
}

// management returns the operations that establish m; none if the switch already has it.
func (s *Switch) management(ctx context.Context, one *session.Session, m Management) ([]ovsdb.Operation, error) {
	row, err := one.Root()
	if err != nil {
		return nil, err
	}
	top := &topRow{row}
	rows, err := managers(one)
	if err != nil {
		return nil, err
	}
	ops, err := addManagers(one, top, rows, m.Managers)
	if err != nil {
		return nil, err
	}
	gone := m.noMore(rows)
	if len(gone) > 0 {
		ops = append(ops, top.change("manager_options", ovsdb.MutateOperationDelete, uuids(gone...)))
	}
	ops = append(ops, top.setTunnels(m.Tunnels, row.OtherConfig[keyLocalIP] != "" || s.hasFlows(ctx, one, m))...)
	if len(m.Managers) == 0 {
		ops = append(append(ops, top.unset(keyIdentity)...), top.unset(keyControllers)...)
	}
	var ofBridge []ovsdb.Operation
	switch {
	case len(m.Managers) > 0:
		ofBridge = s.speakOpenFlow13(one)
		if s.isAway(one, rows, m.Managers) {
			var marks []ovsdb.Operation
			marks, err = markTunnels(ctx, one, row.OtherConfig[keyLocalIP])
			ofBridge = append(ofBridge, marks...)
		}
	case len(gone) > 0:
		ofBridge, err = s.release(ctx, one, top.ExternalIDs[keyTunnels])
	}
	return append(ops, ofBridge...), err
}

// hasFlows reports whether OpenDaylight is connected to the bridge, which has flows.
func (s *Switch) hasFlows(ctx context.Context, one *session.Session, m Management) bool {
	return s.programmed(one) == nil && (m.Empty == nil || !m.Empty(ctx))
}

// noMore returns our managers that are not wanted any more.
func (m Management) noMore(rows []*vswitch.Manager) (uuids []string) {
	for _, row := range rows {
		if row.ExternalIDs[keyManager] != "" && !slices.Contains(m.Managers, row.Target) {
			uuids = append(uuids, row.UUID)
		}
	}
	return uuids
}

// speakOpenFlow13 limits the bridge to OpenFlow 1.3. If there is no bridge, OpenDaylight
// creates it, and the change of the row causes another check.
func (s *Switch) speakOpenFlow13(one *session.Session) []ovsdb.Operation {
	b, err := one.Bridge(s.cfg.Bridge)
	if err != nil || slices.Equal(b.Protocols, []string{openFlow13}) {
		return nil
	}
	return []ovsdb.Operation{s.updateBridge(ovsdb.Row{"protocols": ovsdb.OvsSet{GoSet: []any{openFlow13}}})}
}

func (s *Switch) updateBridge(row ovsdb.Row) ovsdb.Operation {
	is := ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)
	return ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Bridge", Where: []ovsdb.Condition{is}, Row: row}
}

// addManagers adds the missing managers.
func addManagers(one *session.Session, top *topRow, rows []*vswitch.Manager, targets []string) (ops []ovsdb.Operation, err error) {
	probe := managerProbe
	for i, target := range targets {
		if slices.ContainsFunc(rows, func(row *vswitch.Manager) bool { return row.Target == target }) {
			continue
		}
		row := &vswitch.Manager{
			UUID: fmt.Sprintf("manager%d", i), Target: target, InactivityProbe: &probe, ExternalIDs: map[string]string{keyManager: "agent"},
		}
		insert, err := one.Create(row)
		if err != nil {
			return nil, err
		}
		ops = append(append(ops, insert...), top.change("manager_options", ovsdb.MutateOperationInsert, uuids(row.UUID)))
	}
	return ops, nil
}

// topRow is the single row of Open_vSwitch.
type topRow struct{ *vswitch.OpenvSwitch }

func (r *topRow) change(column string, mutator ovsdb.Mutator, value any) ovsdb.Operation {
	return mutation("Open_vSwitch", "_uuid", ovsdb.UUID{GoUUID: r.UUID}, column, mutator, value)
}

// set sets a key of a map column; an empty value removes the key.
func (r *topRow) set(column, key, value string) []ovsdb.Operation {
	ops := []ovsdb.Operation{r.change(column, ovsdb.MutateOperationDelete, ovsdb.OvsSet{GoSet: []any{key}})}
	if value != "" {
		ops = append(ops, r.change(column, ovsdb.MutateOperationInsert, ovsdb.OvsMap{GoMap: map[any]any{key: value}}))
	}
	return ops
}

// unset removes a key of external_ids if it exists.
func (r *topRow) unset(key string) []ovsdb.Operation {
	if _, there := r.ExternalIDs[key]; !there {
		return nil
	}
	return r.set("external_ids", key, "")
}

// setTunnels sets the tunnel address, or only notes it while OpenDaylight could lose the tunnels. An invalid address removes ours.
func (r *topRow) setTunnels(from netip.Addr, now bool) []ovsdb.Operation {
	want, has, ours := "", r.OtherConfig[keyLocalIP], r.ExternalIDs[keyTunnels]
	if from.IsValid() {
		want = from.String()
	}
	if want == ours && (want == has || want == "" || !now) {
		return nil
	}
	ops := r.set("external_ids", keyTunnels, want)
	if want != "" && now || want == "" && has == ours {
		ops = append(ops, r.set("other_config", keyLocalIP, want)...)
	}
	return ops
}

// release removes what our former managers have set up: the bridge's controllers and
// protocols, and the tunnels that start at address from.
func (s *Switch) release(ctx context.Context, one *session.Session, from string) ([]ovsdb.Operation, error) {
	none := ovsdb.OvsSet{GoSet: []any{}}
	ops := []ovsdb.Operation{s.updateBridge(ovsdb.Row{"controller": none, "protocols": none})}
	tunnels, err := tunnelsFrom(ctx, one, from)
	for _, t := range tunnels {
		port := &vswitch.Port{Name: t.name}
		if one.Get(port) == nil {
			ops = append(ops, mutation("Bridge", "name", s.cfg.Bridge, "ports", ovsdb.MutateOperationDelete, uuids(port.UUID)))
		}
	}
	return ops, err
}
