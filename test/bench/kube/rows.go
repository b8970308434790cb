package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// rowWatch notes the times at which switch ports appear in a northbound database.
type rowWatch struct {
	*moments
	*nbwatch.Watch
}

func watchRows(ctx context.Context, endpoint string) (*rowWatch, error) {
	m := newMoments("rows")
	w, err := nbwatch.Start(ctx, endpoint, m.note)
	return &rowWatch{m, w}, err
}

// journal is a place in the file to which ovsdb-server appends its transactions.
type journal struct {
	path string
	size int64
}

func journalOf(p *ovsdb.Process) (journal, error) {
	info, err := os.Stat(p.Database())
	if err != nil {
		return journal{}, fmt.Errorf("read the size of the northbound database: %w", err)
	}
	return journal{p.Database(), info.Size()}, nil
}

// since returns the changed tables of each transaction after the place.
func (j journal) since() ([]string, error) {
	text, err := j.read()
	if err != nil {
		return nil, fmt.Errorf("read the northbound database's transactions: %w", err)
	}
	var all []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "OVSDB ") {
			continue // the header of a transaction
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

// tableNames returns the names of the tables of a transaction, without its date and comment.
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
