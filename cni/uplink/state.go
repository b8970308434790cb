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

	"github.com/coe-bridge/coe-bridge/cni/durable"
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

// load reads the state that an earlier process kept for the same node. A file that
// cannot be read counts as absent: the bridge tells everything again.
func (u *Uplink) load() {
	u.state.records = map[string]*Record{}
	if u.cfg.Dir == "" {
		return
	}
	k, err := readState(u.cfg.Dir)
	if err != nil {
		u.log.Error("the kept records of the node's interfaces cannot be read; the bridge is asked for all of them", "err", err)
		return
	}
	if k.Node != u.cfg.Node.String() {
		return
	}
	u.state.id, u.state.place, u.state.network = k.ID, k.Place, k.Network
	for _, r := range k.Interfaces {
		u.state.records[r.key()] = r
	}
}

// readState reads the file of dir; the zero value if there is none.
func readState(dir string) (k kept, err error) {
	path := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kept{}, nil
	case err != nil:
		return kept{}, err
	}
	if err := json.Unmarshal(text, &k); err != nil {
		return kept{}, fmt.Errorf("read %s: %w", path, err)
	}
	if slices.Contains(k.Interfaces, nil) {
		return kept{}, fmt.Errorf("read %s: an interface is null", path)
	}
	return k, nil
}

// CheckDir fails if dir holds a state file that cannot be read.
func CheckDir(dir string) error {
	_, err := readState(dir)
	return err
}

func (u *Uplink) file() string { return filepath.Join(u.cfg.Dir, stateFile) }

// take makes a group of events part of the state, as a whole.
func (u *Uplink) take(id string, group []event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(group) > 0 && group[0][beginEvent] != nil && group[len(group)-1][completeEvent] == nil {
		return errors.New("the bridge sent a part of a snapshot")
	}
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
	if err := durable.Clean(u.cfg.Dir); err != nil {
		u.log.Warn("unfinished files are left in the state directory", "err", err)
	}
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
		err = durable.Write(u.file(), text, 0o600)
	}
	if err != nil {
		u.mu.Lock()
		u.unsaved = true
		u.mu.Unlock()
	}
	return err
}
