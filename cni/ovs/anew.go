package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// What stands in the database of the datastore that OpenDaylight programs the bridge from.
const (
	// keyIdentity is the datastore's name.
	keyIdentity = "coe-identity"
	// keyControllers are the bridge's controllers while it has none, in order to forget.
	keyControllers = "coe-controllers"
)

// forgetPause is for how long the bridge has no controllers once it has forgotten: OpenDaylight
// has to see that it was away.
const forgetPause = time.Second

// settling is about another datastore that was told of. OpenDaylight still works out then what
// it is to program, and what it finds out while the switch is away never comes there: so the
// bridge forgets when nothing new was told for Config.Settle, and after six times that in any
// case.
type settling struct {
	identity     string // of the datastore
	begun, heard time.Time
}

const settleMost = 6

// left is how long it is to be waited yet.
func (w *settling) left(identity string, quiet time.Duration) time.Duration {
	now := time.Now()
	if w.identity != identity {
		*w = settling{identity: identity, begun: now, heard: now}
	}
	return max(0, min(w.heard.Add(quiet).Sub(now), w.begun.Add(settleMost*quiet).Sub(now)))
}

// startAnew has the bridge forget what it was programmed with from another datastore than that
// of an identity, and takes note of that; or tells how long it is to be waited with that. The numbers that OpenDaylight gives to groups begin
// anew with its datastore; a switch refuses those that it has, and flows then lead to what
// these were before. Where nothing was noted yet it is the first datastore, and nothing is
// forgotten; an empty identity is one that is not known.
//
// Open vSwitch forgets flows and groups when it has no controller any more. They are noted in
// the database meanwhile, so whoever comes after a crash gives them back.
func (s *Switch) startAnew(ctx context.Context, identity string, settles *settling) (again time.Duration, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	row, err := one.root()
	if err != nil {
		return 0, err
	}
	top := &topRow{row}
	was, taken := top.ExternalIDs[keyIdentity], top.ExternalIDs[keyControllers]
	if identity == "" {
		identity = was
	}
	switch {
	case taken != "":
	case identity == was:
		return 0, nil
	case was != "":
		if again = settles.left(identity, s.cfg.Settle); again > 0 {
			return again, nil
		}
		if taken, err = s.takeControllers(ctx, one, top); err != nil {
			return 0, fmt.Errorf("have bridge %s forget what a former datastore of OpenDaylight made: %w", s.cfg.Bridge, err)
		}
		s.log.Warn("OpenDaylight has another datastore than before: the bridge forgets what it was programmed with", "bridge", s.cfg.Bridge, "datastore", identity)
	}
	if err := s.giveControllers(ctx, one, top, taken, identity); err != nil {
		return 0, fmt.Errorf("give bridge %s its controllers back: %w", s.cfg.Bridge, err)
	}
	return 0, nil
}

// AwaitNetwork waits until the bridge is programmed from the datastore of an identity, and from
// no other; an empty one is any.
func (s *Switch) AwaitNetwork(ctx context.Context, identity string) error {
	if identity == "" {
		return nil
	}
	return s.await(ctx, root, func(one *session) error {
		row, err := one.root()
		switch {
		case err != nil:
			return err
		case row.ExternalIDs[keyIdentity] != identity || row.ExternalIDs[keyControllers] != "":
			return fmt.Errorf("bridge %s has not forgotten yet what a former datastore of OpenDaylight made", s.cfg.Bridge)
		}
		return s.Managed()
	})
}

// takeControllers takes the bridge's controllers away, and returns what is noted of them; empty
// where there are none.
func (s *Switch) takeControllers(ctx context.Context, one *session, top *topRow) (taken string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	has, err := s.controllers(ctx, one)
	if err != nil || len(has.GoSet) == 0 {
		return "", err
	}
	rows := make([]ovsdb.Row, len(has.GoSet))
	for i, uuid := range has.GoSet {
		is := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, uuid)
		results, err := one.transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Controller", Where: []ovsdb.Condition{is}})
		if err != nil {
			return "", err
		}
		if len(results[0].Rows) != 1 {
			return "", errors.New("its controllers change")
		}
		rows[i] = results[0].Rows[0]
		for _, told := range []string{"_uuid", "_version", "is_connected", "role", "status"} {
			delete(rows[i], told)
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return "", err
	}
	ops := append(s.replaceControllers(has, ovsdb.OvsSet{GoSet: []any{}}), top.set("external_ids", keyControllers, string(text))...)
	_, err = one.transact(ctx, ops...)
	return string(text), err
}

// giveControllers gives the bridge back those that were taken, once the switch has seen it
// without, unless somebody has given it others, and notes the identity.
func (s *Switch) giveControllers(ctx context.Context, one *session, top *topRow, taken, identity string) error {
	var (
		rows []ovsdb.Row
		ops  []ovsdb.Operation
	)
	if taken != "" {
		if err := json.Unmarshal([]byte(taken), &rows); err != nil {
			s.log.Error("what is noted of the bridge's controllers can't be read: OpenDaylight sets them when it connects anew", "err", err)
		}
		if err := s.reconfigured(ctx, one, top); err != nil {
			return err
		}
		pause(ctx, forgetPause)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	has, err := s.controllers(ctx, one)
	if err != nil {
		return err
	}
	if len(has.GoSet) == 0 && len(rows) > 0 {
		names := make([]string, len(rows))
		for i, row := range rows {
			names[i] = fmt.Sprintf("controller%d", i)
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Controller", UUIDName: names[i], Row: row})
		}
		ops = append(ops, s.replaceControllers(has, uuids(names...))...)
	}
	ops = append(ops, top.set("external_ids", keyControllers, "")...)
	_, err = one.transact(ctx, append(ops, top.set("external_ids", keyIdentity, identity)...)...)
	return err
}

// controllers are those of the bridge, as the database has them; none where there is no bridge.
func (s *Switch) controllers(ctx context.Context, one *session) (ovsdb.OvsSet, error) {
	is := ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)
	results, err := one.transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Bridge", Where: []ovsdb.Condition{is}, Columns: []string{"controller"}})
	if err != nil || len(results[0].Rows) == 0 {
		return ovsdb.OvsSet{}, err
	}
	switch has := results[0].Rows[0]["controller"].(type) {
	case ovsdb.OvsSet:
		return has, nil
	case ovsdb.UUID:
		return ovsdb.OvsSet{GoSet: []any{has}}, nil
	}
	return ovsdb.OvsSet{}, nil
}

// replaceControllers gives the bridge other controllers, if it has these still.
func (s *Switch) replaceControllers(has, wanted ovsdb.OvsSet) []ovsdb.Operation {
	at := 0
	return []ovsdb.Operation{{
		Op: ovsdb.OperationWait, Table: "Bridge", Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)},
		Columns: []string{"controller"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"controller": has}}, Timeout: &at,
	}, s.updateBridge(ovsdb.Row{"controller": wanted})}
}

// reconfigured waits until the switch has done what the database says now.
func (s *Switch) reconfigured(ctx context.Context, one *session, top *topRow) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.transact(ctx, top.demand()...)
	if err != nil {
		return err
	}
	return s.awaitConfiguration(ctx, demanded(results))
}
