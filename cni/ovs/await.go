package ovs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// The keys of external_ids of interfaces that OVN sets.
const (
	keyInstalled = "ovn-installed"
	// keyInstalledAt is when ovn-controller set it, in milliseconds since 1970.
	keyInstalledAt = "ovn-installed-ts"
)

// Await waits until a port is ready. If ctx ends first, the error says what is missing.
func (s *Switch) Await(ctx context.Context, p vif.Port) error {
	err := s.await(ctx, p.Name, func(one *session.Session) error { return s.readiness(one, p.Name) })
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

// InstalledAt returns when OVN installed the flows of a port, by the clock of this machine; zero if OVN does not say it.
func (s *Switch) InstalledAt(ctx context.Context, name string) (time.Time, error) {
	one, err := s.session(ctx)
	if err != nil {
		return time.Time{}, err
	}
	row, err := usable(one, name)
	if err != nil {
		return time.Time{}, err
	}
	ms, err := strconv.ParseInt(row.ExternalIDs[keyInstalledAt], 10, 64)
	if err != nil {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms), nil
}

// usable returns the row of a port. It fails if there is none, or if the switch cannot use its link.
func usable(one *session.Session, name string) (*vswitch.Interface, error) {
	row, err := one.Interface(name)
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

// Number returns the OpenFlow number of a port. It fails if the switch has not opened the port.
func (s *Switch) Number(ctx context.Context, name string) (uint32, error) {
	one, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	row, err := usable(one, name)
	if err != nil {
		return 0, err
	}
	if row.Ofport == nil || *row.Ofport <= 0 {
		return 0, fmt.Errorf("the switch has not opened port %s", name)
	}
	return uint32(*row.Ofport), nil
}

func (s *Switch) readiness(one *session.Session, name string) error {
	row, err := usable(one, name)
	switch {
	case err != nil:
		return err
	case s.cfg.Controller == OVN && row.ExternalIDs[keyInstalled] == "true":
		return nil
	case s.cfg.Controller == OpenDaylight && row.Ofport != nil && *row.Ofport > 0 && row.LinkState != nil && *row.LinkState == "up":
		return nil
	case s.cfg.Controller == OVN && row.Ofport != nil:
		return fmt.Errorf("OVN has not installed port %s: check that interface %s has a logical switch port, and that ovn-controller runs", name, row.ExternalIDs[vif.KeyInterface])
	}
	return fmt.Errorf("the switch has not opened link %s yet: check that ovs-vswitchd runs", name)
}

// await calls holds after each change of the row called name, until it returns nil.
func (s *Switch) await(ctx context.Context, name string, holds func(*session.Session) error) error {
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

// AwaitDeletions waits until the switch has applied all deletions of ports that the database
// has now. Call it before the link of a new port is created: the userspace datapath restores
// the flags of a deleted port's link by name, and so would set a new link of that name down. A
// switch that sees the deletion and a new port of the same name at once keeps the old link.
func (s *Switch) AwaitDeletions(ctx context.Context) error {
	want, err := s.requested(ctx)
	if err == nil {
		err = s.awaitConfiguration(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("wait for the switch to release deleted ports: %w", err)
	}
	return nil
}

// requested returns the configuration that was requested last.
func (s *Switch) requested(ctx context.Context) (configuration int, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	row, err := one.Root()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.Transact(ctx, (&topRow{row}).readNext())
	if err != nil {
		return 0, err
	}
	return demanded(results), nil
}

// awaitConfiguration waits until the switch has applied configuration want.
func (s *Switch) awaitConfiguration(ctx context.Context, want int) error {
	return s.await(ctx, root, func(one *session.Session) error {
		row, err := one.Root()
		if err == nil && row.CurCfg < want {
			err = fmt.Errorf("the switch has applied configuration %d, want %d: check that ovs-vswitchd runs", row.CurCfg, want)
		}
		return err
	})
}
