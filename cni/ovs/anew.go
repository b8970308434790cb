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

// startAnew has the bridge forget what it was programmed with from another datastore than that
// of an identity, and takes note of that. The numbers that OpenDaylight gives to groups begin
// anew with its datastore; a switch refuses those that it has, and flows then lead to what
// these were before. Where nothing was noted yet it is the first datastore, and nothing is
// forgotten; an empty identity is one that is not known. While OpenDaylight does not program the
// bridge nothing is forgotten either, for it would not come back.
//
// Open vSwitch forgets flows and groups when it has no controller any more. They are noted in
// the database meanwhile, so whoever comes after a crash gives them back. Once they are taken
// away they are given back though ctx ends.
func (s *Switch) startAnew(ctx context.Context, identity string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	row, err := one.root()
	if err != nil {
		return err
	}
	top := &topRow{row}
	was, taken := top.ExternalIDs[keyIdentity], top.ExternalIDs[keyControllers]
	if identity == "" {
		identity = was
	}
	switch {
	case taken != "":
	case identity == was, was != "" && s.programmed(one) != nil:
		return nil
	case was != "":
		s.log.Warn("OpenDaylight has another datastore than before: the bridge forgets what it was programmed with", "bridge", s.cfg.Bridge, "datastore", identity)
		ctx = context.WithoutCancel(ctx)
		if taken, err = s.takeControllers(ctx, one, top); err != nil {
			return fmt.Errorf("have bridge %s forget what a former datastore of OpenDaylight made: %w", s.cfg.Bridge, err)
		}
	}
	if err := s.giveControllers(ctx, one, top, taken, identity); err != nil {
		return fmt.Errorf("give bridge %s its controllers back: %w", s.cfg.Bridge, err)
	}
	return nil
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
	// In its other mode a bridge that has no controllers forwards whatever comes.
	none := ovsdb.Row{"controller": ovsdb.OvsSet{GoSet: []any{}}, "fail_mode": "secure"}
	_, err = one.transact(ctx, append(s.whileControlledBy(has, none), top.set("external_ids", keyControllers, string(text))...)...)
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
			s.log.Error("what is noted of the bridge's controllers can't be read: set them with ovs-vsctl set-controller", "bridge", s.cfg.Bridge, "noted", taken, "err", err)
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
		ops = append(ops, s.whileControlledBy(has, ovsdb.Row{"controller": uuids(names...)})...)
	}
	if taken != "" { // another that comes late is for the next time
		ops = append(ops, top.set("external_ids", keyControllers, "")...)
	}
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

// whileControlledBy changes the bridge, if it has these controllers still.
func (s *Switch) whileControlledBy(has ovsdb.OvsSet, row ovsdb.Row) []ovsdb.Operation {
	at := 0
	return []ovsdb.Operation{{
		Op: ovsdb.OperationWait, Table: "Bridge", Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)},
		Columns: []string{"controller"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"controller": has}}, Timeout: &at,
	}, s.updateBridge(row)}
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
