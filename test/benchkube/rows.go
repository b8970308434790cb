package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

// rowWatch notes when switch ports come into a northbound database. It speaks OVSDB
// (RFC 7047) by itself: what a client library does with a row beside telling of it
// would be measured too, and on the processors that are measured.
type rowWatch struct {
	*moments
	conn net.Conn
	done sync.WaitGroup
}

// monitor asks for the names of the switch ports that come (RFC 7047, section 4.1.5).
const monitor = `{"method":"monitor","id":0,"params":["OVN_Northbound",null,{"Logical_Switch_Port":` +
	`{"columns":["name"],"select":{"initial":false,"insert":true,"delete":false,"modify":false}}}]}`

func watchRows(ctx context.Context, endpoint string) (*rowWatch, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, fmt.Errorf("watch switch ports: %w", err)
	}
	w := &rowWatch{moments: newMoments("rows"), conn: conn}
	in := json.NewDecoder(conn)
	if err := w.begin(in); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("watch switch ports: %w", err)
	}
	w.done.Go(func() { w.follow(in) })
	return w, nil
}

// ovsdbMessage is a request, a notification or an answer.
type ovsdbMessage struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
	Error  json.RawMessage   `json:"error"`
}

// begin asks, and reads the answer.
func (w *rowWatch) begin(in *json.Decoder) error {
	if _, err := io.WriteString(w.conn, monitor); err != nil {
		return err
	}
	var answer ovsdbMessage
	if err := in.Decode(&answer); err != nil {
		return err
	}
	if answer.Method != "" || string(answer.Error) != "null" {
		return fmt.Errorf("the server answers %s %s", answer.Method, answer.Error)
	}
	return nil
}

// follow notes the ports that come until the connection ends.
func (w *rowWatch) follow(in *json.Decoder) {
	for {
		var m ovsdbMessage
		if err := in.Decode(&m); err != nil {
			return // what is awaited does not come, which is told
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

func (w *rowWatch) update(params []json.RawMessage) {
	var tables map[string]map[string]struct{ New struct{ Name string } }
	if len(params) != 2 || json.Unmarshal(params[1], &tables) != nil {
		return
	}
	for _, port := range tables["Logical_Switch_Port"] {
		w.note(port.New.Name)
	}
}

func (w *rowWatch) stop() {
	_ = w.conn.Close()
	w.done.Wait()
}

// journal is a place in the file to which ovsdb-server appends its transactions.
type journal struct {
	path string
	size int64
}

func journalOf(p *ovsdb.Process) (journal, error) {
	info, err := os.Stat(p.Database())
	if err != nil {
		return journal{}, fmt.Errorf("look at the northbound database: %w", err)
	}
	return journal{p.Database(), info.Size()}, nil
}

// since returns, of each transaction that was written after the place, the tables
// that it changed.
func (j journal) since() ([]string, error) {
	text, err := j.read()
	if err != nil {
		return nil, fmt.Errorf("read the northbound database's transactions: %w", err)
	}
	var all []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "OVSDB ") {
			continue // what stands before each transaction
		}
		var tables map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &tables); err != nil {
			return nil, fmt.Errorf("read the northbound database's transactions: %w", err)
		}
		all = append(all, tableNames(tables))
	}
	return all, nil
}

func (j journal) read() (string, error) {
	f, err := os.Open(j.path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(j.size, io.SeekStart); err != nil {
		return "", err
	}
	text, err := io.ReadAll(f)
	return string(text), err
}

// tableNames are the tables of a transaction, without its date and comment.
func tableNames(tables map[string]json.RawMessage) string {
	var names []string
	for name := range tables {
		if !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}
