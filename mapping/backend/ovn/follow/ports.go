// Package follow follows how far OVN is with each port, and which chassis OVN has. It reads the notifications of the
// northbound database and, if there is one, of the southbound database, and keeps of each port only the times of its stages. In the same
// notifications it measures how long ovn-northd needs for a new port, and so how long writers should let it rest.
//
// It writes nothing, and takes every port without a type for the port of a pod: the caller knows which ports are its own. It connects to any
// server that reaches a majority of its cluster, and again when a connection fails. It knows neither the backend, which has connections
// of its own, nor the model.
package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// Moment is when something happened, as the number of milliseconds since 1970. 0: it has not happened.
type Moment int64

// Past is the Moment of what had happened before it could be seen.
const Past Moment = -1

// Time returns the time; zero if it is not known.
func (m Moment) Time() time.Time {
	if m <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m))
}

// Times says how far OVN is with a port, by the clock of this process: a Moment is when the database has
// notified it.
type Times struct {
	Written Moment // the northbound database has the port
	// Translated: ovn-northd has written the port to the southbound database. Bound: a chassis has claimed it.
	// Both stay 0 without a southbound database.
	Translated, Bound Moment
	// Installed: the switch of the chassis has the flows of the port. Without a southbound database, the time is when
	// ovn-northd has reported that to the northbound database.
	Installed Moment
}

// Ports follows how far OVN is with each port, and which chassis it has. It writes nothing, and asks no server for more than its
// notifications.
type Ports struct {
	log    *slog.Logger
	north  *portTable
	northd northd
	// Both are nil without a southbound database.
	south   *portTable
	chassis *chassisTable
}

// NewPorts returns a Ports of a northbound and a southbound database; the latter can be nil. installed is called when a switch has the flows of
// a port for the first time since the port is known. chassis is called with the chassis that OVN has when they are known, and when they
// change, with a southbound database: the host name of each, by its name.
func NewPorts(north, south *servers.List, installed func(port string), chassis func(hosts map[string]string), log *slog.Logger) *Ports {
	p := &Ports{log: log}
	p.north = newPortTable(north, "Logical_Switch_Port", "name", "type", "up")
	p.north.northd = &p.northd
	p.north.level = slog.LevelDebug // the Backend's caller reports the same
	if south == nil {
		p.north.installed = installed
		return p
	}
	p.south = newPortTable(south, "Port_Binding", "logical_port", "type", "up", "chassis")
	p.south.installed, p.south.level = installed, slog.LevelWarn
	p.chassis = newChassisTable(south, chassis)
	return p
}

// Run follows the databases until ctx is done.
func (p *Ports) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if p.south != nil {
		running.Go(func() { p.south.run(ctx, p.south, p.log) })
		running.Go(func() { p.chassis.run(ctx, p.chassis, p.log) })
	}
	p.north.run(ctx, p.north, p.log)
}

// HasSouthbound reports whether Translated and Bound are followed.
func (p *Ports) HasSouthbound() bool { return p.south != nil }

// Rest returns how long after a write to the northbound database the next one should begin, so that ovn-northd is not always busy.
func (p *Ports) Rest() time.Duration { return p.northd.rest() }

// Northd returns the time that ovn-northd needed to translate the last new port that was measured, or how long the present one has waited if that
// is longer; 0 if neither is known.
func (p *Ports) Northd() time.Duration { return p.northd.last() }

// last is the table from which Installed comes, and with a southbound database also Translated and Bound.
func (p *Ports) last() *portTable {
	if p.south != nil {
		return p.south
	}
	return p.north
}

// Port returns the times of a port. known is false until the database with Installed has answered once. err is
// why it does not answer now; the times are then the last known.
func (p *Ports) Port(name string) (times Times, known bool, err error) {
	in, known, err := p.north.get(name)
	times = Times{Written: in.row, Installed: in.up}
	if p.south == nil {
		return times, known, err
	}
	in, known, err = p.south.get(name)
	times.Translated, times.Bound, times.Installed = in.row, in.chassis, in.up
	if times.Translated > 0 && (times.Written == 0 || times.Written > times.Translated) {
		times.Written = times.Translated // the notification of the northbound database was read later
	}
	return times, known, err
}

// Count returns how many of the ports for which is returns true have passed a stage. known is as that of Port.
func (p *Ports) Count(is func(port string) bool) (translated, bound, installed int, known bool) {
	t := p.last()
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.rows {
		if !is(name) {
			continue
		}
		translated++
		if r.chassis != 0 {
			bound++
		}
		if r.up != 0 {
			installed++
		}
	}
	return translated, bound, installed, t.known
}
