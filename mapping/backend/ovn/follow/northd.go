package follow

import (
	"sync"
	"time"
)

// A write waits until waitFactor times as long as ovn-northd needed for a port has gone by since the write before, and maxWait at most.
// ovn-northd 23.03 computes everything when it gets the write, and again when it gets its own writes back. The measured time is until
// the end of the first computation. So ovn-northd then rests for as long as it works. It gets no rests if the measured time is less than slowFrom.
const (
	waitFactor = 4
	slowFrom   = 50 * time.Millisecond
	maxWait    = time.Second
)

// northd knows how long ovn-northd needs for a write. ovn-northd sets up of a new port in the northbound database when it has translated
// the port. northd measures that for one new port after the other.
type northd struct {
	mu    sync.Mutex
	port  string    // UUID of the port that is measured; empty for none
	since time.Time // when the database had it
	// took are the last two times, the later one first; 0 for one that is not known, or longer than maxWait.
	took     [2]time.Duration
	measured time.Duration // the last time; 0 if none is known
}

// see is shown each change of a port: whether it is translated, and whether it is gone. A port that is not translated in time ends
// the rests: ovn-northd does not run, or is so slow that a rest does not help.
func (n *northd) see(uuid string, translated, gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case uuid == n.port && translated && !gone:
		n.measured = time.Since(n.since)
		n.took = [2]time.Duration{n.measured, n.took[0]}
		if n.isLate() {
			n.took = [2]time.Duration{}
		}
		n.port = ""
	case uuid == n.port && gone:
		n.port = ""
	case translated || gone:
	case n.port == "":
		n.port, n.since = uuid, time.Now()
	case n.isLate():
		n.port, n.since = uuid, time.Now()
		n.took = [2]time.Duration{}
	}
}

// isLate reports whether the port that is measured is not translated in time.
func (n *northd) isLate() bool { return n.port != "" && time.Since(n.since) > maxWait }

// forget forgets all times. It is called when changes may have been missed.
func (n *northd) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.port, n.took, n.measured = "", [2]time.Duration{}, 0
}

// last returns the last time, or how long the present port has waited if that is longer; 0 if neither is known.
func (n *northd) last() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.port != "" {
		return max(n.measured, time.Since(n.since))
	}
	return n.measured
}

// rest returns how long after a write the next one should begin: when ovn-northd has translated the write and rested. The shorter one of the
// two times counts, because a single one can be long for another reason.
func (n *northd) rest() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	took := min(n.took[0], n.took[1])
	if took < slowFrom || n.isLate() {
		return 0
	}
	return min(waitFactor*took, maxWait)
}
