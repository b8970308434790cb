package nic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/durable"
)

// record says that a NIC belongs to a bridge, or is leaving it.
type record struct {
	NIC     string `json:"nic"`
	Bridge  string `json:"bridge"`
	Leaving bool   `json:"leaving,omitempty"`
	// Alone is set if the NIC does not serve the node, and Silenced if the mover has turned IPv6 off on it: then it is turned on
	// again when the NIC leaves.
	Alone    bool `json:"alone,omitempty"`
	Silenced bool `json:"silenced,omitempty"`
	// First is set until the first move into the bridge has ended.
	First bool `json:"first,omitempty"`
	// Boot is the boot at which the record was written.
	Boot string `json:"boot"`
	// Link is the index of the bridge's link; 0 while a move is in progress. A link with another index
	// is a new one, and lacks what the former one had.
	Link int `json:"link,omitempty"`
	// Objects are what the bridge's link has. While a move is in progress they are what both links have.
	Objects []Object  `json:"objects,omitempty"`
	Time    time.Time `json:"time"`

	sameBoot bool
}

// joinsFirst reports whether a move is the first one into the bridge, also if it was interrupted before.
func (r *record) joinsFirst() bool { return r == nil || r.First && !r.Leaving }

// silenced reports whether the mover has turned IPv6 off on the NIC.
func (r *record) silenced() bool { return r != nil && r.Silenced }

// global reports whether an address of the record can be used by other links too.
func (r *record) global() bool { return link{objects: r.Objects}.global() }

// live returns the objects whose lifetimes have not ended.
func (r *record) live(now time.Time) (all []Object) {
	for _, o := range r.Objects {
		if o, ok := o.aged(max(0, now.Sub(r.Time))); ok {
			all = append(all, o)
		}
	}
	return all
}

const suffix = ".json"

func (m *Mover) path(nic string) string { return filepath.Join(m.cfg.Dir, nic+suffix) }

// boot identifies the current boot of the node.
func (m *Mover) boot() (string, error) {
	text, err := os.ReadFile(m.cfg.Boot)
	if err != nil {
		return "", fmt.Errorf("identify the boot of the node: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// recorded reads the record of a NIC; nil if there is none.
func (m *Mover) recorded(nic string) (*record, error) {
	text, err := os.ReadFile(m.path(nic))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(record)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && (r.NIC != nic || r.Bridge == "") {
		err = fmt.Errorf("it is the record of NIC %q and bridge %q", r.NIC, r.Bridge)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of NIC %s: %w; remove %s if the NIC is in no bridge", nic, err, m.path(nic))
	}
	boot, err := m.boot()
	r.sameBoot = r.Boot == boot
	return r, err
}

// records returns the records that can be read, and an error for the others.
func (m *Mover) records() (all []*record, err error) {
	files, err := os.ReadDir(m.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the records of NICs: %w", err)
	}
	for _, file := range files {
		nic, is := strings.CutSuffix(file.Name(), suffix)
		if !is || durable.IsTemp(file.Name()) {
			continue
		}
		r, failed := m.recorded(nic)
		err = errors.Join(err, failed)
		if r != nil && failed == nil {
			all = append(all, r)
		}
	}
	return all, err
}

// write makes a record durable.
func (m *Mover) write(r record) (err error) {
	if r.Boot, err = m.boot(); err != nil {
		return err
	}
	r.Time = time.Now()
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the record of NIC %s: %w", r.NIC, err)
	}
	return durable.Write(m.path(r.NIC), append(text, '\n'), 0o600)
}

// forget removes the record of a NIC.
func (m *Mover) forget(nic string) error {
	if err := os.Remove(m.path(nic)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of NIC %s: %w", nic, err)
	}
	return nil
}

// lockName is the file that a process locks while it moves a NIC. It is not the name of a record.
const lockName = "lock"

// lockAgain is the time between two tries to get the lock.
const lockAgain = 50 * time.Millisecond

// lock waits until no other process moves a NIC. The lock ends with the process.
func (m *Mover) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(m.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the records of NICs: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(m.cfg.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the records of NICs: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) // one that waits would outlast ctx
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock the records of NICs: %w", err)
		}
		again := time.NewTimer(lockAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			_ = file.Close()
			return nil, fmt.Errorf("another process moves a NIC: %w", ctx.Err())
		}
	}
}
