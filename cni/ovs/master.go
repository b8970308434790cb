package ovs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

const (
	// masterAgain is the time between two members that are disconnected because there is no master.
	masterAgain = 10 * time.Second
	// masterPause is how long a member stays disconnected: OpenDaylight must choose another master.
	masterPause = 3 * time.Second
)

// mastery is the search for the master of the bridge.
type mastery struct {
	due  time.Time // when a member is disconnected; zero while there is a master
	next int       // the member to disconnect
}

// findMaster disconnects a member of OpenDaylight for some seconds if none has been the master of the bridge for a time. In a cluster of
// OpenDaylights one member owns each switch, and is its master. After a member was frozen or separated, it can own a switch without
// becoming its master. Then nobody programs the switch, until the member is disconnected and another one becomes the owner. The switch
// does not know the owner, so findMaster disconnects one after the other. The switch keeps its flows, because other members stay
// connected.
func (s *Switch) findMaster(ctx context.Context, search *mastery) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	root, err := one.root()
	if err != nil {
		return err
	}
	has, rows, err := s.controllerRows(ctx, one)
	if err != nil {
		return err
	}
	var members []string
	for _, row := range rows {
		if row["role"] == "master" {
			search.due = time.Time{}
			return nil
		}
		if row["is_connected"] == true {
			members = append(members, targetOf(row))
		}
	}
	now := time.Now()
	switch {
	case len(members) < 2:
		search.due = time.Time{}
		return nil
	case search.due.IsZero():
		search.due = now.Add(s.cfg.MasterWait)
		return nil
	case now.Before(search.due):
		return nil
	}
	slices.Sort(members)
	member := members[search.next%len(members)]
	search.next++
	s.log.Warn("no member of OpenDaylight is the master of the bridge; disconnecting one for some seconds", "bridge", s.cfg.Bridge, "member", member)
	top := &topRow{root}
	ctx = context.WithoutCancel(ctx) // the member must come back
	taken, err := s.takeControllers(ctx, one, top, has, rows, func(target string) bool { return target == member })
	if err == nil {
		err = s.giveControllers(ctx, one, top, taken, top.ExternalIDs[keyIdentity], masterPause)
	}
	search.due = time.Now().Add(masterAgain)
	if err != nil {
		return fmt.Errorf("reconnect bridge %s to %s: %w", s.cfg.Bridge, member, err)
	}
	return nil
}

// controllerRows reads the bridge's controllers from the database: their UUIDs, and their rows in the same order. Without a bridge there
// are none.
func (s *Switch) controllerRows(ctx context.Context, one *session) (has ovsdb.OvsSet, rows []ovsdb.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if has, err = s.controllers(ctx, one); err != nil {
		return has, nil, err
	}
	for _, uuid := range has.GoSet {
		is := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, uuid)
		results, err := one.transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Controller", Where: []ovsdb.Condition{is}})
		if err != nil {
			return has, nil, err
		}
		if len(results[0].Rows) != 1 {
			return has, nil, errControllersChanged
		}
		rows = append(rows, results[0].Rows[0])
	}
	return has, rows, nil
}
