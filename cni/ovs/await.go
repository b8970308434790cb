package ovs

import (
	"context"
	"fmt"
	"maps"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Await waits until a port is ready. If ctx ends first, the error says what is missing.
func (s *Switch) Await(ctx context.Context, p Port) error {
	err := s.await(ctx, p.Name, func(one *session) error { return s.readiness(one, p.Name) })
	if err != nil {
		return fmt.Errorf("wait for port %s of interface %s: %w", p.Name, p.Interface, err)
	}
	return nil
}

// Check fails if a port does not exist or is not ready.
func (s *Switch) Check(ctx context.Context, name string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	return s.readiness(one, name)
}

// usable returns the row of a port. It fails if there is none, or if the switch cannot use its link.
func (o *session) usable(name string) (*vswitch.Interface, error) {
	row, err := o.iface(name)
	switch {
	case err != nil:
		return nil, err
	case row == nil:
		return nil, fmt.Errorf("the switch has no port %s", name)
	case row.Error != nil:
		return nil, fmt.Errorf("the switch cannot use link %s: %s", name, *row.Error)
	}
	return row, nil
}

func (s *Switch) readiness(one *session, name string) error {
	row, err := one.usable(name)
	switch {
	case err != nil:
		return err
	case s.cfg.Controller == OVN && row.ExternalIDs[keyInstalled] == "true":
		return nil
	case s.cfg.Controller == OpenDaylight && row.Ofport != nil && *row.Ofport > 0 && row.LinkState != nil && *row.LinkState == "up":
		return nil
	case s.cfg.Controller == OVN && row.Ofport != nil:
		return fmt.Errorf("OVN has not installed port %s: check that interface %s has a logical switch port, and that ovn-controller runs", name, row.ExternalIDs[keyInterface])
	}
	return fmt.Errorf("the switch has not opened link %s yet: check that ovs-vswitchd runs", name)
}

// await calls holds after each change of the row called name, until it returns nil.
func (s *Switch) await(ctx context.Context, name string, holds func(*session) error) error {
	changed, stop := s.rows.listen(name)
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
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// deleted records that the switch may have a deleted port until it has applied a
// configuration. It forgets ports whose deletion is already applied.
func (s *Switch) deleted(one *session, name string, configuration int) {
	row, err := one.root()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		maps.DeleteFunc(s.deletions, func(_ string, c int) bool { return c <= row.CurCfg })
	}
	s.deletions[name] = configuration
}

// awaitDeleted waits until the switch has applied the deletion of a port. If a switch sees
// the deletion and a new port of the same name at once, it keeps the old link.
func (s *Switch) awaitDeleted(ctx context.Context, name string) error {
	s.mu.Lock()
	want, pending := s.deletions[name]
	s.mu.Unlock()
	if !pending {
		return nil
	}
	if err := s.awaitConfiguration(ctx, want); err != nil {
		return fmt.Errorf("wait for the switch to delete the former port %s: %w", name, err)
	}
	s.mu.Lock()
	delete(s.deletions, name)
	s.mu.Unlock()
	return nil
}

// awaitConfiguration waits until the switch has applied configuration want.
func (s *Switch) awaitConfiguration(ctx context.Context, want int) error {
	return s.await(ctx, root, func(one *session) error {
		row, err := one.root()
		if err == nil && row.CurCfg < want {
			err = fmt.Errorf("the switch has applied configuration %d, want %d: check that ovs-vswitchd runs", row.CurCfg, want)
		}
		return err
	})
}
