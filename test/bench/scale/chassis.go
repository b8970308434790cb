package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// chassis are simulated nodes in the southbound database. They claim the ports of their pods as ovn-controller does, at once.
type chassis struct {
	conn net.Conn
	ids  map[string]string // UUIDs of the rows, by name
	done sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	err     error // of the connection, or of an answer
}

// addChassis adds the chassis of the first nodes. They have the features of a real one.
func addChassis(ctx context.Context, lab *ovnhost.Lab, nodes int) (*chassis, error) {
	existing, err := nbrows.TransactIn(ctx, lab.SB.Remote, nbrows.Southbound, nbrows.All("select", "Chassis"))
	if err != nil {
		return nil, err
	}
	rows, err := nbrows.Selected(existing[0], "Chassis")
	if err != nil {
		return nil, err
	}
	var ops []any
	for i := range nodes {
		name := kube.Node(i)
		encap, own := fmt.Sprintf("encap%d", i), fmt.Sprintf("chassis%d", i)
		ops = append(ops,
			insert("Encap", encap, map[string]any{
				"type": "geneve", "ip": kube.NodeAddress(i).String(), "chassis_name": name, "options": []any{"map", [][]string{{"csum", "true"}}},
			}),
			insert("Chassis", own, map[string]any{
				"name": name, "hostname": name, "encaps": []any{"named-uuid", encap}, "other_config": rows[0]["other_config"],
			}),
			insert("Chassis_Private", "private"+own, map[string]any{"name": name, "chassis": []any{"named-uuid", own}}))
	}
	results, err := nbrows.TransactIn(ctx, lab.SB.Remote, nbrows.Southbound, ops...)
	if err != nil {
		return nil, err
	}
	c := &chassis{ids: map[string]string{}}
	for i := range nodes {
		var inserted struct{ UUID []string }
		if err := json.Unmarshal(results[3*i+1], &inserted); err != nil {
			return nil, fmt.Errorf("add chassis: %w", err)
		}
		c.ids[kube.Node(i)] = inserted.UUID[1]
	}
	if err := c.start(ctx, lab.SB.Remote); err != nil {
		return nil, err
	}
	return c, nil
}

func insert(table, name string, row map[string]any) map[string]any {
	return map[string]any{"op": "insert", "table": table, "uuid-name": name, "row": row}
}

// start follows the ports that northd adds.
func (c *chassis) start(ctx context.Context, endpoint string) (err error) {
	if c.conn, err = (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:")); err != nil {
		return fmt.Errorf("watch ports: %w", err)
	}
	_, err = fmt.Fprintf(c.conn, `{"method":"monitor","id":"monitor","params":[%q,null,{"Port_Binding":{`+
		`"columns":["type","options"],"select":{"initial":true,"insert":true,"delete":false,"modify":false}}}]}`, nbrows.Southbound)
	if err != nil {
		return errors.Join(fmt.Errorf("watch ports: %w", err), c.conn.Close())
	}
	c.done.Go(func() {
		if err := c.follow(); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
		}
	})
	return nil
}

// stop ends the claims. It returns why they ended before, if they did.
func (c *chassis) stop() error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	err := c.conn.Close()
	c.done.Wait()
	return errors.Join(err, c.failed())
}

// failed returns the error that ended the claims, or nil.
func (c *chassis) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// message is an answer, an update or an echo (RFC 7047, section 4.1).
type message struct {
	ID     json.RawMessage
	Method string
	Params []json.RawMessage
	Result json.RawMessage
	Error  any
}

// follow claims ports until the connection ends.
func (c *chassis) follow() error {
	in := json.NewDecoder(c.conn)
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.stopped {
				return nil
			}
			return fmt.Errorf("claim ports: %w", err)
		}
		if err := c.take(m); err != nil {
			return fmt.Errorf("claim ports: %w", err)
		}
	}
}

func (c *chassis) take(m message) error {
	switch {
	case m.Error != nil || strings.Contains(string(m.Result), `"error"`):
		return fmt.Errorf("the server answers %v %s", m.Error, m.Result)
	case m.Method == "echo":
		_, err := fmt.Fprintf(c.conn, `{"id":%s,"result":[],"error":null}`, m.ID)
		return err
	case m.Method == "update":
		return c.claim(m.Params[1])
	case string(m.ID) == `"monitor"`:
		return c.claim(m.Result)
	}
	return nil
}

// claim binds new ports to the chassis that they ask for, in one transaction.
func (c *chassis) claim(update json.RawMessage) error {
	var tables map[string]map[string]struct {
		New struct {
			Type    string
			Options []json.RawMessage // "map", and its pairs
		}
	}
	if err := json.Unmarshal(update, &tables); err != nil {
		return err
	}
	ops := []any{nbrows.Southbound}
	for id, row := range tables["Port_Binding"] {
		var pairs [][2]string
		if row.New.Type != "" || len(row.New.Options) != 2 || json.Unmarshal(row.New.Options[1], &pairs) != nil {
			continue
		}
		for _, p := range pairs {
			if own, simulated := c.ids[p[1]]; simulated && p[0] == "requested-chassis" {
				ops = append(ops, map[string]any{
					"op": "update", "table": "Port_Binding", "where": []any{[]any{"_uuid", "==", []any{"uuid", id}}},
					"row": map[string]any{"chassis": []any{"uuid", own}, "up": true},
				})
			}
		}
	}
	if len(ops) == 1 {
		return nil
	}
	return json.NewEncoder(c.conn).Encode(map[string]any{"method": "transact", "id": len(ops), "params": ops})
}
