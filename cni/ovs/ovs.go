// Package ovs adds links to a node's Open vSwitch as ports, through its database. The
// external_ids of a port name its network interface and its attachment. They are the only
// state of the package: it recognises its own ports by them. The package monitors the
// database, and so knows when OVN has installed a port. For OpenDaylight it configures the
// switch to connect to the controller.
//
// The package knows neither links nor pods' namespaces, and runs no programs.
package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Config configures a Switch. Zero fields take their defaults.
type Config struct {
	// Endpoint is the address of the switch's database: unix:PATH or tcp:HOST:PORT.
	// Default unix:/run/openvswitch/db.sock.
	Endpoint string
	// Bridge is the bridge that gets the ports. Default br-int.
	Bridge string
	// Controller programs the bridge. Default OVN.
	Controller Controller
	// Timeout bounds each call. Default 5 s.
	Timeout time.Duration
	// Probe is the interval between probes of the connection. Default 5 s.
	Probe time.Duration
	// MasterWait is how long all members of OpenDaylight may be slaves of the bridge, until the switch disconnects one, and until it
	// disconnects the next one; and how long a master is not disconnected. An election of OpenDaylight takes about 20 s. Default 45 s.
	MasterWait time.Duration
	// GivesBack is set for the agent alone: its probes give ports back to the switch whose replacement was interrupted.
	GivesBack bool
	Log       *slog.Logger
}

// Controller is the software that programs the bridge.
type Controller string

// The controllers. OVN reports in the database when a port carries traffic. OpenDaylight
// does not: there a port is ready for the switch when its link is open and up.
const (
	OVN          Controller = "ovn"
	OpenDaylight Controller = "odl"
)

// hint is the advice for a missing bridge.
func (c Controller) hint() string {
	if c == OVN {
		return "check that ovn-controller runs"
	}
	return "OpenDaylight creates it once the switch is connected"
}

const retryAfter = 500 * time.Millisecond

// Switch is a node's switch. Run must run. Without a connection the other methods wait for
// one until their context ends. They may be called concurrently.
type Switch struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	current *session.Session // nil: none
	changed chan struct{}    // closed and replaced when current changes
	failure error            // the reason if current is nil
	rows    notifier

	steady     steadiness
	numbers    numbers
	replacing  atomic.Pointer[string] // the port that is being replaced; nil if none is
	reconnects request
}

// New returns a Switch.
func New(cfg Config) (*Switch, error) {
	setDefault(&cfg.Endpoint, "unix:/run/openvswitch/db.sock")
	setDefault(&cfg.Bridge, "br-int")
	setDefault(&cfg.Controller, OVN)
	setDefault(&cfg.Timeout, 5*time.Second)
	setDefault(&cfg.Probe, 5*time.Second)
	setDefault(&cfg.MasterWait, 45*time.Second)
	if cfg.Controller != OVN && cfg.Controller != OpenDaylight {
		return nil, fmt.Errorf("controller %q: want %s or %s", cfg.Controller, OVN, OpenDaylight)
	}
	return &Switch{cfg: cfg, log: cfg.Log, changed: make(chan struct{}), failure: errors.New("not connected yet")}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Run keeps a connection to the database until ctx is done. It replaces a failed connection
// by a new one.
func (s *Switch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		one, err := s.connect(ctx)
		if err == nil {
			s.set(one, nil)
			s.log.Info("connected to the switch", "endpoint", s.cfg.Endpoint)
			err = one.Watch(ctx, s.cfg.Probe, s.cfg.Timeout, func(ctx context.Context) error { return s.probe(ctx, one) })
			s.set(nil, err)
			one.Close()
		}
		if ctx.Err() != nil {
			return
		}
		s.fail(err)
		pause(ctx, retryAfter)
	}
}

// connect connects to the database. The first probe comes before others use the connection.
func (s *Switch) connect(ctx context.Context) (*session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	one, err := session.Connect(ctx, s.cfg.Endpoint, s.cfg.Timeout, s.notify)
	if err != nil {
		return nil, err
	}
	if err := s.probe(ctx, one); err != nil {
		one.Close()
		return nil, fmt.Errorf("no answer to a probe: %w", err)
	}
	return one, nil
}

// fail records why there is no connection, and logs it once.
func (s *Switch) fail(err error) {
	s.mu.Lock()
	again := s.failure != nil && s.failure.Error() == err.Error()
	s.failure = err
	s.mu.Unlock()
	if !again {
		s.log.Error("cannot connect to the switch", "endpoint", s.cfg.Endpoint, "err", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// set changes the current session, and notifies all listeners.
func (s *Switch) set(one *session.Session, failure error) {
	s.steady.reset() // OpenDaylight can have lost the switch too
	s.mu.Lock()
	s.current, s.failure = one, failure
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.rows.notifyAll()
}

// session returns the current session, and waits for one if there is none.
func (s *Switch) session(ctx context.Context) (*session.Session, error) {
	for {
		s.mu.Lock()
		one, changed := s.current, s.changed
		s.mu.Unlock()
		if one != nil {
			return one, ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			failure := s.failure
			s.mu.Unlock()
			return nil, fmt.Errorf("no connection to the switch at %s (%w): %w", s.cfg.Endpoint, failure, ctx.Err())
		}
	}
}

// AwaitConnection waits until there is a connection to the database.
func (s *Switch) AwaitConnection(ctx context.Context) error {
	_, err := s.session(ctx)
	return err
}

// Ready fails if ports cannot be added now, with the reason.
func (s *Switch) Ready() error {
	s.mu.Lock()
	one, failure := s.current, s.failure
	s.mu.Unlock()
	if one == nil {
		return fmt.Errorf("no connection to the switch at %s: %w", s.cfg.Endpoint, failure)
	}
	_, err := s.bridge(one)
	return err
}

// bridge returns the bridge that gets the ports.
func (s *Switch) bridge(one *session.Session) (*vswitch.Bridge, error) {
	b, err := one.Bridge(s.cfg.Bridge)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, s.cfg.Controller.hint())
	}
	return b, nil
}

// Userspace reports whether the bridge has a userspace datapath.
func (s *Switch) Userspace(ctx context.Context) (bool, error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	b, err := s.bridge(one)
	if err != nil {
		return false, err
	}
	return b.DatapathType == userspaceType, nil
}

// NullNAT reports whether the datapath announces to OVN that it supports NAT that changes no
// address (ct_zero_snat). OVN then uses it for all connections.
func (s *Switch) NullNAT(ctx context.Context) (bool, error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Datapath", Columns: []string{"capabilities"}})
	if err != nil {
		return false, fmt.Errorf("read the capabilities of the datapath: %w", err)
	}
	for _, row := range results[0].Rows {
		if can, _ := row["capabilities"].(ovsdb.OvsMap); texts(can)["ct_zero_snat"] == "true" {
			return true, nil
		}
	}
	return false, nil
}

// Settings returns the external_ids of the table Open_vSwitch, such as "ovn-encap-ip".
func (s *Switch) Settings(ctx context.Context) (map[string]string, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	row, err := one.Root()
	if err != nil {
		return nil, err
	}
	return row.ExternalIDs, nil
}
