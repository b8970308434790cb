package ovs

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// masterPause is how long a member stays disconnected: OpenDaylight must choose another master.
const masterPause = 3 * time.Second

// maxDoublings limits how many times the wait for a master doubles. It doubles when all members were disconnected in vain: an
// OpenDaylight with much to do must get the time to do it.
const maxDoublings = 3

// mastery is the search for the master of the bridge.
type mastery struct {
	due  time.Time // when a member is disconnected; zero unless all were slaves when last seen
	last string    // the member that was disconnected last
	// tries is how many times a member was disconnected since there was a master.
	tries int
	// master is the master of the bridge, and since when it was seen first without another one in between.
	master string
	since  time.Time
}

// findMaster disconnects a member of OpenDaylight for some seconds if nobody has programmed the bridge for a time. A bridge that a
// controller of others may program is left alone.
//
// In a cluster of OpenDaylights one member owns each switch, and is its master. After a member was frozen or separated, it can own a
// switch without becoming its master. Then all are slaves, until the member is disconnected and another one becomes the owner. The switch
// does not know the owner, so findMaster disconnects one after the other. The switch keeps its flows, because other members stay
// connected.
//
// On a busy machine an OpenDaylight can give up a switch that has just connected, without closing the connection. Then no member is
// the master, and the bridge has no flows.
//
// findMaster also disconnects the master if Reconnect has asked for that, once it has been the master for MasterWait: a new one has much to do, and Netvirt can wait
// for good for a request to a switch that is disconnected. The only member is not disconnected: the bridge would forget its flows.
func (s *Switch) findMaster(ctx context.Context, m Management, search *mastery) error {
	due := search.due
	search.due = time.Time{} // unless all are slaves now
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	root, err := one.Root()
	if err != nil {
		return err
	}
	has, rows, err := s.controllerRows(ctx, one)
	if err != nil {
		return err
	}
	slaves := s.slavesOf(ctx, m, rows)
	master := masterOf(rows)
	if master != search.master {
		if master != "" && search.master != "" { // the new one can learn of ports
			s.Reconnect(false)
		}
		search.master, search.since = master, time.Now()
	}
	if len(slaves) == 0 {
		if master == "" {
			return nil
		}
		search.tries = 0
		others := len(membersOf(m, rows, func(any) bool { return true })) > 1
		if !others || time.Since(search.since) < s.masterWait(root.OtherConfig) || !s.reconnects.take() {
			return nil
		}
		search.master = "" // its time begins again
		s.log.Warn("OpenDaylight learns of no new port of the bridge; disconnecting its master for some seconds", "bridge", s.cfg.Bridge, "member", master)
		return s.disconnect(ctx, one, root, has, rows, master)
	}
	if search.due = due; due.IsZero() {
		search.due = time.Now().Add(s.masterWait(root.OtherConfig))
		return nil
	}
	if time.Now().Before(due) {
		return nil
	}
	search.last = after(slaves, search.last)
	s.log.Warn("no member of OpenDaylight is the master of the bridge; disconnecting one for some seconds", "bridge", s.cfg.Bridge, "member", search.last)
	err = s.disconnect(ctx, one, root, has, rows, search.last)
	search.tries++
	search.due = time.Now().Add(s.masterWait(root.OtherConfig) << min(search.tries/len(slaves), maxDoublings))
	return err
}

// disconnect disconnects a member, whose target is member, for masterPause.
func (s *Switch) disconnect(ctx context.Context, one *session.Session, root *vswitch.OpenvSwitch, has ovsdb.OvsSet, rows []ovsdb.Row, member string) error {
	top := &topRow{root}
	ctx = context.WithoutCancel(ctx) // the member must come back
	taken, err := s.takeControllers(ctx, one, top, has, rows, func(target string) bool { return target == member })
	if err == nil {
		err = s.giveControllers(ctx, one, top, taken, top.ExternalIDs[keyIdentity], masterPause)
	}
	if err != nil {
		return fmt.Errorf("reconnect bridge %s to %s: %w", s.cfg.Bridge, member, err)
	}
	return nil
}

// Reconnect asks KeepManaged to disconnect the master that the bridge has among the members of OpenDaylight for some seconds, or no longer asks for that. It does
// not wait. A request that cannot be met within requestValid is forgotten.
func (s *Switch) Reconnect(asks bool) {
	var now time.Time
	if asks {
		now = time.Now()
	}
	s.reconnects.asked.Store(&now)
}

// requestValid is longer than a new master is left alone.
const requestValid = 2 * time.Minute

// request is a request of Reconnect.
type request struct {
	asked atomic.Pointer[time.Time] // zero time or nil for none
}

// take reports whether there is a request that is valid, and forgets it.
func (r *request) take() bool {
	asked := r.asked.Swap(nil)
	return asked != nil && time.Since(*asked) < requestValid
}

// masterOf returns the target of the master; empty if there is none.
func masterOf(rows []ovsdb.Row) string {
	i := slices.IndexFunc(rows, func(row ovsdb.Row) bool { return row["is_connected"] == true && row["role"] == "master" })
	if i < 0 {
		return ""
	}
	return targetOf(rows[i])
}

// slavesOf returns the targets of the connected members of OpenDaylight, sorted, if none of them programs the bridge: at least two, and all
// are slaves, or none is the master and the bridge has no flows. Equals (enable-equal-role) program a bridge too.
func (s *Switch) slavesOf(ctx context.Context, m Management, rows []ovsdb.Row) []string {
	if slaves := membersOf(m, rows, func(role any) bool { return role == "slave" }); len(slaves) > 1 {
		return slaves
	}
	idle := membersOf(m, rows, func(role any) bool { return role != "master" })
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if len(idle) == 0 || m.Empty == nil || !m.Empty(ctx) {
		return nil
	}
	return idle
}

// membersOf returns the targets of the connected members of OpenDaylight, sorted. There are none if the role of one of them is not
// allowed, or if a controller of others is connected.
func membersOf(m Management, rows []ovsdb.Row, allowed func(role any) bool) (targets []string) {
	for _, row := range rows {
		if row["is_connected"] != true {
			continue
		}
		host := hostOf(targetOf(row))
		isMember := slices.ContainsFunc(m.Managers, func(manager string) bool { return hostOf(manager) == host })
		if !isMember || !allowed(row["role"]) {
			return nil
		}
		targets = append(targets, targetOf(row))
	}
	slices.Sort(targets)
	return targets
}

// hostOf returns the host of tcp:HOST:PORT or ssl:HOST:PORT.
func hostOf(target string) string {
	_, address, _ := strings.Cut(target, ":")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return target
	}
	return host
}

// after returns the first of the sorted targets that comes after the last one, or the first one.
func after(targets []string, last string) string {
	i := slices.IndexFunc(targets, func(target string) bool { return target > last })
	return targets[max(i, 0)]
}

// masterWait returns how long all members must be slaves. The switch writes their roles only once in an interval, 5 s at least.
func (s *Switch) masterWait(settings map[string]string) time.Duration {
	interval, err := strconv.Atoi(settings["stats-update-interval"])
	if err != nil {
		interval = 0
	}
	return s.cfg.MasterWait + time.Duration(interval)*time.Millisecond
}

// controllerRows reads the bridge's controllers from the database: their UUIDs, and their rows in the same order. Without a bridge there
// are none.
func (s *Switch) controllerRows(ctx context.Context, one *session.Session) (has ovsdb.OvsSet, rows []ovsdb.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if has, err = s.controllers(ctx, one); err != nil {
		return has, nil, err
	}
	for _, uuid := range has.GoSet {
		is := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, uuid)
		results, err := one.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Controller", Where: []ovsdb.Condition{is}})
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
