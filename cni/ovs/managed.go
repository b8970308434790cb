package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs/remotes"
	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

const (
	// manageAgain is the delay before a failed update of the management is repeated, and the interval of the checks for a master.
	manageAgain = 2 * time.Second
	// manageGather is how long changes are collected before the next check.
	manageGather = 50 * time.Millisecond
	// steadyLimit bounds the wait of the node's own ports until OpenDaylight has stopped to write flows: with many new pods it never does.
	steadyLimit = 30 * time.Second
)

// Network returns the identity of the datastore that OpenDaylight programs the bridge from,
// empty while it is unknown, and a channel that is closed when it may have changed.
type Network func() (identity string, changed <-chan struct{})

// KeepManaged keeps the management of the switch, also against changes by others, until ctx
// is done. It logs when OpenDaylight starts and stops to program the switch. It clears the
// bridge when OpenDaylight has a new datastore, and finds a master of the bridge. PutNode waits for it. With OVN it runs once.
func (s *Switch) KeepManaged(ctx context.Context, m Management, network Network) {
	rows, stop := s.rows.listen(root)
	defer stop()
	var (
		standing, failure transition
		wait              settling
		search            mastery
	)
	for ctx.Err() == nil {
		identity, changed := network()
		err := s.manageOnce(ctx, m, identity, &wait, &search)
		if err == nil && s.cfg.Controller == OVN {
			return
		}
		again := time.NewTimer(manageAgain)
		if failure.changed(err) && err != nil && ctx.Err() == nil {
			s.logFailure(err)
		}
		is := s.Managed()
		if standing.changed(is) {
			s.logManaged(is)
		}
		s.steady.look(ctx, is, m, s.cfg.Timeout)
		if err == nil && len(m.Managers) == 0 && (is != nil || s.steady.reached()) {
			again.Stop()
		}
		select {
		case <-rows:
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		pause(ctx, manageGather)
	}
}

// manageOnce makes the switch have its management, and the bridge the flows of the present datastore and of the agent, and a master.
func (s *Switch) manageOnce(ctx context.Context, m Management, identity string, wait *settling, search *mastery) error {
	_, err := s.Manage(ctx, m)
	if err == nil && len(m.Managers) > 0 {
		kept := s.keepARP(ctx, m)
		if err = s.useDatastore(ctx, m, identity, wait); err == nil {
			return errors.Join(s.findMaster(ctx, m, search), kept)
		}
	}
	search.due, search.master = time.Time{}, "" // what happens meanwhile is not seen
	return err
}

// keepARP makes the bridge keep ARP packets from OpenDaylight.
func (s *Switch) keepARP(ctx context.Context, m Management) error {
	if m.KeepARP == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return m.KeepARP(ctx)
}

func (s *Switch) logFailure(err error) {
	if errors.Is(err, errUnsettled) {
		s.log.Info("the bridge is cleared when OpenDaylight has stopped to write flows", "bridge", s.cfg.Bridge, "err", err)
		return
	}
	s.log.Error("could not set the management of the switch", "err", err)
}

func (s *Switch) logManaged(is error) {
	if is != nil {
		s.log.Warn("OpenDaylight does not program the switch; new pods must wait", "err", is)
		return
	}
	s.log.Info("OpenDaylight programs the switch")
}

// steadiness reports whether OpenDaylight has programmed the bridge for long enough that a new port of the node gets all of its flows. When
// a switch connects, OpenDaylight creates its tunnels. If a port comes at the same time, other switches can be without a flow to it for good.
type steadiness struct {
	mu    sync.Mutex
	is    bool
	since time.Time // when OpenDaylight began to program the bridge; zero if it does not
}

// reset notes that OpenDaylight does not program the bridge, or has just begun to.
func (s *steadiness) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is, s.since = false, time.Time{}
}

func (s *steadiness) reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}

// begun returns when OpenDaylight began to program the bridge, which it does now.
func (s *steadiness) begun() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return s.since
}

// look looks whether OpenDaylight, which programs the bridge unless managed is an error, has stopped to write flows. The questions to the
// switch have a timeout.
func (s *steadiness) look(ctx context.Context, managed error, m Management, timeout time.Duration) {
	if managed != nil {
		s.reset()
		return
	}
	if s.reached() {
		return
	}
	since := s.begun()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	quiet := (m.Settled == nil || m.Settled(ctx)) && (m.Empty == nil || !m.Empty(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.Equal(since) { // otherwise it was reset meanwhile
		s.is = quiet || time.Since(since) > steadyLimit
	}
}

// errUnsteady is why a port of the node is not added yet.
var errUnsteady = errors.New("OpenDaylight has just begun to program the switch and still writes flows")

// AwaitsFlows fails if a new port of the node must wait for OpenDaylight. KeepManaged sees that only later.
func (s *Switch) AwaitsFlows() error {
	if s.cfg.Controller == OVN {
		return nil
	}
	if err := s.Managed(); err != nil {
		return err
	}
	if !s.steady.reached() {
		return errUnsteady
	}
	return nil
}

// transition detects changes of an error.
type transition struct {
	known bool
	was   string
}

func (t *transition) changed(err error) bool {
	is := fmt.Sprint(err)
	if t.known && t.was == is {
		return false
	}
	t.known, t.was = true, is
	return true
}

// OpenListeners returns the managers that let other machines connect to the switch's
// database without encryption or credentials.
func (s *Switch) OpenListeners() (open []string, err error) {
	one, err := s.connected()
	if err != nil {
		return nil, err
	}
	rows, err := managers(one)
	for _, row := range rows {
		if remotes.OpenListener(row.Target) {
			open = append(open, row.Target)
		}
	}
	slices.Sort(open)
	return open, err
}

// connected returns the current session. It fails if there is none.
func (s *Switch) connected() (*session.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, fmt.Errorf("no connection to the switch at %s: %w", s.cfg.Endpoint, s.failure)
	}
	return s.current, nil
}

// Managed fails if OpenDaylight should program the switch and does not, with the reason, and while the switch has no tunnel address.
// With OVN it returns nil: the switch does not know its controller.
func (s *Switch) Managed() error {
	if s.cfg.Controller == OVN {
		return nil
	}
	one, err := s.connected()
	if err != nil {
		return err
	}
	rows, err := managers(one)
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return errors.New("OpenDaylight does not manage the switch: the switch has no manager (set --ovs-manager)")
	case !slices.ContainsFunc(rows, func(row *vswitch.Manager) bool { return row.IsConnected }):
		return fmt.Errorf("OpenDaylight does not manage the switch: it has no connection to %s", named(rows))
	}
	if err := s.programmed(one); err != nil {
		return err
	}
	row, err := one.Root()
	if err == nil && row.OtherConfig[keyLocalIP] == "" {
		err = errors.New("OpenDaylight programs the switch, which has no tunnels yet: other_config:local_ip is missing")
	}
	return err
}

// AwaitManaged waits until OpenDaylight programs the switch. With OVN it returns at once. If ctx ends first, the error says
// what is missing.
func (s *Switch) AwaitManaged(ctx context.Context) error {
	if s.cfg.Controller == OVN {
		return nil
	}
	return s.await(ctx, root, func(*session.Session) error { return s.Managed() })
}

func named(rows []*vswitch.Manager) string {
	all := make([]string, len(rows))
	for i, row := range rows {
		all[i] = row.Target
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// programmed fails if no controller has an OpenFlow connection to the bridge.
func (s *Switch) programmed(one *session.Session) error {
	bridge, err := s.bridge(one)
	if err != nil {
		return err
	}
	var rows []*vswitch.Controller
	if err := one.List(&rows); err != nil {
		return fmt.Errorf("list controllers: %w", err)
	}
	if !slices.ContainsFunc(rows, func(row *vswitch.Controller) bool {
		return row.IsConnected && slices.Contains(bridge.Controller, row.UUID)
	}) {
		return fmt.Errorf("OpenDaylight manages the switch but does not program bridge %s: it has no OpenFlow connection", s.cfg.Bridge)
	}
	return nil
}

// managers reads the managers from the local copy.
func managers(one *session.Session) ([]*vswitch.Manager, error) {
	var rows []*vswitch.Manager
	if err := one.List(&rows); err != nil {
		return nil, fmt.Errorf("list managers: %w", err)
	}
	return rows, nil
}
