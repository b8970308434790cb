package odlports

import (
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

const (
	// overlookedWithin is how long OpenDaylight may overlook new ports of the switch while it learns of none. It can have removed the switch
	// from its inventory, though a member of its cluster is the master of the switch (decision 114). Then a new port does not help, but a new
	// connection does. Each further connection waits for twice the time, up to overlookedWithinMost.
	overlookedWithin     = 30 * time.Second
	overlookedWithinMost = 8 * time.Minute
	// overlookedPorts is how many ports OpenDaylight must have overlooked: it can lose the message about a single one.
	overlookedPorts = 2
)

// overlooked has the ports that OpenDaylight does not know, since it has learned of one. An ADD that fails and is repeated has another port each time.
type overlooked struct {
	known  map[uint32]openflow.Stage // in the last look; nil if there was none
	ports  map[uint32]bool           // by number
	last   time.Time                 // of the last look
	lasted time.Duration             // of the time with such a port
	within time.Duration             // that lasted may reach; zero for overlookedWithin
}

// look notes which of the opened ports OpenDaylight knows. It reports whether OpenDaylight has learned of a port since the last look, and whether it is time for a
// new connection. A look adds the time since the last one, and not more than the interval of the looks.
func (o *overlooked) look(opened map[string]uint32, known map[uint32]openflow.Stage, now time.Time) (learns, due bool) {
	for number := range known {
		_, before := o.known[number]
		learns = learns || o.known != nil && !before
	}
	if learns {
		*o = overlooked{last: o.last}
	}
	since := min(now.Sub(o.last), lookEvery)
	o.known, o.last = known, now
	missing := false
	for _, number := range opened {
		if _, is := known[number]; !is {
			if missing = true; o.ports == nil {
				o.ports = map[uint32]bool{}
			}
			o.ports[number] = true
		}
	}
	if missing {
		o.lasted += since
	}
	within := max(o.within, overlookedWithin)
	if o.lasted < within || len(o.ports) < overlookedPorts {
		return learns, false
	}
	*o = overlooked{known: known, last: now, within: min(2*within, overlookedWithinMost)}
	return learns, true
}

// restart forgets the ports, because OpenDaylight does not program the switch, or has just begun to.
func (o *overlooked) restart() { *o = overlooked{last: o.last, within: o.within} }
