package follow

import (
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// chassisTable has the chassis of OVN.
type chassisTable struct {
	follower
	report func(hosts map[string]string)

	rows  map[string]chassisRow // by UUID
	first map[string]chassisRow // the rows of a first answer that is not complete yet
	away  bool                  // the database does not answer
}

type chassisRow struct{ name, host string }

func newChassisTable(database *servers.List, report func(hosts map[string]string)) *chassisTable {
	t := &chassisTable{follower: newFollower(database, "Chassis", "name", "hostname"), first: map[string]chassisRow{}, report: report}
	t.level = slog.LevelDebug // the table of ports is in the same database
	return t
}

func (t *chassisTable) show(uuid string, columns []jsontext.Value, first, gone bool) {
	rows := t.rows
	if first {
		rows = t.first
	}
	if gone {
		delete(rows, uuid)
	} else {
		rows[uuid] = chassisRow{textOf(columns[0]), textOf(columns[1])}
	}
	if !first {
		t.tell()
	}
}

func (t *chassisTable) begin() {
	t.rows, t.first, t.away = t.first, map[string]chassisRow{}, false
	t.tell()
}

func (t *chassisTable) failed(error) (isNew bool) {
	isNew = !t.away
	t.first, t.away = map[string]chassisRow{}, true
	return isNew
}

func (t *chassisTable) tell() {
	hosts := make(map[string]string, len(t.rows))
	for _, r := range t.rows {
		hosts[r.name] = r.host
	}
	t.report(hosts)
}

// textOf returns a text of JSON; empty for anything else.
func textOf(column jsontext.Value) string {
	text, err := jsontext.AppendUnquote(nil, column)
	if err != nil {
		return ""
	}
	return string(text)
}
