package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stateFile is the name of the file in Config.Dir.
const stateFile = "interfaces.json"

// saveAfter is how long changes are gathered before they are kept. What is lost
// meanwhile the bridge tells again.
const saveAfter = 200 * time.Millisecond

// state is what the bridge has said, as of the event of an ID. Records are not changed
// once they are in it.
type state struct {
	id      string // empty: nothing was said yet
	records map[string]*Record
	place   *Place // nil: the node has none, as far as is known
	network string // what the node's switch is programmed from; empty: that is not known
}

// kept is the form of a state on disk.
type kept struct {
	ID         string    `json:"id"`
	Node       string    `json:"node"`
	Place      *Place    `json:"place,omitempty"`
	Network    string    `json:"network,omitempty"`
	Interfaces []*Record `json:"interfaces"`
}

// load reads what an earlier process has kept; of another node's nothing.
func (u *Uplink) load() error {
	u.state.records = map[string]*Record{}
	if u.cfg.Dir == "" {
		return nil
	}
	text, err := os.ReadFile(u.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what was kept of the node's interfaces: %w", err)
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		u.log.Error("what was kept of the node's interfaces is not readable, and is asked for again", "file", u.file(), "err", err)
		return nil
	}
	if k.Node != u.cfg.Node.String() {
		return nil
	}
	u.state.id, u.state.place, u.state.network = k.ID, k.Place, k.Network
	for _, r := range k.Interfaces {
		u.state.records[r.key()] = r
	}
	return nil
}

func (u *Uplink) file() string { return filepath.Join(u.cfg.Dir, stateFile) }

// take makes a group of events part of the state, as a whole.
func (u *Uplink) take(id string, group []event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := u.state
	next.id, next.records = id, maps.Clone(next.records)
	for _, e := range group {
		if err := next.apply(e); err != nil {
			return err
		}
	}
	u.state, u.unsaved = next, true
	u.is.Synced = true
	u.wake()
	return nil
}

func (s *state) apply(e event) error {
	if e[beginEvent] != nil {
		clear(s.records)
		s.place, s.network = nil, ""
	}
	switch {
	case e[nodeEvent] != nil:
		return s.applyNode(e[nodeEvent])
	case e[networkEvent] != nil:
		return s.applyNetwork(e[networkEvent])
	}
	if e[changedEvent] == nil {
		return nil
	}
	var c change
	if err := json.Unmarshal(e[changedEvent], &c); err != nil {
		return fmt.Errorf("read %s: %w", changedEvent, err)
	}
	if c.Operation == "put" {
		s.records[c.key()] = &c.Record
	} else {
		delete(s.records, c.key())
	}
	return nil
}

func (s *state) applyNode(content json.RawMessage) error {
	var c nodeChange
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("read %s: %w", nodeEvent, err)
	}
	if s.place = nil; c.Operation == "put" {
		s.place = &c.Place
	}
	return nil
}

func (s *state) applyNetwork(content json.RawMessage) error {
	var c networkChange
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("read %s: %w", networkEvent, err)
	}
	s.network = c.Identity
	return nil
}

// wake has those look again who wait for the state. The caller holds the lock.
func (u *Uplink) wake() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// keep writes the state to disk whenever it has changed, until ctx is done, and then
// once more.
func (u *Uplink) keep(ctx context.Context) {
	for ctx.Err() == nil {
		u.mu.Lock()
		changed := u.changed
		u.mu.Unlock()
		if err := u.save(); err != nil {
			u.log.Error("keep the node's interfaces on disk", "file", u.file(), "err", err)
		}
		select {
		case <-changed:
			pause(ctx, saveAfter)
		case <-ctx.Done():
		}
	}
	if err := u.save(); err != nil {
		u.log.Error("keep the node's interfaces on disk", "file", u.file(), "err", err)
	}
}

func (u *Uplink) save() error {
	u.mu.Lock()
	now, unsaved := u.state, u.unsaved
	u.unsaved = false
	u.mu.Unlock()
	if !unsaved {
		return nil
	}
	records := slices.SortedFunc(maps.Values(now.records), func(a, b *Record) int { return strings.Compare(a.key(), b.key()) })
	text, err := json.Marshal(kept{ID: now.id, Node: u.cfg.Node.String(), Place: now.place, Network: now.network, Interfaces: records})
	if err == nil {
		err = replaceFile(u.file(), text)
	}
	if err != nil {
		u.mu.Lock()
		u.unsaved = true
		u.mu.Unlock()
	}
	return err
}

// replaceFile writes a file as a whole or not at all.
func replaceFile(path string, text []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
