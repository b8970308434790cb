package odlports

import (
	"maps"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

const (
	// programmedWithin is how long OpenDaylight may take for the next stage of a port. It can lose the switch's message about a new
	// port, and the switch sends no second one. It can also leave a port out of its elan-instance. If it computes a route before it knows the
	// tunnel address of the switch, it never writes the flow for packets from tunnels: that happens to pods that run when it gets the
	// switch. Each further port of the same name gets twice the time, up to programmedWithinMost, because a new one does not help where the
	// bridge is missing.
	programmedWithin     = 30 * time.Second
	programmedWithinMost = 8 * time.Minute
	// replacedMost is how often the port of a sandbox is replaced without effect.
	replacedMost = 4
	// lookEvery is the interval of the looks while a port waits for its next stage. The time of a stage begins with a look, so a port is replaced
	// at most this much later. quietEvery is the interval otherwise, so a lost flow is first seen at most this much later: OpenDaylight
	// can lose flows while nothing changes on the node, for example when all of its members are restarted.
	lookEvery, quietEvery = 5 * time.Second, 30 * time.Second
)

// unseen is the stage of a port that no look has seen yet.
const unseen openflow.Stage = -1

// unprogrammed has the progress of ports.
type unprogrammed map[string]progress

// progress is how far OpenDaylight is with a port, as looks have seen it.
type progress struct {
	stage openflow.Stage
	// last is the last look that saw the port, or the first that did not.
	last time.Time
	// lasted is how long the port has been at its stage, and within how long that may be.
	lasted, within time.Duration
	// replaced is how often the port was replaced since it was programmed for programmedWithinMost.
	replaced int
	// spent is set if the port is not replaced before it is Complete again.
	spent bool
}

// overdue reports whether OpenDaylight has had its time for the next stage of the port.
func (p progress) overdue() bool {
	return p.stage != openflow.Complete && !p.spent && p.lasted >= p.within
}

// next returns the time until the port must be looked at again. A port that no look has seen for programmedWithinMost waits no longer.
func (p progress) next(now time.Time) time.Duration {
	switch {
	case p.stage == openflow.Complete, p.spent, now.Sub(p.last) >= programmedWithinMost:
		return quietEvery
	case p.overdue(): // another port was replaced
		return retryAfter
	}
	return lookEvery
}

// see notes the stage at which a look sees a port, and reports whether the port is overdue. A look adds the time since the last one that
// saw the port, and not more than the interval of the looks: so a time in which no look sees the port does not count. A port that has
// reached a further stage waits again for its time. A port that was replaced keeps its longer time until it has been programmed for
// programmedWithinMost: one that loses its flows again and again is not replaced more and more often.
func (u unprogrammed) see(port string, at openflow.Stage, now time.Time) (overdue bool) {
	p := u[port]
	if at > p.stage || p.stage == openflow.Complete && at != openflow.Complete {
		p.stage, p.lasted = at, 0
	} else {
		p.lasted += min(now.Sub(p.last), p.next(p.last))
	}
	p.last = now
	if at == openflow.Complete {
		p.spent = false
		if p.lasted >= programmedWithinMost {
			p.within, p.replaced = programmedWithin, 0
		}
	}
	u[port] = p
	return p.overdue()
}

// count notes that the agent has tried to replace a port. The time begins again. If the switch has released the port, it is twice as long.
func (u unprogrammed) count(port string, released bool) {
	p := u[port]
	p.stage, p.lasted = unseen, 0
	if released {
		p.within, p.replaced = min(2*p.within, programmedWithinMost), p.replaced+1
	}
	u[port] = p
}

// spend reports whether a port must not be replaced again, and notes that.
func (u unprogrammed) spend(port string) bool {
	p := u[port]
	p.spent = p.replaced >= replacedMost
	u[port] = p
	return p.spent
}

// restart lets the time of each port begin again, because OpenDaylight does not program the switch, or has just begun to.
func (u unprogrammed) restart() {
	for port, p := range u {
		p.stage, p.lasted = unseen, 0
		u[port] = p
	}
}

// keep forgets all ports except these, and adds these that are new.
func (u unprogrammed) keep(ports []Port, now time.Time) {
	keys := map[string]bool{}
	for _, p := range ports {
		key := p.key()
		keys[key] = true
		if _, known := u[key]; !known {
			u[key] = progress{stage: unseen, last: now, within: programmedWithin}
		}
	}
	maps.DeleteFunc(u, func(key string, _ progress) bool { return !keys[key] })
}

// next returns the time until the first port must be looked at again.
func (u unprogrammed) next(now time.Time) time.Duration {
	first := quietEvery
	for _, p := range u {
		first = min(first, p.next(now))
	}
	return first
}
