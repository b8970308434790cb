package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

const (
	// manageAgain is when management that could not be set is tried again.
	manageAgain = 2 * time.Second
	// manageGather is how long changes are gathered before they are looked at.
	manageGather = 50 * time.Millisecond
)

// Network names the datastore that OpenDaylight programs the bridge from; empty while that is
// not known. The channel is closed when it may be another.
type Network func() (identity string, changed <-chan struct{})

// KeepManaged sees to it that the switch is managed so, also when somebody else changes
// it, until ctx is done, and logs when OpenDaylight begins and ceases to program it. When
// that has another datastore, what the bridge was programmed with is forgotten. A switch
// that is OVN's is looked at once.
func (s *Switch) KeepManaged(ctx context.Context, m Management, network Network) {
	heard, stop := s.waiting.listen(root)
	defer stop()
	var standing, failure turning
	for ctx.Err() == nil {
		identity, changed := network()
		_, err := s.Manage(ctx, m)
		if err == nil && s.cfg.Controller == OVN {
			return
		}
		if err == nil && len(m.Managers) > 0 {
			err = s.startAnew(ctx, identity)
		}
		if failure.turned(err) && err != nil && ctx.Err() == nil {
			s.log.Error("the switch is not managed as it should be", "err", err)
		}
		if is := s.Managed(); standing.turned(is) {
			s.logManaged(is)
		}
		again := time.NewTimer(manageAgain)
		if err == nil {
			again.Stop()
		}
		select {
		case <-heard:
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		pause(ctx, manageGather)
	}
}

func (s *Switch) logManaged(is error) {
	if is != nil {
		s.log.Warn("pods that are plugged in go on, others wait for OpenDaylight", "err", is)
		return
	}
	s.log.Info("OpenDaylight programs the switch")
}

// turning tells when something that can fail does so, or does no more, or otherwise.
type turning struct {
	known bool
	was   string
}

func (t *turning) turned(err error) bool {
	is := fmt.Sprint(err)
	if t.known && t.was == is {
		return false
	}
	t.known, t.was = true, is
	return true
}

// OpenListeners returns the managers at which other machines reach the switch's database
// without encryption or credentials.
func (s *Switch) OpenListeners() (open []string, err error) {
	one, err := s.connected()
	if err != nil {
		return nil, err
	}
	rows, err := one.managers()
	for _, row := range rows {
		if openListener(row.Target) {
			open = append(open, row.Target)
		}
	}
	slices.Sort(open)
	return open, err
}

// connected is the session that there is.
func (s *Switch) connected() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, fmt.Errorf("no connection to the switch at %s: %w", s.cfg.Endpoint, s.failure)
	}
	return s.current, nil
}

// Managed fails where the switch is OpenDaylight's and that does not program it now, and
// says why. Of OVN the switch knows nothing of the kind.
func (s *Switch) Managed() error {
	if s.cfg.Controller == OVN {
		return nil
	}
	one, err := s.connected()
	if err != nil {
		return err
	}
	rows, err := one.managers()
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return errors.New("OpenDaylight does not manage the switch: nobody has told it where that is (--ovs-manager)")
	case !slices.ContainsFunc(rows, func(row *vswitch.Manager) bool { return row.IsConnected }):
		return fmt.Errorf("OpenDaylight does not manage the switch: it has no connection to %s", named(rows))
	}
	return s.programmed(one)
}

func named(rows []*vswitch.Manager) string {
	all := make([]string, len(rows))
	for i, row := range rows {
		all[i] = row.Target
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// programmed fails where no controller has an OpenFlow connection to the bridge.
func (s *Switch) programmed(one *session) error {
	bridge, err := s.bridge(one)
	if err != nil {
		return err
	}
	var rows []*vswitch.Controller
	if err := one.client.List(context.Background(), &rows); err != nil {
		return fmt.Errorf("list controllers: %w", err)
	}
	if !slices.ContainsFunc(rows, func(row *vswitch.Controller) bool {
		return row.IsConnected && slices.Contains(bridge.Controller, row.UUID)
	}) {
		return fmt.Errorf("OpenDaylight manages the switch, and does not program bridge %s: it has no OpenFlow connection", s.cfg.Bridge)
	}
	return nil
}

// managers reads the managers from the copy.
func (o *session) managers() ([]*vswitch.Manager, error) {
	var rows []*vswitch.Manager
	if err := o.client.List(context.Background(), &rows); err != nil {
		return nil, fmt.Errorf("list managers: %w", err)
	}
	return rows, nil
}
