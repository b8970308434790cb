package odlports

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// knownWithin is how long OpenDaylight may take to program a port of the node. It can lose the switch's message about a new port, and the
// switch sends no second one: the port never works.
// Each further port of the same name gets twice the time, up to knownWithinMost, because a new one does not help where the bridge is missing.
const (
	knownWithin     = 30 * time.Second
	knownWithinMost = 8 * time.Minute
)

// unknown has the ports that OpenDaylight has not programmed.
type unknown struct{ waits }

// see notes whether OpenDaylight has programmed a port, and reports whether the port must be replaced by a new one.
func (u unknown) see(port string, programmed bool, now time.Time) (replace bool) {
	w, waits := u.waits[port]
	switch {
	case programmed:
		delete(u.waits, port)
	case !waits:
		u.waits[port] = wait{now, knownWithin}
	case w.over(now):
		u.waits[port] = wait{now, min(2*w.within, knownWithinMost)}
		return true
	}
	return false
}

// wait lets the time of ports begin again, because nobody could look at them.
func (u unknown) wait(now time.Time, ports ...string) {
	for _, port := range ports {
		if w, waits := u.waits[port]; waits {
			w.since = now
			u.waits[port] = w
		}
	}
}

// Replace replaces ports of the node that OpenDaylight does not learn of. It changes nothing while OpenDaylight does not program the
// switch, or while it has programmed no port at all.
func (p *Ports) Replace(ctx context.Context, ports []ovs.NodePort) (changed bool, err error) {
	programmed, err := p.programmed(ctx)
	if err != nil || len(programmed) == 0 {
		p.unknown.wait(time.Now(), slices.Collect(maps.Keys(p.unknown.waits))...)
		return false, err
	}
	named := map[string]bool{}
	for _, port := range ports {
		named[port.Name] = true
		number, unopened := p.cfg.Switch.Number(ctx, port.Name)
		if unopened != nil { // it waits for its turn, or for the switch
			p.unknown.wait(time.Now(), port.Name)
			continue
		}
		if !p.unknown.see(port.Name, programmed[number], time.Now()) {
			continue
		}
		p.cfg.Log.Warn("OpenDaylight does not know a port of the node; the port is replaced", "port", port.Name, "interface", port.Interface)
		err = errors.Join(err, p.replace(ctx, port))
		changed = true
	}
	maps.DeleteFunc(p.unknown.waits, func(port string, _ wait) bool { return !named[port] })
	return changed, err
}

// flowsTimeout bounds the question for flows: a switch that hangs answers its database and no question, and the node's other work waits.
const flowsTimeout = time.Second

// programmed returns the numbers of the ports that OpenDaylight has programmed; none if the agent cannot know, or could not add a port again.
func (p *Ports) programmed(ctx context.Context) (map[uint32]bool, error) {
	if p.cfg.Programmed == nil || p.cfg.Switch.AwaitsFlows() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	numbers, err := p.cfg.Programmed(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return numbers, err
}

func (p *Ports) replace(ctx context.Context, port ovs.NodePort) error {
	if err := p.cfg.Switch.DeleteNode(ctx, port.Name); err != nil {
		return err
	}
	_, err := p.cfg.Switch.PutNode(ctx, port)
	return err
}
