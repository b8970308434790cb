package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// releasedType is the type of an interface that the switch must not use for a time. Open vSwitch knows no such type: the switch releases the
// port, and the row and the link stay.
const releasedType = "coe-released"

// Replace gives the port that has an OpenFlow number another one, and marks it as Replaced. In between the switch does not have the port,
// until gone returns or ctx ends. If the process is killed meanwhile, the next agent gives the port back to the switch. A port with the same name
// and another number stays as it is: it is that of another sandbox. released is set if the switch has released the port, also if Replace fails
// then.
func (s *Switch) Replace(ctx context.Context, name string, number uint32, gone func(context.Context)) (released bool, err error) {
	released, err = s.replace(ctx, name, number, gone)
	if err != nil {
		err = fmt.Errorf("replace port %s: %w", name, err)
	}
	return released, err
}

func (s *Switch) replace(ctx context.Context, name string, number uint32, gone func(context.Context)) (released bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	row, err := one.Interface(name)
	if err != nil {
		return false, err
	}
	if row == nil || row.Ofport == nil || *row.Ofport != int(number) {
		return false, errNotTheSame
	}
	s.replacing.Store(&name)
	defer s.replacing.Store(nil)
	s.numbers.keep(row) // OpenDaylight learns that this number is gone
	next, err := s.numbers.next(one, name)
	if err != nil {
		return false, fmt.Errorf("choose its number: %w", err)
	}
	taken, err := s.takeBack(ctx, one, name, number)
	if err == nil && !taken {
		return false, errNotTheSame
	}
	if err == nil {
		gone(ctx)
	}
	count, failed := s.giveBack(ctx, ovsdb.Row{"ofport_request": next}, ovsdb.NewCondition("name", ovsdb.ConditionEqual, name))
	if failed == nil && count == 0 && taken {
		failed = errNotTheSame
	}
	return taken || count > 0, errors.Join(err, failed) // without an answer to takeBack, the switch can have released the port all the same
}

var errNotTheSame = errors.New("the switch has it no longer, or has another one of the same name")

// takeBack makes the switch release the port that has an OpenFlow number, and waits for the switch. taken is false if no port has the name and the number.
func (s *Switch) takeBack(ctx context.Context, one *session.Session, name string, number uint32) (taken bool, err error) {
	row, err := one.Root()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	is := []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name), ovsdb.NewCondition("ofport", ovsdb.ConditionEqual, int(number))}
	mark := ovsdb.OvsMap{GoMap: map[any]any{vif.KeyReplaced: "true"}}
	ops := []ovsdb.Operation{
		{
			Op: ovsdb.OperationMutate, Table: "Interface", Where: is,
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, mark)},
		},
		updateInterfaces(ovsdb.Row{"type": releasedType}, is),
	}
	results, err := one.Transact(ctx, append(ops, (&topRow{row}).demand()...)...)
	if err != nil || results[0].Count == 0 {
		return false, err
	}
	return true, s.awaitConfiguration(ctx, demanded(results))
}

// probe makes a transaction. That of the agent gives ports back to the switch: all that are released, without the one that this process is
// replacing. Their replacement was interrupted, or the database did not answer at its end.
func (s *Switch) probe(ctx context.Context, one *session.Session) error {
	if !s.cfg.GivesBack {
		_, err := one.Transact(ctx)
		return err
	}
	var others []ovsdb.Condition
	if name := s.replacing.Load(); name != nil {
		others = append(others, ovsdb.NewCondition("name", ovsdb.ConditionNotEqual, *name))
	}
	count, err := giveBack(ctx, one, ovsdb.Row{}, others...)
	if count > 0 {
		s.log.Info("gave the switch ports back that were being replaced", "ports", count)
	}
	return err
}

// giveBack lets the switch use released ports again, also if ctx has ended, and returns their number. row has what else changes.
func (s *Switch) giveBack(ctx context.Context, row ovsdb.Row, of ...ovsdb.Condition) (count int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	one, err := s.session(ctx) // possibly another one: the server was restarted
	if err != nil {
		return 0, err
	}
	return giveBack(ctx, one, row, of...)
}

func giveBack(ctx context.Context, one *session.Session, row ovsdb.Row, of ...ovsdb.Condition) (count int, err error) {
	row["type"] = ""
	results, err := one.Transact(ctx, updateInterfaces(row, append(of, ovsdb.NewCondition("type", ovsdb.ConditionEqual, releasedType))))
	if err != nil {
		return 0, err
	}
	return results[0].Count, nil
}

func updateInterfaces(row ovsdb.Row, of []ovsdb.Condition) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Interface", Where: of, Row: row}
}
