package uplink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/durable"
)

// stateFile is the name of the state file in Config.Dir.
const stateFile = "interfaces.json"

// saveAfter is the delay between a change and its write to disk. The bridge sends changes
// again that a crash loses.
const saveAfter = 200 * time.Millisecond

// saveShare bounds how much of the time goes into writes, and saveLatest the delay that follows from it: the file has
// thousands of ports of services, and each write has all of them.
const (
	saveShare  = 20
	saveLatest = 5 * time.Second
)

// state is what the bridge has reported up to an event. Its maps and values must not be changed.
type state struct {
	id      string // of the event; empty: none yet
	records map[string]*Record
	checks  map[uint16]*HealthCheck // by port
	nodes   []netip.Addr            // of the cluster; only known while a port is local or pods may have host ports
	place   *Place                  // nil: none or unknown
	egress  *Egress                 // nil: none
	network string                  // identity of the datastore that the switch is programmed from; empty: unknown
}

// stateFormat is what this version understands of a node's stream. Increase it with every notification or leaf that is
// new: an agent of another version left out what it did not understand, so its event ID must not be continued.
const stateFormat = 20

// kept is the state on disk.
type kept struct {
	Format     int       `json:"format"`
	ID         string    `json:"id"`
	Boot       string    `json:"boot,omitempty"`
	Node       string    `json:"node"`
	Place      *Place    `json:"place,omitempty"`
	Network    string    `json:"network,omitempty"`
	Interfaces []*Record `json:"interfaces"`

	// Exposed are ports of the node, and External ports of external addresses: agents of earlier versions
	// would take the latter for ports of the node. IPv6 are both kinds for IPv6, Own ports for the node's own programs, and Inside ports for
	// clients inside the cluster, which they do not know.
	Exposed  []*ExposedPort `json:"exposed-ports,omitempty"`
	External []*ExposedPort `json:"exposed-addresses,omitempty"`
	IPv6     []*ExposedPort `json:"exposed-ipv6,omitempty"`
	Own      []*ExposedPort `json:"own-ports,omitempty"`
	Inside   []*ExposedPort `json:"inside-ports,omitempty"`
	Checks   []*HealthCheck `json:"health-checks,omitempty"`
	Nodes    []netip.Addr   `json:"nodes,omitempty"`
	Egress   *Egress        `json:"egress,omitempty"`
}

// load reads the state that an earlier process kept for the same node. An unreadable file
// counts as missing: the bridge sends everything again. It does so after a boot too, so that the agent
// learns when its state is current.
func (u *Uplink) load() {
	u.state.records, u.state.checks, u.exposed = map[string]*Record{}, map[uint16]*HealthCheck{}, newExposed()
	if u.cfg.Dir == "" {
		return
	}
	var err error
	if u.boot, err = firstLine(u.cfg.Boot); err != nil {
		u.log.Warn("cannot read the identity of the boot; requesting all interface records from the bridge", "err", err)
	}
	k, err := readState(u.cfg.Dir)
	if err != nil {
		u.log.Error("cannot read the saved interface records; requesting all of them from the bridge", "err", err)
		return
	}
	if k.Node != u.cfg.Node.String() {
		return
	}
	u.state.network, u.state.nodes, u.state.egress = k.Network, k.Nodes, k.Egress
	fits := u.cfg.check(k.Place) == nil // otherwise the node was with OVN when the state was saved
	if fits {
		u.state.place = k.Place
	}
	if u.sameBoot = u.boot != "" && k.Boot == u.boot; u.sameBoot && k.Format == stateFormat && fits {
		u.state.id = k.ID
	}
	for _, r := range k.Interfaces {
		u.state.records[r.key()] = r
	}
	u.exposed = newExposed(k.ports()...)
	for _, c := range k.Checks {
		u.state.checks[c.Port] = c
	}
}

// readState reads the state file in dir. It returns the zero value if there is none.
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
	if slices.Contains(k.Interfaces, nil) || slices.Contains(k.ports(), nil) || slices.Contains(k.Checks, nil) {
		return kept{}, fmt.Errorf("read %s: an interface or a port is null", path)
	}
	return k, nil
}

// CheckDir fails if dir holds a state file that cannot be read.
func CheckDir(dir string) error {
	_, err := readState(dir)
	return err
}

// SavedPlace returns the node's place in the state file in dir; nil if the file has none.
func SavedPlace(dir string) (*Place, error) {
	k, err := readState(dir)
	return k.Place, err
}

func (u *Uplink) file() string { return filepath.Join(u.cfg.Dir, stateFile) }

// take applies a group of events to the state, all or none.
func (u *Uplink) take(id string, group []event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(group) > 0 && group[0][beginEvent] != nil && group[len(group)-1][completeEvent] == nil {
		return errors.New("the bridge sent an incomplete snapshot")
	}
	next := u.state
	next.id = id
	if slices.ContainsFunc(group, func(e event) bool { return e[changedEvent] != nil || e[beginEvent] != nil }) {
		next.records = maps.Clone(next.records)
	}
	if slices.ContainsFunc(group, func(e event) bool { return e[healthEvent] != nil || e[beginEvent] != nil }) {
		next.checks = maps.Clone(next.checks)
	}
	var ports exposedChanges
	for _, e := range group {
		if err := next.apply(e, &ports); err != nil {
			return err
		}
	}
	if err := u.cfg.check(next.place); err != nil {
		return err
	}
	first := !u.status.Synced
	u.state, u.unsaved = next, true
	u.status.Synced, u.heard = true, time.Now()
	u.exposed.apply(ports)
	if slices.ContainsFunc(group, event.ofServices) || ports.snapshot {
		close(u.services)
		u.services = make(chan struct{})
	}
	if first || slices.ContainsFunc(group, func(e event) bool { return !e.ofServices() }) {
		u.notify()
	}
	return nil
}

func (s *state) apply(e event, ports *exposedChanges) error {
	if e[beginEvent] != nil {
		clear(s.records)
		clear(s.checks)
		*ports = exposedChanges{snapshot: true}
		s.place, s.network, s.nodes, s.egress = nil, "", nil, nil
	}
	if name := e.exposed(); name != "" {
		return ports.read(name, e[name])
	}
	switch {
	case e[healthEvent] != nil:
		return s.applyHealth(e[healthEvent])
	case e[nodesEvent] != nil:
		return s.applyNodes(e[nodesEvent])
	case e[egressEvent] != nil:
		return s.applyEgress(e[egressEvent])
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

func (s *state) applyEgress(content json.RawMessage) error {
	var c egressChange
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("read %s: %w", egressEvent, err)
	}
	if s.egress = nil; c.Operation == "put" {
		s.egress = &c.Egress
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

// ofServices reports whether an event is only about ports of services.
func (e event) ofServices() bool {
	return e.exposed() != "" || e[healthEvent] != nil || e[nodesEvent] != nil
}

// exposed returns the name of the notification of an event about a port of a service; empty for another event.
func (e event) exposed() string {
	for _, name := range []string{exposedEvent, addressEvent, ipv6Event, ownEvent, insideEvent} {
		if e[name] != nil {
			return name
		}
	}
	return ""
}

func (s *state) applyHealth(content json.RawMessage) error {
	var c healthChange
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("read %s: %w", healthEvent, err)
	}
	if c.Operation == "put" {
		s.checks[c.Port] = &c.HealthCheck
	} else {
		delete(s.checks, c.Port)
	}
	return nil
}

func (s *state) applyNodes(content json.RawMessage) error {
	var c nodesChange
	if err := json.Unmarshal(content, &c); err != nil {
		return fmt.Errorf("read %s: %w", nodesEvent, err)
	}
	s.nodes = c.Nodes
	return nil
}

// notify wakes the goroutines that wait for a change, but not those that wait for one of ports of services. The caller
// holds u.mu.
func (u *Uplink) notify() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// keep writes the state to disk after changes, and once more when ctx is done.
func (u *Uplink) keep(ctx context.Context) {
	if err := durable.Clean(u.cfg.Dir); err != nil {
		u.log.Warn("could not remove unfinished files in the state directory", "err", err)
	}
	for ctx.Err() == nil {
		_, _, changed := u.Place()
		services, begun := u.ServicesChanged(), time.Now()
		if err := u.save(); err != nil {
			u.log.Error("could not save the interface records", "file", u.file(), "err", err)
		}
		took := time.Since(begun)
		select {
		case <-changed:
		case <-services:
		case <-ctx.Done():
		}
		pause(ctx, min(max(saveAfter, saveShare*took), saveLatest))
	}
	if err := u.save(); err != nil {
		u.log.Error("could not save the interface records", "file", u.file(), "err", err)
	}
}

func sortedChecks(all map[uint16]*HealthCheck) []*HealthCheck {
	return slices.SortedFunc(maps.Values(all), func(a, b *HealthCheck) int { return cmp.Compare(a.Port, b.Port) })
}

func (u *Uplink) save() error {
	u.mu.Lock()
	now, unsaved := u.state, u.unsaved
	if !unsaved {
		u.mu.Unlock()
		return nil
	}
	ports := slices.Collect(maps.Values(u.exposed.ports))
	u.unsaved = false
	u.mu.Unlock()
	records := slices.SortedFunc(maps.Values(now.records), func(a, b *Record) int { return strings.Compare(a.key(), b.key()) })
	k := kept{
		Format: stateFormat,
		ID:     now.id, Boot: u.boot, Node: u.cfg.Node.String(), Place: now.place, Network: now.network, Interfaces: records,
		Checks: sortedChecks(now.checks), Nodes: now.nodes, Egress: now.egress,
	}
	k.sortPorts(ports)
	text, err := json.Marshal(k)
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
