// Package nbwatch notifies of new switch ports and changed address sets in an OVN northbound database, for measurements. It implements
// OVSDB (RFC 7047) itself, because the overhead of a client library would be measured too, on the
// same processors.
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
	conn  net.Conn
	table string
	came  func(name string)
	done  sync.WaitGroup
}

// Start calls came, from one goroutine, with the name of each new switch port in the database at endpoint,
// "unix:PATH". It ends with Stop, or silently when the server closes the connection.
func Start(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, "Logical_Switch_Port", `"columns":["name"],"select":{"initial":false,"insert":true,"delete":false,"modify":false}`, came)
}

// StartSets is Start for the address sets whose addresses change.
func StartSets(ctx context.Context, endpoint string, came func(name string)) (*Watch, error) {
	return start(ctx, endpoint, "Address_Set",
		`"columns":["name","addresses"],"select":{"initial":false,"insert":false,"delete":false,"modify":true}`, came)
}

// start requests notifications of rows (RFC 7047, section 4.1.5).
func start(ctx context.Context, endpoint, table, which string, came func(name string)) (*Watch, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", table, err)
	}
	w := &Watch{conn: conn, table: table, came: came}
	in := json.NewDecoder(conn)
	if err := w.begin(in, which); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("watch %s: %w", table, err)
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
func (w *Watch) begin(in *json.Decoder, which string) error {
	if _, err := fmt.Fprintf(w.conn, `{"method":"monitor","id":0,"params":["OVN_Northbound",null,{%q:{%s}}]}`, w.table, which); err != nil {
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
	var tables map[string]map[string]struct{ New struct{ Name string } }
	if len(params) != 2 || json.Unmarshal(params[1], &tables) != nil {
		return
	}
	for _, row := range tables[w.table] {
		w.came(row.New.Name)
	}
}
