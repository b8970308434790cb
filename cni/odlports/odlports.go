// Package odlports makes up for what OpenDaylight loses of ports in the switch. It replaces a port of the node or of a running pod that
// OpenDaylight does not program, because no runtime repeats a call for them: a new pod without flows gets a new port with the next
// ADD. It keeps a port of the node that has become unused for a time, because OpenDaylight can lose flows of a port that returns while it
// removes the former one.
//
// The package knows what is in the switch. It does not know what ports are for, nor links, nor the bridge.
package odlports

import (
	"context"
	"log/slog"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// Config configures Ports.
type Config struct {
	Switch *ovs.Switch
	// Programmed returns the stages of the ports that OpenDaylight knows, as openflow.Conn.Ports does. Nil if OpenDaylight does not program the
	// switch.
	Programmed func(context.Context, openflow.Addresses) (map[uint32]openflow.Stage, error)
	Log        *slog.Logger
}

// Ports are the ports that wait: to be programmed, or to be removed. After a start, waiting begins again. They are for one
// goroutine.
type Ports struct {
	cfg          Config
	unprogrammed unprogrammed
	unused       unused
}

// New returns Ports of which none waits.
func New(cfg Config) *Ports {
	return &Ports{cfg: cfg, unprogrammed: unprogrammed{waits{}}, unused: unused{waits{}}}
}

// Next returns the time until the ports must be looked at again; 0 for never.
func (p *Ports) Next() time.Duration {
	first, other := p.unprogrammed.next(), p.unused.next(time.Now())
	if first == 0 || other != 0 && other < first {
		return other
	}
	return first
}

// waits has the ports that wait.
type waits map[string]wait

// wait is since when and how long a port waits, the stage that it has reached, and how often it was replaced without effect; unused ports
// have neither. A port that has reached openflow.Complete waits for nothing.
type wait struct {
	since    time.Time
	within   time.Duration
	stage    openflow.Stage
	replaced int
}

// over reports whether a port has waited long enough.
func (w wait) over(now time.Time) bool { return now.Sub(w.since) >= w.within }
