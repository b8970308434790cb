package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/cache"
	libovsdb "github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/test/nbcopy"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

// rowWatch notes when switch ports come into a northbound database.
type rowWatch struct {
	*moments
	client libovsdb.Client
}

func watchRows(ctx context.Context, endpoint string) (*rowWatch, error) {
	c, err := nbcopy.Connect(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	w := &rowWatch{newMoments("rows"), c}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{AddFunc: func(_ string, m model.Model) {
		if port, ok := m.(*nb.LogicalSwitchPort); ok {
			w.note(port.Name)
		}
	}})
	port := &nb.LogicalSwitchPort{}
	if _, err := c.Monitor(ctx, c.NewMonitor(libovsdb.WithTable(port, &port.Name))); err != nil {
		c.Close()
		return nil, fmt.Errorf("watch switch ports: %w", err)
	}
	return w, nil
}

func (w *rowWatch) stop() { w.client.Close() }

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
