package follow

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

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
func newPortTable(database *servers.List, table string, columns ...string) *portTable {
	return &portTable{follower: newFollower(database, table, columns...), first: map[string]portRow{}, err: errUntried}
}

func (t *portTable) get(name string) (portRow, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.rows[name], t.known, fmt.Errorf("%s does not answer: %w", t.servers.Database, t.err)
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
