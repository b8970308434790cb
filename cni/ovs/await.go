package ovs

import (
	"context"
	"fmt"
	"maps"
)

// Await waits until a port is ready. The error says what the switch has of it, when
// ctx ends before.
func (s *Switch) Await(ctx context.Context, p Port) error {
	err := s.await(ctx, p.Name, func(one *session) error { return s.readiness(one, p.Name) })
	if err != nil {
		return fmt.Errorf("wait for port %s of interface %s: %w", p.Name, p.Interface, err)
	}
	return nil
}

// Check fails where a port is not there, or not ready now.
func (s *Switch) Check(ctx context.Context, name string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	return s.readiness(one, name)
}

func (s *Switch) readiness(one *session, name string) error {
	row, err := one.iface(name)
	switch {
	case err != nil:
		return err
	case row == nil:
		return fmt.Errorf("the switch has no port %s", name)
	case row.Error != nil:
		return fmt.Errorf("the switch can't use link %s: %s", name, *row.Error)
	case s.cfg.Controller == OVN && row.ExternalIDs[keyInstalled] == "true":
		return nil
	case s.cfg.Controller == OpenDaylight && row.Ofport != nil && *row.Ofport > 0 && row.LinkState != nil && *row.LinkState == "up":
		return nil
	case s.cfg.Controller == OVN && row.Ofport != nil:
		return fmt.Errorf("OVN has not installed port %s: has its interface %s a logical switch port, and does ovn-controller run?", name, row.ExternalIDs[keyInterface])
	}
	return fmt.Errorf("the switch has not taken link %s yet: does ovs-vswitchd run?", name)
}

// await calls holds when what has that name may have changed, until it returns nil.
func (s *Switch) await(ctx context.Context, name string, holds func(*session) error) error {
	heard, stop := s.waiting.listen(name)
	defer stop()
	for {
		one, err := s.session(ctx)
		if err != nil {
			return err
		}
		if err = holds(one); err == nil {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// unsettle notes that the switch may have the port of a name until it has taken that
// configuration, and forgets those that it has let go.
func (s *Switch) unsettle(one *session, name string, configuration int) {
	row, err := one.root()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		maps.DeleteFunc(s.settled, func(_ string, c int) bool { return c <= row.CurCfg })
	}
	s.settled[name] = configuration
}

// settle waits until the switch itself has let a port of that name go: one that it
// sees deleted and added at once it takes for the same, and keeps the old link.
func (s *Switch) settle(ctx context.Context, name string) error {
	s.mu.Lock()
	want, unsettled := s.settled[name]
	s.mu.Unlock()
	if !unsettled {
		return nil
	}
	if err := s.awaitConfiguration(ctx, want); err != nil {
		return fmt.Errorf("wait for the switch to let go of the former port %s: %w", name, err)
	}
	s.mu.Lock()
	delete(s.settled, name)
	s.mu.Unlock()
	return nil
}

// awaitConfiguration waits until the switch has done what the configuration of a number says.
func (s *Switch) awaitConfiguration(ctx context.Context, want int) error {
	return s.await(ctx, root, func(one *session) error {
		row, err := one.root()
		if err == nil && row.CurCfg < want {
			err = fmt.Errorf("it is at configuration %d, and has to be at %d: does ovs-vswitchd run?", row.CurCfg, want)
		}
		return err
	})
}
