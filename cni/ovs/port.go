package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Ports returns our ports, sorted by name.
func (s *Switch) Ports(ctx context.Context) ([]vif.Port, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*vswitch.Interface
	if err := one.List(&rows); err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	var ports []vif.Port
	for _, row := range rows {
		if p, ok := vif.PortOf(row.Name, row.ExternalIDs); ok {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b vif.Port) int { return cmp.Compare(a.Name, b.Name) })
	return ports, nil
}

// Find returns the port of an attachment; ok is false if there is none. It copies only this
// row: with hundreds of ports, copying all would take most of a call's time.
func (s *Switch) Find(ctx context.Context, of vif.Attachment) (p vif.Port, ok bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return vif.Port{}, false, err
	}
	var rows []*vswitch.Interface
	is := func(row *vswitch.Interface) bool { return vif.IsOf(row.ExternalIDs, of) }
	if err := one.Where(is, &rows); err != nil {
		return vif.Port{}, false, fmt.Errorf("find port of container %s: %w", of.Container, err)
	}
	if len(rows) == 0 {
		return vif.Port{}, false, nil
	}
	p, ok = vif.PortOf(rows[0].Name, rows[0].ExternalIDs)
	return p, ok, nil
}

// Port returns our port with a name; ok is false if there is none.
func (s *Switch) Port(ctx context.Context, name string) (p vif.Port, ok bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return vif.Port{}, false, err
	}
	row, err := one.Interface(name)
	if row == nil {
		return vif.Port{}, false, err
	}
	p, ok = vif.PortOf(row.Name, row.ExternalIDs)
	return p, ok, nil
}

// Add adds a port in one transaction. Its link must exist, and must be newer than
// AwaitDeletions. After an error the port may exist; Delete removes it.
func (s *Switch) Add(ctx context.Context, p vif.Port) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	return s.add(ctx, one, p.Name, p.ExternalIDs())
}

// add adds a port with external_ids.
func (s *Switch) add(ctx context.Context, one *session.Session, name string, ids map[string]string) error {
	iface := &vswitch.Interface{UUID: "interface", Name: name, ExternalIDs: ids}
	if s.cfg.Controller == OpenDaylight {
		number, err := s.numbers.next(one, name)
		if err != nil {
			return fmt.Errorf("choose the number of port %s: %w", name, err)
		}
		iface.OfportRequest = &number
	}
	ops, err := additions(one, s.cfg.Bridge, iface)
	if err != nil {
		return fmt.Errorf("add port %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.Transact(ctx, ops...)
	if err != nil {
		return fmt.Errorf("add port %s: %w", name, err)
	}
	if results[len(results)-1].Count == 0 {
		return fmt.Errorf("add port %s: the switch has no bridge %s; %s", name, s.cfg.Bridge, s.cfg.Controller.hint())
	}
	return nil
}

func additions(one *session.Session, bridge string, iface *vswitch.Interface) ([]ovsdb.Operation, error) {
	port := &vswitch.Port{UUID: "port", Name: iface.Name, Interfaces: []string{iface.UUID}}
	ops, err := one.Create(iface)
	if err != nil {
		return nil, err
	}
	ofPort, err := one.Create(port)
	if err != nil {
		return nil, err
	}
	return append(append(ops, ofPort...), mutation("Bridge", "name", bridge, "ports", ovsdb.MutateOperationInsert, uuids(port.UUID))), nil
}

// Delete removes a port if it belongs to an attachment, and waits until it is gone. A
// missing port is not an error.
func (s *Switch) Delete(ctx context.Context, name string, of vif.Attachment) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.remove(ctx, one, name, func(ids map[string]string) bool { return vif.IsOf(ids, of) }); err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return s.await(ctx, name, func(one *session.Session) error {
		row, err := one.Interface(name)
		if err != nil || row == nil {
			return err
		}
		if p, _ := vif.PortOf(row.Name, row.ExternalIDs); !p.Attachment.Same(of) {
			return nil
		}
		return errors.New("the port is still in the database")
	})
}

// remove removes a port of ours. It uses the local copy if the server still agrees.
// Otherwise it asks the server, because the copy possibly lacks a new port.
func (s *Switch) remove(ctx context.Context, one *session.Session, name string, ours func(ids map[string]string) bool) error {
	row, err := one.Interface(name)
	if err != nil {
		return err
	}
	if row != nil && ours(row.ExternalIDs) {
		s.numbers.keep(row)
	}
	if port := uuidOfPort(one, name, ours); port != "" && s.detach(ctx, one, name, port) == nil {
		return nil
	}
	named := ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)
	found, err := one.Transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Interface", Where: []ovsdb.Condition{named}, Columns: []string{"external_ids"}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Port", Where: []ovsdb.Condition{named}, Columns: []string{"_uuid"}})
	if err != nil {
		return err
	}
	if len(found[0].Rows) == 0 || len(found[1].Rows) == 0 {
		return nil
	}
	if ids, _ := found[0].Rows[0]["external_ids"].(ovsdb.OvsMap); !ours(texts(ids)) {
		return nil
	}
	port, _ := found[1].Rows[0]["_uuid"].(ovsdb.UUID)
	return s.detach(ctx, one, name, port.GoUUID)
}

// uuidOfPort returns the UUID of our port in the local copy; empty if there is none.
func uuidOfPort(one *session.Session, name string, ours func(ids map[string]string) bool) (uuid string) {
	row, err := one.Interface(name)
	if err != nil || row == nil || !ours(row.ExternalIDs) {
		return ""
	}
	port := &vswitch.Port{Name: name}
	if err := one.Get(port); err != nil {
		return ""
	}
	return port.UUID
}

// detach removes a port from the bridge, which deletes it. It fails if the port does not
// exist.
func (s *Switch) detach(ctx context.Context, one *session.Session, name, port string) error {
	row, err := one.Root()
	if err != nil {
		return err
	}
	at := 0
	ops := []ovsdb.Operation{
		{
			Op: ovsdb.OperationWait, Table: "Port", Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: port})},
			Columns: []string{"name"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"name": name}}, Timeout: &at,
		},
		mutation("Bridge", "name", s.cfg.Bridge, "ports", ovsdb.MutateOperationDelete, uuids(port)),
	}
	_, err = one.Transact(ctx, append(ops, (&topRow{row}).demand()...)...)
	return err
}

// demand returns the operations that request a new configuration number, and read it. The
// switch reports the number once it has applied the configuration.
func (r *topRow) demand() []ovsdb.Operation {
	return []ovsdb.Operation{r.change("next_cfg", ovsdb.MutateOperationAdd, 1), r.readNext()}
}

func (r *topRow) readNext() ovsdb.Operation {
	is := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: r.UUID})
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Columns: []string{"next_cfg"}, Where: []ovsdb.Condition{is}}
}

// demanded returns the configuration number that the last operation has read.
func demanded(results []ovsdb.OperationResult) int {
	rows := results[len(results)-1].Rows
	if len(rows) != 1 {
		return 0
	}
	next, _ := rows[0]["next_cfg"].(float64)
	return int(next)
}

// texts returns the strings of a map column.
func texts(m ovsdb.OvsMap) map[string]string {
	out := make(map[string]string, len(m.GoMap))
	for key, value := range m.GoMap {
		k, _ := key.(string)
		out[k], _ = value.(string)
	}
	return out
}

func mutation(table, by string, name any, column string, mutator ovsdb.Mutator, value any) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: table, Where: []ovsdb.Condition{ovsdb.NewCondition(by, ovsdb.ConditionEqual, name)},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, mutator, value)},
	}
}

func uuids(rows ...string) ovsdb.OvsSet {
	set := ovsdb.OvsSet{GoSet: make([]any, len(rows))}
	for i, row := range rows {
		set.GoSet[i] = ovsdb.UUID{GoUUID: row}
	}
	return set
}
