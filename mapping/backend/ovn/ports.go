package ovn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
)

// Southbound is the name of the southbound database.
const Southbound = "OVN_Southbound"

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

// PortTimes says how far OVN is with a port, by the clock of this process: a Moment is when the database has
// notified it.
type PortTimes struct {
	Written Moment // the northbound database has the port
	// Translated: ovn-northd has written the port to the southbound database. Bound: a chassis has claimed it.
	// Both stay 0 without Southbound.
	Translated, Bound Moment
	// Installed: the switch of the chassis has the flows of the port. Without Southbound, the time is when
	// ovn-northd has reported that to the northbound database.
	Installed Moment
}

// Ports follows how far OVN is with each port, and which chassis it has. It writes nothing, and asks no server for more than its
// notifications.
type Ports struct {
	cfg    Config
	log    *slog.Logger
	north  *portTable
	northd northd
	// Both are nil without Southbound.
	south   *portTable
	chassis *chassisTable
}

// NewPorts returns a Ports. installed is called when a switch has the flows of a port for the first time since
// the port is known. chassis is called with the chassis that OVN has when they are known, and when they change, with Southbound: the
// host name of each, by its name.
func NewPorts(cfg Config, installed func(port string), chassis func(hosts map[string]string), log *slog.Logger) (*Ports, error) {
	cfg.setDefaults()
	north, err := parseEndpoints("northbound", cfg.Endpoints, &cfg)
	if err != nil {
		return nil, err
	}
	p := &Ports{cfg: cfg, log: log}
	p.north = newPortTable(codec.Northbound.Name, north, "Logical_Switch_Port", "name", "type", "up")
	p.north.northd = &p.northd
	p.north.level = slog.LevelDebug // the Backend's caller reports the same
	if cfg.Southbound == "" {
		p.north.installed = installed
		return p, nil
	}
	south, err := parseEndpoints("southbound", cfg.Southbound, &cfg)
	if err != nil {
		return nil, err
	}
	p.south = newPortTable(Southbound, south, "Port_Binding", "logical_port", "type", "up", "chassis")
	p.south.installed, p.south.level = installed, slog.LevelWarn
	p.chassis = newChassisTable(south, chassis)
	return p, nil
}

// Run follows the databases until ctx is done.
func (p *Ports) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if p.south != nil {
		running.Go(func() { p.south.run(ctx, p.south, &p.cfg, p.log) })
		running.Go(func() { p.chassis.run(ctx, p.chassis, &p.cfg, p.log) })
	}
	p.north.run(ctx, p.north, &p.cfg, p.log)
}

// HasSouthbound reports whether Translated and Bound are followed.
func (p *Ports) HasSouthbound() bool { return p.south != nil }

// Rest returns how long after a write to the northbound database the next one should begin, so that ovn-northd is not always busy.
func (p *Ports) Rest() time.Duration { return p.northd.rest() }

// Northd returns the time that ovn-northd needed to translate the last new port that was measured, or how long the present one has waited if that
// is longer; 0 if neither is known.
func (p *Ports) Northd() time.Duration { return p.northd.last() }

// last is the table from which Installed comes, and with Southbound also Translated and Bound.
func (p *Ports) last() *portTable {
	if p.south != nil {
		return p.south
	}
	return p.north
}

// Port returns the times of a port. known is false until the database with Installed has answered once. err is
// why it does not answer now; the times are then the last known.
func (p *Ports) Port(name string) (times PortTimes, known bool, err error) {
	in, known, err := p.north.get(name)
	times = PortTimes{Written: in.row, Installed: in.up}
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

// portRow is a port in a database.
type portRow struct {
	uuid             string
	row, chassis, up Moment
	wasUp            bool // now or before
}

var errUntried = errors.New("not connected yet")

// portTable has the ports of one database.
type portTable struct {
	follower
	installed func(port string) // nil if another table reports it
	northd    *northd           // is shown the changes; nil for the southbound database

	mu    sync.Mutex
	rows  map[string]portRow
	first map[string]portRow // the rows of a first answer that is not complete yet
	known bool               // the database has answered
	err   error              // why it does not answer now; nil while it does
}

// newPortTable returns a portTable. The columns are the name, the type, up, and the chassis if there is one.
func newPortTable(database string, endpoints []string, table string, columns ...string) *portTable {
	return &portTable{follower: newFollower(database, endpoints, table, columns...), first: map[string]portRow{}, err: errUntried}
}

func (t *portTable) get(name string) (portRow, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.rows[name], t.known, fmt.Errorf("%s does not answer: %w", t.database, t.err)
	}
	return t.rows[name], t.known, nil
}

// failed notes why the database does not answer, and reports whether that is new.
func (t *portTable) failed(err error) (isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isNew = t.err == nil || errors.Is(t.err, errUntried)
	t.err, t.first = err, map[string]portRow{}
	if t.northd != nil {
		t.northd.forget()
	}
	return isNew
}

// begin replaces the ports by those that the first answer has shown.
func (t *portTable) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows, t.first, t.known, t.err = t.first, map[string]portRow{}, true, nil
}

// show takes a row of the first answer, or a change. Ports in the first answer keep their known Moments.
func (t *portTable) show(uuid string, columns []jsontext.Value, first, gone bool) {
	at := Past
	if !first {
		at = Moment(time.Now().UnixMilli())
	}
	name, now, ok := t.read(uuid, columns, at)
	if ok && !first && t.northd != nil {
		t.northd.see(uuid, columns[2].Kind() != '[', gone)
	}
	switch {
	case !ok:
	case first:
		t.takeFirst(name, now)
	case t.take(name, now, gone) && t.installed != nil:
		t.installed(name)
	}
}

func (t *portTable) takeFirst(name string, now portRow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first[name] = t.rows[name].then(now)
}

// take stores a row, and reports whether it is up for the first time.
func (t *portTable) take(name string, now portRow, gone bool) (installed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.rows[name]
	same := before.uuid == now.uuid
	if gone {
		if same {
			delete(t.rows, name)
		}
		return false
	}
	t.rows[name] = before.then(now)
	return now.up != 0 && (!same || !before.wasUp)
}

// then returns a port after a change. The same row keeps the Moments that it had.
func (r portRow) then(now portRow) portRow {
	if r.uuid != now.uuid {
		r = portRow{}
	}
	keep := func(before, now Moment) Moment {
		if before != 0 && now != 0 {
			return before
		}
		return now
	}
	return portRow{now.uuid, keep(r.row, now.row), keep(r.chassis, now.chassis), keep(r.up, now.up), r.wasUp || now.up != 0}
}

// read reads a row that is shown at a Moment. ok is false for a row that is not of a pod's port: such a port
// has no type.
func (t *portTable) read(uuid string, columns []jsontext.Value, at Moment) (name string, row portRow, ok bool) {
	if columns[0].Kind() != '"' || string(columns[1]) != `""` {
		return "", row, false
	}
	text, err := jsontext.AppendUnquote(nil, columns[0])
	if err != nil {
		return "", row, false
	}
	row.uuid, row.row = uuid, at
	if columns[2].Kind() == 't' { // a set of no element is not known yet
		row.up = at
	}
	if len(columns) > 3 && bytes.Contains(columns[3], []byte(`"uuid"`)) { // an optional reference
		row.chassis = at
	}
	return string(text), row, true
}
