// Package ovs plugs links into a node's Open vSwitch, over its database: a port for
// each, which says in external_ids which interface of the network it is and whose
// attachment. Those are all the memory that there is: a port that is ours is
// recognised by what it says. It watches the database, and so knows when OVN has
// installed a port. Where OpenDaylight programs the switch it has that connect to it.
//
// It knows neither links nor pods' namespaces, and runs no program.
package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Config says where the switch is. The zero value of a field takes its default.
type Config struct {
	// Endpoint is the switch's database: unix:PATH or tcp:HOST:PORT.
	// Default unix:/run/openvswitch/db.sock.
	Endpoint string
	// Bridge is the one that ports are added to. Default br-int.
	Bridge string
	// Controller is who programs the bridge. Default OVN.
	Controller Controller
	// Timeout bounds each call. Default 5 s.
	Timeout time.Duration
	// Probe is how often a connection is tried. Default 5 s.
	Probe time.Duration
	Log   *slog.Logger
}

// Controller is who programs the bridge, and so makes a port carry traffic.
type Controller string

// The two that there are. Of OpenDaylight the database tells no more than whether it is
// connected: a port is done, as far as the switch knows, when it has the link, and that
// is up.
const (
	OVN          Controller = "ovn"
	OpenDaylight Controller = "odl"
)

// hint is what may be wrong where the bridge is missing.
func (c Controller) hint() string {
	if c == OVN {
		return "does ovn-controller run?"
	}
	return "OpenDaylight makes it once the switch is connected to it"
}

const retryAfter = 500 * time.Millisecond

// Switch is a node's switch. Run it; the other methods wait, until their context ends,
// for as long as it has no connection. They may be called by many goroutines.
type Switch struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	current *session      // nil: none
	changed chan struct{} // closed when current is another
	failure error         // why there is none
	waiting bells
	settled map[string]int // by port that was deleted: the configuration without it
}

// New returns a Switch.
func New(cfg Config) (*Switch, error) {
	setDefault(&cfg.Endpoint, "unix:/run/openvswitch/db.sock")
	setDefault(&cfg.Bridge, "br-int")
	setDefault(&cfg.Controller, OVN)
	setDefault(&cfg.Timeout, 5*time.Second)
	setDefault(&cfg.Probe, 5*time.Second)
	if cfg.Controller != OVN && cfg.Controller != OpenDaylight {
		return nil, fmt.Errorf("controller %q: want %s or %s", cfg.Controller, OVN, OpenDaylight)
	}
	return &Switch{
		cfg: cfg, log: cfg.Log, changed: make(chan struct{}), failure: errors.New("not connected yet"),
		settled: map[string]int{},
	}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Run keeps a connection to the database until ctx is done. A connection is never
// mended: what fails is left, and another one is made.
func (s *Switch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		one, err := s.connect(ctx)
		if err == nil {
			s.set(one, nil)
			s.log.Info("connected to the switch", "endpoint", s.cfg.Endpoint)
			err = one.watch(ctx, s.cfg.Probe, s.cfg.Timeout)
			s.set(nil, err)
			one.close()
		}
		if ctx.Err() != nil {
			return
		}
		s.fail(err)
		pause(ctx, retryAfter)
	}
}

// fail notes why there is no connection, and logs it once.
func (s *Switch) fail(err error) {
	s.mu.Lock()
	again := s.failure != nil && s.failure.Error() == err.Error()
	s.failure = err
	s.mu.Unlock()
	if !again {
		s.log.Error("no connection to the switch", "endpoint", s.cfg.Endpoint, "err", err)
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

// set makes another session the current one, and has everybody look again.
func (s *Switch) set(one *session, failure error) {
	s.mu.Lock()
	s.current, s.failure = one, failure
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.waiting.ringAll()
}

// session waits for a connection.
func (s *Switch) session(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		one, changed, failure := s.current, s.changed, s.failure
		s.mu.Unlock()
		if one != nil {
			return one, ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection to the switch at %s (%w): %w", s.cfg.Endpoint, failure, ctx.Err())
		}
	}
}

// Ready fails where ports can't be added now, and says why.
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

// bridge is the one that ports are added to.
func (s *Switch) bridge(one *session) (*vswitch.Bridge, error) {
	b, err := one.bridge(s.cfg.Bridge)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, s.cfg.Controller.hint())
	}
	return b, nil
}

// Userspace tells whether the bridge's datapath is in user space.
func (s *Switch) Userspace(ctx context.Context) (bool, error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	b, err := s.bridge(one)
	if err != nil {
		return false, err
	}
	return b.DatapathType == "netdev", nil
}

// NullNAT tells whether OVN is told that the datapath can translate connections to what
// they are (ct_zero_snat): it then has all of them translated.
func (s *Switch) NullNAT(ctx context.Context) (bool, error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Datapath", Columns: []string{"capabilities"}})
	if err != nil {
		return false, fmt.Errorf("read what the datapath can do: %w", err)
	}
	for _, row := range results[0].Rows {
		if can, _ := row["capabilities"].(ovsdb.OvsMap); texts(can)["ct_zero_snat"] == "true" {
			return true, nil
		}
	}
	return false, nil
}

// Settings are what the switch's database says of the node: external_ids of its one
// row, "ovn-encap-ip" among them.
func (s *Switch) Settings(ctx context.Context) (map[string]string, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	row, err := one.root()
	if err != nil {
		return nil, err
	}
	return row.ExternalIDs, nil
}
