// Package nic lets a NIC of a node join a bridge of Open vSwitch, and leave it. The addresses,
// routes and permanent neighbours of the NIC move to the bridge's own link and back, and open
// connections continue.
//
// A move is a list of steps. They are computed from what the kernel, the switch and a record on
// disk have, and each step may be repeated. The record is durable before the first step: it says
// which NIC belongs to which bridge, and what moves. So an interrupted move is finished by computing the
// steps again, wherever it was interrupted.
//
// The package knows neither OVN nor the bridge of coe-bridge.
package nic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// prefix begins the name of a NIC's bridge.
const prefix = "br"

// BridgeOf returns the name of the bridge of a NIC.
func BridgeOf(nic string) string { return prefix + nic }

// Config configures a Mover.
type Config struct {
	Switch *ovs.Switch // run by the caller
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// Dir has the records of NICs that have joined a bridge.
	Dir string
	// Settings is where the network settings of the node are; empty means the default.
	Settings links.Settings
	// Boot is a file that has another content after each boot. Default
	// /proc/sys/kernel/random/boot_id.
	Boot string
	// Units is the folder of the services that systemd starts. Default /etc/systemd/system.
	Units string
	Log   *slog.Logger
}

// Mover moves NICs. Several processes may move NICs at the same time.
type Mover struct {
	cfg Config
	log *slog.Logger
	// done is called after each step, for tests.
	done func(Step) error
}

// New returns a Mover.
func New(cfg Config) *Mover {
	cfg.Boot = cmp.Or(cfg.Boot, "/proc/sys/kernel/random/boot_id")
	cfg.Units = cmp.Or(cfg.Units, "/etc/systemd/system")
	return &Mover{cfg: cfg, log: cfg.Log, done: func(Step) error { return nil }}
}

// moveTimeout bounds a move.
const moveTimeout = 20 * time.Second

// Join lets a NIC join its bridge, which it creates, and returns the steps. If the NIC has joined
// already, Join moves what was added to it since then. With dry it returns the steps and changes nothing.
//
// If a step of a first Join fails, the NIC leaves the bridge again.
func (m *Mover) Join(ctx context.Context, nic string, dry bool) ([]Step, error) {
	steps, err := m.move(ctx, nic, BridgeOf(nic), dry, func(*record) direction { return join })
	if err != nil {
		return nil, fmt.Errorf("let NIC %s join bridge %s: %w", nic, BridgeOf(nic), err)
	}
	return steps, nil
}

// JoinAlone is Join for a NIC that does not serve the node: NIC and bridge have no IPv6 as long as it has joined, so that they
// get no addresses from routers that announce themselves. The IPv6 addresses that it has are removed: see Needed.
func (m *Mover) JoinAlone(ctx context.Context, nic string, dry bool) ([]Step, error) {
	steps, err := m.move(ctx, nic, BridgeOf(nic), dry, func(*record) direction { return joinAlone })
	if err != nil {
		return nil, fmt.Errorf("let NIC %s join bridge %s: %w", nic, BridgeOf(nic), err)
	}
	return steps, nil
}

// Needed returns why the node needs an address of a NIC or of its bridge; empty if it needs none. The node does not need a link-local
// address. It does not need an address from router advertisements either, unless this is one of its internal addresses or no other
// link has a global IPv6 address. Links of pods and of loopback do not count, nor does an address in own.
func (m *Mover) Needed(nic string, internal, own []netip.Addr) (why string, err error) {
	err = at(m.cfg.Netns, func(k kernel) error {
		on, failed := k.look(nic)
		bridge, err := k.look(BridgeOf(nic))
		if err := cmp.Or(failed, err); err != nil {
			return err
		}
		elsewhere, err := k.hasIPv6Beside(on, bridge, own)
		if err != nil {
			return err
		}
		for _, l := range []link{on, bridge} {
			for _, o := range l.objects {
				if reason, is := o.needed(internal, elsewhere); is && why == "" {
					why = fmt.Sprintf("%s has %s%s", l.name, o, reason)
				}
			}
		}
		return nil
	})
	return why, err
}

// Leave lets the NIC of a bridge leave it, removes the bridge, and returns the steps. A bridge that does not
// exist is not an error, as long as the node has the NIC.
func (m *Mover) Leave(ctx context.Context, bridge string, dry bool) ([]Step, error) {
	nic, err := m.nicOf(ctx, bridge)
	if err != nil {
		return nil, err
	}
	steps, err := m.move(ctx, nic, bridge, dry, func(*record) direction { return leave })
	if err != nil {
		return nil, fmt.Errorf("let NIC %s leave bridge %s: %w", nic, bridge, err)
	}
	return steps, nil
}

// Abandon removes the bridge of a NIC that the node has no more, with everything that has moved there, and returns the
// steps. A bridge that does not exist is not an error.
func (m *Mover) Abandon(ctx context.Context, nic string, dry bool) ([]Step, error) {
	steps, err := m.move(ctx, nic, BridgeOf(nic), dry, func(*record) direction { return abandon })
	if err != nil {
		return nil, fmt.Errorf("remove bridge %s of NIC %s, which the node does not have: %w", BridgeOf(nic), nic, err)
	}
	return steps, nil
}

// direction is how a NIC moves.
type direction struct {
	check func(state) error
	steps func(state) []Step
	undo  bool // a first move whose step fails is undone
	alone bool // the NIC does not serve the node; also if the record says so
}

// settled chooses the direction of a NIC that has a record. Without one there is nothing to do.
func settled(r *record) direction {
	switch {
	case r == nil:
		return direction{check: func(state) error { return nil }, steps: func(state) []Step { return nil }}
	case r.Leaving:
		return leave
	}
	return resume
}

var (
	join      = direction{check: checkJoin, steps: joinSteps, undo: true}
	joinAlone = direction{check: checkJoin, steps: joinSteps, undo: true, alone: true}
	resume    = direction{check: checkJoin, steps: resumeSteps}
	leave     = direction{check: checkLeave, steps: leaveSteps}
	abandon   = direction{check: checkAbandon, steps: abandonSteps}
)

// move moves a NIC in the direction that choose returns for its record. Once the first step is taken it does
// not stop when ctx ends: a node between two steps is possibly not reachable.
func (m *Mover) move(ctx context.Context, nic, bridge string, dry bool, choose func(*record) direction) ([]Step, error) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if !dry {
		unlock, err := m.lock(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	s, err := m.read(ctx, nic, bridge)
	if err != nil {
		return nil, err
	}
	d := choose(s.record)
	s.alone = s.alone || d.alone
	if err := d.check(s); err != nil {
		return nil, err
	}
	steps := d.steps(s)
	if dry {
		return steps, nil
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	if err := m.run(ctx, s, steps); err != nil {
		if d.undo && s.record.joinsFirst() {
			err = errors.Join(err, m.rollBack(ctx, nic, bridge))
		}
		return nil, err
	}
	return steps, nil
}

// rollBack undoes a failed first Join.
func (m *Mover) rollBack(ctx context.Context, nic, bridge string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	s, err := m.read(ctx, nic, bridge)
	if err == nil && s.record != nil {
		err = m.run(ctx, s, leaveSteps(s))
	}
	if err != nil {
		return fmt.Errorf("undo this: %w; coe-bridge gateway bridge-to-nics %s tries again", err, bridge)
	}
	return nil
}

// run takes steps.
func (m *Mover) run(ctx context.Context, s state, steps []Step) error {
	for _, step := range steps {
		err := ctx.Err()
		if err == nil {
			err = m.take(ctx, s, step)
		}
		if err == nil {
			err = m.done(step)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		m.log.Debug("moved a NIC by a step", "nic", s.nic.name, "bridge", s.bridge.name, "step", step.String())
	}
	return nil
}

// Settle finishes interrupted moves, and moves what was added to NICs since they joined their bridge. It
// returns the steps that it has taken.
func (m *Mover) Settle(ctx context.Context) (taken []Step, err error) {
	err = m.each(func(r *record) error {
		steps, err := m.settle(ctx, r, false)
		taken = append(taken, steps...)
		return err
	})
	return taken, err
}

func (m *Mover) settle(ctx context.Context, r *record, dry bool) ([]Step, error) {
	steps, err := m.move(ctx, r.NIC, r.Bridge, dry, settled)
	if err != nil {
		return nil, fmt.Errorf("NIC %s of bridge %s: %w", r.NIC, r.Bridge, err)
	}
	return steps, nil
}

// Release takes the NICs that have joined their bridges at an earlier boot out of them, without waiting for
// ovs-vswitchd. It is for the start of a node: a NIC that is a port of a bridge without addresses receives
// nothing, so the network manager could not configure it.
func (m *Mover) Release(ctx context.Context) (nics []string, err error) {
	err = m.each(func(r *record) error {
		if r.sameBoot {
			return nil
		}
		nics = append(nics, r.NIC)
		return m.cfg.Switch.DeleteNIC(ctx, r.Bridge, r.NIC)
	})
	return nics, err
}

// ReleaseUnit is the systemd service that calls Release at a boot.
const ReleaseUnit = "coe-bridge-nics.service"

// ReleasedAtBoot reports whether systemd starts ReleaseUnit, as far as this process sees its files.
func (m *Mover) ReleasedAtBoot() bool {
	found, err := filepath.Glob(filepath.Join(m.cfg.Units, "*.wants", ReleaseUnit))
	return err == nil && len(found) > 0
}

// Joined is a NIC that has joined a bridge.
type Joined struct {
	NIC, Bridge string
	Pending     []Step // the steps that Settle would take
}

// Joined returns the NICs that have joined a bridge.
func (m *Mover) Joined(ctx context.Context) (all []Joined, err error) {
	err = m.each(func(r *record) error {
		pending, err := m.settle(ctx, r, true)
		all = append(all, Joined{r.NIC, r.Bridge, pending})
		return err
	})
	return all, err
}

// CheckCleanup fails if Cleanup would.
func (m *Mover) CheckCleanup(ctx context.Context) error { return m.leaveAll(ctx, true) }

// Cleanup lets all NICs leave their bridges.
func (m *Mover) Cleanup(ctx context.Context) error { return m.leaveAll(ctx, false) }

func (m *Mover) leaveAll(ctx context.Context, dry bool) error {
	return m.each(func(r *record) error {
		_, err := m.Leave(ctx, r.Bridge, dry)
		return err
	})
}

// each calls f for each record. An error of one record does not stop the others.
func (m *Mover) each(f func(*record) error) error {
	records, err := m.records()
	for _, r := range records {
		err = errors.Join(err, f(r))
	}
	return err
}

// nicOf returns the NIC of a bridge.
func (m *Mover) nicOf(ctx context.Context, bridge string) (string, error) {
	records, err := m.records()
	for _, r := range records {
		if r.Bridge == bridge {
			return r.NIC, nil
		}
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	bridges, err := m.cfg.Switch.Bridges(ctx)
	if err != nil {
		return "", err
	}
	return nicOf(bridge, bridges)
}
