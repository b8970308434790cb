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

// programmedWithin is how long OpenDaylight may take for the next stage of a port of the node. It can lose the switch's message about a new
// port, and the switch sends no second one. It can also leave a port out of its elan-instance. The port never works then.
// Each further port of the same name gets twice the time, up to programmedWithinMost, because a new one does not help where the bridge is
// missing.
const (
	programmedWithin     = 30 * time.Second
	programmedWithinMost = 8 * time.Minute
	// removedWithin is how long OpenDaylight may take to remove the flows of a port before the new one is added all the same.
	removedWithin = 5 * time.Second
	// removedEvery is the interval of the looks at them.
	removedEvery = 500 * time.Millisecond
)

// stage is how far OpenDaylight is with a port.
type stage int

const (
	unseen     stage = iota // the agent could not look
	unknown                 // it has no tag
	tagged                  // its elan-instance does not lead packets to it
	programmed              // it has both
)

// unprogrammed has the ports that OpenDaylight has not programmed.
type unprogrammed struct{ waits }

// see notes the stage of a port, and reports whether the port must be replaced by a new one. A port that has reached a further stage waits
// again for its time. A port that was replaced keeps its longer time until it has been programmed for programmedWithinMost: one that
// loses its flows again and again is not replaced more and more often.
func (u unprogrammed) see(port string, at stage, now time.Time) (replace bool) {
	w, waits := u.waits[port]
	switch {
	case at == programmed && w.within <= programmedWithin:
		delete(u.waits, port)
	case at == programmed && w.stage != programmed:
		u.waits[port] = wait{now, w.within, programmed}
	case at == programmed:
	case w.stage == programmed && now.Sub(w.since) < programmedWithinMost:
		u.waits[port] = wait{now, w.within, at}
	case !waits || w.stage == programmed:
		u.waits[port] = wait{now, programmedWithin, at}
	case at > w.stage:
		u.waits[port] = wait{now, w.within, at}
	case w.over(now):
		u.waits[port] = wait{now, min(2*w.within, programmedWithinMost), unknown}
		return true
	}
	return false
}

// hold notes a port at which the agent could not look. Its time begins when it is seen.
func (u unprogrammed) hold(port string, now time.Time) {
	w, waits := u.waits[port]
	switch {
	case !waits:
		w.within = programmedWithin
	case w.stage == programmed: // it stays so until it is seen again
		return
	}
	u.waits[port] = wait{now, w.within, unseen}
}

// forget forgets the ports that are not among the node's ports.
func (u unprogrammed) forget(ports []ovs.NodePort) {
	maps.DeleteFunc(u.waits, func(name string, _ wait) bool {
		return !slices.ContainsFunc(ports, func(p ovs.NodePort) bool { return p.Name == name })
	})
}

// Replace replaces a port of the node that OpenDaylight does not learn of, or to which it leads no packets of its elan-instance: ports
// of the node are members of one. It replaces one port at most, so that OpenDaylight does not get many changes at once. It replaces none while
// OpenDaylight does not program the switch, or while no port at all has reached the stage that the port lacks. Without the
// socket of the switch it replaces none, and no port waits.
func (p *Ports) Replace(ctx context.Context, ports []ovs.NodePort) (changed bool, err error) {
	if p.cfg.Programmed == nil {
		return false, nil
	}
	p.unprogrammed.forget(ports)
	known, err := p.known(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		clear(p.unprogrammed.waits)
		return false, nil
	}
	for _, port := range ports {
		at, lacks := p.stage(ctx, port.Name, known)
		if at == unseen {
			p.unprogrammed.hold(port.Name, time.Now())
			continue
		}
		if changed || !p.unprogrammed.see(port.Name, at, time.Now()) {
			continue
		}
		p.cfg.Log.Warn("OpenDaylight has not programmed a port of the node; the port is replaced",
			"port", port.Name, "interface", port.Interface, "lacks", lacks)
		err = errors.Join(err, p.replace(ctx, port))
		changed = true
	}
	return changed, err
}

// stage returns how far OpenDaylight is with a port, and what the port lacks. A port is unseen while it waits for its turn, or for the switch.
func (p *Ports) stage(ctx context.Context, port string, known map[uint32]bool) (at stage, lacks string) {
	if len(known) == 0 {
		return unseen, ""
	}
	number, err := p.cfg.Switch.Number(ctx, port)
	if err != nil {
		return unseen, ""
	}
	return stageOf(number, known)
}

// stageOf returns the stage of the port with a number, and what the port lacks. A port that lacks what no port has counts as unseen.
func stageOf(number uint32, known map[uint32]bool) (at stage, lacks string) {
	led, has := known[number]
	switch {
	case led:
		return programmed, ""
	case has && slices.Contains(slices.Collect(maps.Values(known)), true):
		return tagged, "a flow in table 51 that leads to it"
	case !has && len(known) > 0:
		return unknown, "its flow in table 0"
	}
	return unseen, ""
}

// flowsTimeout bounds the question for flows: a switch that hangs answers its database and no question, and the node's other work waits.
const flowsTimeout = time.Second

// known returns the numbers of the ports that OpenDaylight knows, as Config.Programmed does; none if the agent could not add a port again.
func (p *Ports) known(ctx context.Context) (map[uint32]bool, error) {
	if p.cfg.Switch.AwaitsFlows() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	return p.cfg.Programmed(ctx)
}

// replace replaces a port by a new one. Netvirt knows the former port, so the new one comes after the flows of the former: OpenDaylight can lose
// flows of a port that returns while it removes them.
func (p *Ports) replace(ctx context.Context, port ovs.NodePort) error {
	if err := p.cfg.Switch.AwaitsFlows(); err != nil { // else the port could not be added again
		return err
	}
	former, err := p.cfg.Switch.Number(ctx, port.Name)
	if err != nil {
		return err
	}
	if err := p.cfg.Switch.DeleteNode(ctx, port.Name); err != nil {
		return err
	}
	p.awaitRemoved(ctx, former)
	_, err = p.cfg.Switch.PutNode(ctx, port)
	return err
}

// awaitRemoved waits until OpenDaylight no longer knows a port, for removedWithin at most.
func (p *Ports) awaitRemoved(ctx context.Context, number uint32) {
	ctx, cancel := context.WithTimeout(ctx, removedWithin)
	defer cancel()
	for {
		known, err := p.known(ctx)
		if _, stays := known[number]; err == nil && len(known) > 0 && !stays {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(removedEvery):
		}
	}
}
