// Package nbwatch notifies of new and translated switch ports and changed address sets in an OVN northbound database, and of installed ports in the
// database of a switch, for measurements. It implements OVSDB (RFC 7047) itself, because the overhead of a client library would
// be measured too, on the same processors.
package nbwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
)

// Watch is a connection that notifies of rows of one table.
type Watch struct {
	conn net.Conn
	rows rows
	came func(name string)
	done sync.WaitGroup
}

// rows are the rows of which a Watch notifies.
type rows struct {
	database, table string
	which           string                           // the request for them (RFC 7047, section 4.1.5)
	name            func(row json.RawMessage) string // of a row; empty if the row does not count
}

// Start calls came, from one goroutine, with the name of each new switch port in the database at endpoint,
// "unix:PATH". It ends with Stop, or silently when the server closes the connection.
func Start(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, came, rows{
		"OVN_Northbound", "Logical_Switch_Port", `"columns":["name"],"select":{"initial":false,"insert":true,"delete":false,"modify":false}`, named,
	})
}

// StartSets is Start for the address sets whose addresses change.
func StartSets(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, came, rows{
		"OVN_Northbound", "Address_Set", `"columns":["name","addresses"],"select":{"initial":false,"insert":false,"delete":false,"modify":true}`, named,
	})
}

// StartTranslated is Start for the switch ports that ovn-northd has translated. A port comes again if it changes later. It can be translated when it is
// first seen: the server can notify of an insertion and a change at once.
func StartTranslated(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, came, rows{
		"OVN_Northbound", "Logical_Switch_Port", `"columns":["name","up"],"select":{"initial":false,"insert":true,"delete":false,"modify":true}`, translated,
	})
}

// StartInstalled is Start for the ports of a switch whose flows ovn-controller has installed, with their iface-id. endpoint is the
// switch's database. A port comes again if it changes later.
func StartInstalled(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, came, rows{
		"Open_vSwitch", "Interface", `"columns":["external_ids"],"select":{"initial":false,"insert":false,"delete":false,"modify":true}`, installed,
	})
}

func named(row json.RawMessage) string {
	var r struct{ Name string }
	_ = json.Unmarshal(row, &r)
	return r.Name
}

func translated(row json.RawMessage) string {
	var r struct{ Up any } // a set of no element until then
	if json.Unmarshal(row, &r) != nil {
		return ""
	}
	if _, is := r.Up.(bool); !is {
		return ""
	}
	return named(row)
}

func installed(row json.RawMessage) string {
	var r struct {
		ExternalIDs []json.RawMessage `json:"external_ids"` // "map", and its pairs
	}
	var pairs [][2]string
	if json.Unmarshal(row, &r) != nil || len(r.ExternalIDs) != 2 || json.Unmarshal(r.ExternalIDs[1], &pairs) != nil {
		return ""
	}
	ids := map[string]string{}
	for _, p := range pairs {
		ids[p[0]] = p[1]
	}
	if ids["ovn-installed"] != "true" {
		return ""
	}
	return ids["iface-id"]
}

// start requests notifications.
func start(ctx context.Context, endpoint string, came func(name string), r rows) (*Watch, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", r.table, err)
	}
	w := &Watch{conn: conn, rows: r, came: came}
	in := json.NewDecoder(conn)
	if err := w.begin(in); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("watch %s: %w", r.table, err)
	}
	w.done.Go(func() { w.follow(in) })
	return w, nil
}

// Stop ends the watch.
func (w *Watch) Stop() {
	_ = w.conn.Close()
	w.done.Wait()
}

// message is a request, a notification or an answer.
type message struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
	Error  json.RawMessage   `json:"error"`
}

// begin sends the request, and reads the answer.
func (w *Watch) begin(in *json.Decoder) error {
	if _, err := fmt.Fprintf(w.conn, `{"method":"monitor","id":0,"params":[%q,null,{%q:{%s}}]}`, w.rows.database, w.rows.table, w.rows.which); err != nil {
		return err
	}
	var answer message
	if err := in.Decode(&answer); err != nil {
		return err
	}
	if answer.Method != "" || string(answer.Error) != "null" {
		return fmt.Errorf("the server answers %s %s", answer.Method, answer.Error)
	}
	return nil
}

// follow calls came for rows until the connection ends.
func (w *Watch) follow(in *json.Decoder) {
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			return
		}
		switch m.Method {
		case "echo":
			if _, err := fmt.Fprintf(w.conn, `{"id":%s,"result":[],"error":null}`, m.ID); err != nil {
				return
			}
		case "update":
			w.update(m.Params)
		}
	}
}

func (w *Watch) update(params []json.RawMessage) {
	var tables map[string]map[string]struct{ New json.RawMessage }
	if len(params) != 2 || json.Unmarshal(params[1], &tables) != nil {
		return
	}
	for _, row := range tables[w.rows.table] {
		if name := w.rows.name(row.New); name != "" {
			w.came(name)
		}
	}
}
