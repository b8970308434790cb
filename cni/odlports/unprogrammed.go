package odlports

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// Port is a port of the node itself, or of a pod.
type Port struct {
	Name, Interface string
	// Container is that of the pod; empty for a port of the node.
	Container string
	Addresses []netip.Addr
	// Replaced is set if the port has been replaced: no ADD awaits it.
	Replaced bool
}

// key identifies a port. Another sandbox of a pod has another port of the same name.
func (p Port) key() string { return p.Name + " " + p.Container }

// programmedWithin is how long OpenDaylight may take for the next stage of a port. It can lose the switch's message about a new
// port, and the switch sends no second one. It can also leave a port out of its elan-instance. If it computes a route before it knows the
// tunnel address of the switch, it never writes the flow for packets from tunnels: that happens to pods that run when it gets the
// switch. Each further port of the same name gets twice the time, up to programmedWithinMost, because a new one does not help where the
// bridge is missing.
const (
	programmedWithin     = 30 * time.Second
	programmedWithinMost = 8 * time.Minute
	// removedWithin is how long OpenDaylight may take to remove the flows of a port before the new one is added all the same.
	removedWithin = 5 * time.Second
	// removedEvery is the interval of the looks at them.
	removedEvery = 500 * time.Millisecond
	// replacedMost is how often the port of a sandbox is replaced without effect.
	replacedMost = 4
	// lookEvery is the interval of the looks at the ports while one lacks something, or the switch has not answered. The time of a stage begins
	// with a look, so a port is replaced at most this much later. quietEvery is the interval otherwise: OpenDaylight can lose flows while nothing
	// changes on the node, for example when all of its members are restarted.
	lookEvery, quietEvery = 5 * time.Second, 30 * time.Second
)

// unseen is the stage of a port at which the agent could not look.
const unseen openflow.Stage = -1

// lacking is what a port of a stage lacks.
var lacking = map[openflow.Stage]string{
	openflow.Unknown: "its flow in table 0",
	openflow.Tagged:  "a flow in table 51 that leads to it",
	openflow.Led:     "a flow in table 36 that leads to it",
}

// unprogrammed has the ports that OpenDaylight has not programmed.
type unprogrammed struct{ waits }

// see notes the stage of a port, and reports whether the port must be replaced by a new one. A port that has reached a further stage waits
// again for its time. A port that was replaced keeps its longer time until it has been programmed for programmedWithinMost: one that
// loses its flows again and again is not replaced more and more often.
func (u unprogrammed) see(port string, at openflow.Stage, now time.Time) (replace bool) {
	w, waits := u.waits[port]
	complete := at == openflow.Complete
	switch {
	case !waits, w.stage == openflow.Complete && !complete && now.Sub(w.since) >= programmedWithinMost:
		u.waits[port] = wait{now, programmedWithin, at, 0}
	case at > w.stage, w.stage == openflow.Complete && !complete:
		u.waits[port] = wait{now, w.within, at, w.replaced}
	case !complete && w.over(now):
		u.waits[port] = wait{now, w.within, openflow.Unknown, w.replaced}
		return true
	}
	return false
}

// count notes that a port has been replaced: the new one gets twice the time.
func (u unprogrammed) count(port string) {
	w := u.waits[port]
	w.within, w.replaced = min(2*w.within, programmedWithinMost), w.replaced+1
	u.waits[port] = w
}

// hold notes a port at which the agent could not look. Its time begins when it is seen.
func (u unprogrammed) hold(port string, now time.Time) {
	w, waits := u.waits[port]
	switch {
	case !waits:
		w.within = programmedWithin
	case w.stage == openflow.Complete: // it stays so until it is seen again
		return
	}
	u.waits[port] = wait{now, w.within, unseen, w.replaced}
}

// spent reports whether the port of a pod must not be replaced again after see has reported that it must, and whether that is so for the
// first time.
func (u unprogrammed) spent(port Port) (spent, first bool) {
	replaced := u.waits[port.key()].replaced
	if port.Container == "" || replaced < replacedMost {
		return false, false
	}
	u.count(port.key())
	return true, replaced == replacedMost
}

// next returns when to look again; 0 for never.
func (u unprogrammed) next() (again time.Duration) {
	for _, w := range u.waits {
		if w.stage != openflow.Complete {
			return lookEvery
		}
		again = quietEvery
	}
	return again
}

// forget forgets all ports except these.
func (u unprogrammed) forget(ports []Port) {
	keys := map[string]bool{}
	for _, p := range ports {
		keys[p.key()] = true
	}
	maps.DeleteFunc(u.waits, func(key string, _ wait) bool { return !keys[key] })
}

// Replace replaces a port of the node that OpenDaylight does not learn of, or to which it leads no packets of its elan-instance: ports
// of the node are members of one. It replaces a port of the node or of a pod to which it leads no packets from other switches. ADDs look
// at what else a pod needs, until its port is replaced. It replaces one port at most, so that OpenDaylight does not get many changes at once. It replaces none while
// OpenDaylight does not program the switch, or while no port at all has reached the stage that the port lacks. Without the
// socket of the switch it replaces none, and no port waits.
func (p *Ports) Replace(ctx context.Context, ports []Port) (changed bool, err error) {
	if p.cfg.Programmed == nil {
		return false, nil
	}
	p.unprogrammed.forget(ports)
	numbers, addresses := p.numbers(ctx, ports)
	known, err := p.known(ctx, addresses)
	if errors.Is(err, fs.ErrNotExist) {
		clear(p.unprogrammed.waits)
		return false, nil
	}
	withoutRoutes := err != nil
	for _, port := range ports {
		at := unseen
		if number := numbers[port.Name]; number != 0 && len(known) > 0 {
			at = stageOf(port, number, known)
		}
		if at == unseen || withoutRoutes && (port.Container != "" || at >= openflow.Complete) {
			p.unprogrammed.hold(port.key(), time.Now())
			continue
		}
		if changed || !p.unprogrammed.see(port.key(), at, time.Now()) {
			continue
		}
		if spent, first := p.unprogrammed.spent(port); spent {
			if first {
				p.cfg.Log.Error("OpenDaylight does not program the port of a pod, and the port is not replaced again; check that OpenDaylight has tunnels to this node, then delete the pod",
					"port", port.Name, "interface", port.Interface, "lacks", lacking[at])
			}
			continue
		}
		p.cfg.Log.Warn("OpenDaylight has not programmed a port; the port is replaced", "port", port.Name, "interface", port.Interface, "lacks", lacking[at])
		failed := p.replace(ctx, port.Name, numbers[port.Name])
		if failed == nil {
			p.unprogrammed.count(port.key())
		}
		err, changed = errors.Join(err, failed), true
	}
	return changed, err
}

// numbers returns the OpenFlow numbers of the ports that the switch has, and the addresses of these.
func (p *Ports) numbers(ctx context.Context, ports []Port) (map[string]uint32, openflow.Addresses) {
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	numbers, addresses := map[string]uint32{}, openflow.Addresses{}
	for _, port := range ports {
		if number, err := p.cfg.Switch.Number(ctx, port.Name); err == nil {
			numbers[port.Name], addresses[number] = number, port.Addresses
		}
	}
	return numbers, addresses
}

// stageOf returns the stage of the port with a number, Complete at most. A port that lacks what no port has counts as unseen, and so does one of a pod that
// an ADD possibly awaits.
func stageOf(port Port, number uint32, known map[uint32]openflow.Stage) openflow.Stage {
	at, most := known[number], openflow.Unknown
	for _, other := range known {
		most = max(most, other)
	}
	awaited := port.Container != "" && !port.Replaced
	switch {
	case at >= openflow.Complete:
		return openflow.Complete
	case at == openflow.Led && most < openflow.Reached, most <= at, at < openflow.Led && awaited:
		return unseen
	}
	return at
}

// flowsTimeout bounds the question for flows: a switch that hangs answers its database and no question, and the node's other work waits.
const flowsTimeout = time.Second

// known returns the stages of the ports that OpenDaylight knows, as Config.Programmed does; none if the agent could not add a port again.
func (p *Ports) known(ctx context.Context, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
	if p.cfg.Switch.AwaitsFlows() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	return p.cfg.Programmed(ctx, addresses)
}

// replace replaces a port by a new one. Netvirt knows the former port, so the new one comes after the flows of the former: OpenDaylight can lose
// flows of a port that returns while it removes them.
func (p *Ports) replace(ctx context.Context, name string, former uint32) error {
	if err := p.cfg.Switch.AwaitsFlows(); err != nil { // else OpenDaylight would not see the new port
		return err
	}
	return p.cfg.Switch.Replace(ctx, name, former, func(ctx context.Context) { p.awaitRemoved(ctx, former) })
}

// awaitRemoved waits until OpenDaylight no longer knows a port, for removedWithin at most.
func (p *Ports) awaitRemoved(ctx context.Context, number uint32) {
	ctx, cancel := context.WithTimeout(ctx, removedWithin)
	defer cancel()
	for {
		known, err := p.known(ctx, nil)
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
