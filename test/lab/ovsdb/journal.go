package ovsdb

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Journal is a place in a file to which an ovsdb-server appends its transactions.
type Journal struct {
	path string
	size int64
}

// JournalOf returns the current end of the file of a database.
func JournalOf(path string) (Journal, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Journal{}, fmt.Errorf("read the size of a database: %w", err)
	}
	return Journal{path, info.Size()}, nil
}

// Journal returns the current end of the server's file.
func (p *Process) Journal() (Journal, error) { return JournalOf(p.Database()) }

// Record is a transaction: the changed rows of each table by UUID, without its date and comment.
type Record map[string]map[string]json.RawMessage

// Since returns the transactions after the place.
func (j Journal) Since() ([]Record, error) {
	text, err := j.read()
	if err != nil {
		return nil, fmt.Errorf("read the transactions of a database: %w", err)
	}
	var all []Record
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "OVSDB ") {
			continue // the header of a transaction
		}
		r, err := readRecord(line)
		if err != nil {
			return nil, fmt.Errorf("read the transactions of a database: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Last returns when the server has appended the last transaction after the place.
func (j Journal) Last() (time.Time, error) {
	text, err := j.read()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the last transaction of a database: %w", err)
	}
	text = strings.TrimSuffix(text, "\n")
	var last struct {
		Date int64 `json:"_date"` // in milliseconds
	}
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &last); err != nil {
		return time.Time{}, fmt.Errorf("read the last transaction of a database: %w", err)
	}
	return time.UnixMilli(last.Date), nil
}

func (j Journal) read() (string, error) {
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

func readRecord(line string) (Record, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &members); err != nil {
		return nil, err
	}
	r := Record{}
	for name, rows := range members {
		if strings.HasPrefix(name, "_") {
			continue
		}
		var table map[string]json.RawMessage
		if err := json.Unmarshal(rows, &table); err != nil {
			return nil, err
		}
		r[name] = table
	}
	return r, nil
}

// Tables returns the names of the changed tables.
func (r Record) Tables() string {
	var names []string
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}
