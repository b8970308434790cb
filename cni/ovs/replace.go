package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// releasedType is the type of an interface that the switch must not use for a time. Open vSwitch knows no such type: the switch releases the
// port, and the row and the link stay.
const releasedType = "coe-released"

// Replace gives a port a new OpenFlow number. In between the switch does not have the port, until gone returns. If the process is killed
// meanwhile, the next connection gives the port back to the switch.
func (s *Switch) Replace(ctx context.Context, name string, gone func(context.Context)) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	number, err := s.numbers.next(one, name)
	if err != nil {
		return fmt.Errorf("choose the number of port %s: %w", name, err)
	}
	err = s.takeBack(ctx, one, name)
	if err == nil {
		gone(ctx)
	}
	if err := errors.Join(err, s.giveBack(ctx, one, ovsdb.Row{"ofport_request": number}, ovsdb.NewCondition("name", ovsdb.ConditionEqual, name))); err != nil {
		return fmt.Errorf("replace port %s: %w", name, err)
	}
	return nil
}

// takeBack makes the switch release a port, and waits until it has.
func (s *Switch) takeBack(ctx context.Context, one *session, name string) error {
	row, err := one.root()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	is := ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)
	ops := (&topRow{row}).demand()
	results, err := one.transact(ctx, append([]ovsdb.Operation{updateInterfaces(ovsdb.Row{"type": releasedType}, is)}, ops...)...)
	if err != nil {
		return err
	}
	return s.awaitConfiguration(ctx, demanded(results))
}

// giveBack lets the switch use released ports again, also if ctx has ended. row has what else changes.
func (s *Switch) giveBack(ctx context.Context, one *session, row ovsdb.Row, of ...ovsdb.Condition) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	row["type"] = ""
	_, err := one.transact(ctx, updateInterfaces(row, append(of, ovsdb.NewCondition("type", ovsdb.ConditionEqual, releasedType))...))
	return err
}

func updateInterfaces(row ovsdb.Row, of ...ovsdb.Condition) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Interface", Where: of, Row: row}
}
