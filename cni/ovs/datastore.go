package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
)

// External IDs of the switch that belong to the handling of OpenDaylight's datastore.
const (
	// keyIdentity is the identity of the datastore that OpenDaylight programs the bridge from.
	keyIdentity = "coe-identity"
	// keyControllers saves the bridge's controllers while they are removed.
	keyControllers = "coe-controllers"
)

// forgetPause is how long the bridge has no controllers: OpenDaylight must notice that it
// was disconnected.
const forgetPause = time.Second

// settleLimit bounds the wait until OpenDaylight has stopped to write flows.
const settleLimit = 3 * time.Minute

// errUnsettled is why a bridge is not cleared yet.
var errUnsettled = errors.New("OpenDaylight has a new datastore and still writes flows")

// settling is the wait until OpenDaylight has stopped to write the flows of a new datastore.
type settling struct {
	identity string
	since    time.Time
}

// isOver reports whether the bridge may be cleared for a datastore. The question to the switch has a timeout.
func (w *settling) isOver(ctx context.Context, settled func(context.Context) bool, identity string, timeout time.Duration) bool {
	if w.identity != identity {
		w.identity, w.since = identity, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return settled == nil || settled(ctx) || time.Since(w.since) > settleLimit
}

// useDatastore clears the bridge if OpenDaylight programs it from another datastore than
// before, and records the identity of the datastore. A new datastore assigns the IDs of
// OpenFlow groups again. The switch refuses groups that it already has, and flows would then
// use the old groups.
//
// Nothing is cleared for the first identity, for an empty (unknown) identity, or while
// OpenDaylight does not program the bridge, because nothing would restore the flows. While OpenDaylight still writes flows,
// useDatastore fails with errUnsettled: the flows that OpenDaylight computes while the switch is disconnected never come.
//
// Open vSwitch deletes flows and groups when it has no controller. The controllers are saved
// in the database meanwhile, so that an agent that starts after a crash can restore them.
// Once they are removed, useDatastore restores them even if ctx ends.
func (s *Switch) useDatastore(ctx context.Context, m Management, identity string, wait *settling) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	row, err := one.Root()
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
		has, err := s.controllers(ctx, one)
		if err != nil {
			return fmt.Errorf("read the controllers of bridge %s: %w", s.cfg.Bridge, err)
		}
		if len(has.GoSet) > 0 { // findMaster took one, so the bridge was not cleared
			identity = was
		}
	case identity == was, was != "" && s.programmed(one) != nil:
		return nil
	case was != "" && !wait.isOver(ctx, m.Settled, identity, s.cfg.Timeout):
		return errUnsettled
	case was != "":
		s.log.Warn("OpenDaylight has a new datastore; clearing the flows and groups of the bridge", "bridge", s.cfg.Bridge, "datastore", identity)
		ctx = context.WithoutCancel(ctx)
		has, rows, err := s.controllerRows(ctx, one)
		if err == nil {
			taken, err = s.takeControllers(ctx, one, top, has, rows, func(string) bool { return true })
		}
		if err != nil {
			return fmt.Errorf("clear bridge %s after a change of OpenDaylight's datastore: %w", s.cfg.Bridge, err)
		}
	}
	if err := s.giveControllers(ctx, one, top, taken, identity, forgetPause); err != nil {
		return fmt.Errorf("restore the controllers of bridge %s: %w", s.cfg.Bridge, err)
	}
	return nil
}

// errControllersChanged is why controllers are not removed.
var errControllersChanged = errors.New("its controllers changed meanwhile")

// takeControllers removes the controllers with some targets from the bridge. It returns all of its controllers in the form in which it
// saves them; empty if there are none.
func (s *Switch) takeControllers(ctx context.Context, one *session.Session, top *topRow, has ovsdb.OvsSet, rows []ovsdb.Row, takes func(target string) bool) (taken string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if len(rows) == 0 {
		return "", nil
	}
	left := ovsdb.OvsSet{GoSet: []any{}}
	for i, row := range rows {
		if !takes(targetOf(row)) {
			left.GoSet = append(left.GoSet, has.GoSet[i])
		}
		for _, readOnly := range []string{"_uuid", "_version", "is_connected", "role", "status"} {
			delete(row, readOnly)
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return "", err
	}
	// In fail mode standalone a bridge without controllers would forward all packets.
	without := ovsdb.Row{"controller": left, "fail_mode": "secure"}
	_, err = one.Transact(ctx, append(s.whileControlledBy(has, without), top.set("external_ids", keyControllers, string(text))...)...)
	s.steady.reset()
	return string(text), err
}

func targetOf(controller ovsdb.Row) string {
	target, _ := controller["target"].(string)
	return target
}

// giveControllers restores the saved controllers that are missing, unless the bridge has got others, and records the identity. It waits
// until the switch has noticed the removal, and then for a time.
func (s *Switch) giveControllers(ctx context.Context, one *session.Session, top *topRow, taken, identity string, wait time.Duration) error {
	var saved []ovsdb.Row
	if taken != "" {
		if err := json.Unmarshal([]byte(taken), &saved); err != nil {
			s.log.Error("cannot read the saved controllers of the bridge; set them with ovs-vsctl set-controller", "bridge", s.cfg.Bridge, "saved", taken, "err", err)
		}
		if err := s.reconfigured(ctx, one, top); err != nil {
			return err
		}
		pause(ctx, wait)
	}
	has, rows, err := s.controllerRows(ctx, one)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ops := s.restore(has, rows, saved)
	if taken != "" { // a late write of another agent stays for the next call
		ops = append(ops, top.set("external_ids", keyControllers, "")...)
	}
	_, err = one.Transact(ctx, append(ops, top.set("external_ids", keyIdentity, identity)...)...)
	return err
}

// restore returns the operations that add the saved controllers which the bridge does not have. There are none if it has others instead of
// them.
func (s *Switch) restore(has ovsdb.OvsSet, rows, saved []ovsdb.Row) (ops []ovsdb.Operation) {
	isAmong := func(all []ovsdb.Row) func(ovsdb.Row) bool {
		return func(row ovsdb.Row) bool {
			return slices.ContainsFunc(all, func(other ovsdb.Row) bool { return targetOf(other) == targetOf(row) })
		}
	}
	missing := slices.DeleteFunc(slices.Clone(saved), isAmong(rows))
	if len(missing) == 0 || len(rows) > 0 && len(missing) == len(saved) {
		return nil
	}
	all := ovsdb.OvsSet{GoSet: slices.Clone(has.GoSet)}
	for i, row := range missing {
		name := fmt.Sprintf("controller%d", i)
		ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Controller", UUIDName: name, Row: row})
		all.GoSet = append(all.GoSet, ovsdb.UUID{GoUUID: name})
	}
	return append(ops, s.whileControlledBy(has, ovsdb.Row{"controller": all})...)
}

// controllers reads the bridge's controllers from the database; none if there is no bridge.
func (s *Switch) controllers(ctx context.Context, one *session.Session) (ovsdb.OvsSet, error) {
	is := ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)
	results, err := one.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Bridge", Where: []ovsdb.Condition{is}, Columns: []string{"controller"}})
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

// whileControlledBy updates the bridge if it still has these controllers.
func (s *Switch) whileControlledBy(has ovsdb.OvsSet, row ovsdb.Row) []ovsdb.Operation {
	at := 0
	return []ovsdb.Operation{{
		Op: ovsdb.OperationWait, Table: "Bridge", Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, s.cfg.Bridge)},
		Columns: []string{"controller"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"controller": has}}, Timeout: &at,
	}, s.updateBridge(row)}
}

// reconfigured waits until the switch has applied the current configuration.
func (s *Switch) reconfigured(ctx context.Context, one *session.Session, top *topRow) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.Transact(ctx, top.demand()...)
	if err != nil {
		return err
	}
	return s.awaitConfiguration(ctx, demanded(results))
}
