// Package odlports makes up for what OpenDaylight loses of ports in the switch. It replaces a port of the node or of a running pod that
// OpenDaylight does not program, because no runtime repeats a call for them: a new pod without flows gets a new port with the next
// ADD. It lets the switch connect to OpenDaylight again if that learns of no new port. It keeps a port of the node that has become unused for a time, because OpenDaylight can lose flows of a port that returns while it
// removes the former one.
//
// The package knows what is in the switch. It does not know what ports are for, nor links, nor the bridge.
package odlports

import (
	"context"
	"log/slog"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// Switch is the switch of the node.
type Switch interface {
	// Number returns the OpenFlow number of a port. It fails if the switch has not opened the port.
	Number(ctx context.Context, name string) (uint32, error)
	// AwaitsFlows fails if a new port must wait for OpenDaylight.
	AwaitsFlows() error
	// Replace gives the port that has an OpenFlow number another one. In between the switch does not have the port, until gone returns. released
	// is set if the switch has released the port, also if Replace fails then.
	Replace(ctx context.Context, name string, number uint32, gone func(context.Context)) (released bool, err error)
	// Reconnect asks for a new connection to OpenDaylight, or no longer asks for one. It does not wait.
	Reconnect(asks bool)
}

// Config configures Ports.
type Config struct {
	Switch Switch
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
	overlooked   overlooked
	unused       unused
}

// New returns Ports of which none waits.
func New(cfg Config) *Ports { return &Ports{cfg: cfg, unprogrammed: unprogrammed{}, unused: unused{}} }

// Next returns the time until the ports must be looked at again; 0 for never.
func (p *Ports) Next() time.Duration {
	now := time.Now()
	next := p.unused.next(now)
	if p.cfg.Programmed == nil {
		return next
	}
	first := p.unprogrammed.next(now)
	if next == 0 {
		return first
	}
	return min(first, next)
}
