// Package ovn is the backend that writes the model to OVN's northbound database, with a
// logical switch for each elan-instance and a logical router for each vpn-instance, or, in LayoutNode, a logical switch for
// each node and one logical router.
//
// A row is ours if its external_ids name this owner and its UUID is the hash of its
// identity. The backend never changes another row, and it overwrites every change that
// another program makes to a row of ours. It reads and writes rows with package ovsdb. With
// libovsdb it claims NB_Global and monitors that table only. So it notices at once when
// the server is gone or has another database. If an external writer changes a single row,
// the next Read finds it and returns an object that differs.
//
// An Interface has no row until its ELANInterface exists, nor, in LayoutNode, until its Node has its gateways; until then
// Read does not return it. An InterfaceACL has no row at all: Read finds it in the members of port groups and
// address sets. So Read leaves out ACLs of nodes and RemoteGroups that do not exist and, while the interface has
// no address, all RemoteGroups. It does not return an InterfaceACL that names no group then.
//
// Under isolation "none" (vpn-instances with a Transit) a pod reaches the services of
// every namespace. Without a Transit it reaches the services of its own namespace.
//
// The package knows neither Kubernetes nor RESTCONF. It retries only a write that fails
// because its copy of the database is old, and that once.
package ovn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
	"github.com/coe-bridge/coe-bridge/mapping/backend/reads"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Layout is how pods are arranged in logical switches.
type Layout = codec.Layout

// The layouts.
const (
	LayoutELAN = codec.LayoutELAN
	LayoutNode = codec.LayoutNode
)

// ParseLayout parses a layout.
func ParseLayout(text string) (Layout, error) { return codec.ParseLayout(text) }

// Config configures a Backend. It must have Endpoints and Layout. Each other field with its zero value takes its default.
type Config struct {
	// Endpoints lists the servers of one database, comma-separated: unix:PATH,
	// tcp:HOST:PORT or ssl:HOST:PORT. The backend uses the first that answers and is not
	// a follower in a cluster. The list must have all members of a cluster, or one.
	Endpoints string
	// Southbound lists the servers of the southbound database in the same form. The Backend does not use it; Servers returns it.
	Southbound string
	// TLS is for ssl: endpoints. It is used for each new connection.
	TLS *tls.Config
	// Owner distinguishes rows of this backend from rows of another instance in the same
	// database. Default "coe-bridge".
	Owner string
	// Layout is how pods are arranged in logical switches. It has no default here, because that depends on settings outside the backend.
	Layout Layout
	// Epoch is a decimal number that grows from one writer to the next. The database
	// belongs to the writer with the greatest epoch. Empty: every writer may write.
	Epoch string
	// Datastore names the datastore that counts the epoch; epochs of two datastores cannot
	// be compared. The backend refuses a database that has an epoch of another datastore.
	// Empty: there is only one datastore.
	Datastore string
	// Timeout bounds each transaction that writes; a large one has it once more for each 1,000
	// groups. Default 10 s.
	Timeout time.Duration
	// ReadTimeout is how long the server may send nothing during a Read. Default 30 s.
	ReadTimeout time.Duration
	// ConnectTimeout bounds the attempt to connect to one endpoint. Default 2 s.
	ConnectTimeout time.Duration
	// Probe is the interval of Watch's check that the server answers, and is the leader. Default 1 s.
	Probe time.Duration
	// Batch is the greatest number of groups (pods, services, subnets, …) in one
	// transaction. A change of policies has a transaction of up to 100 times as many. Default 100.
	Batch int
}

func (c *Config) setDefaults() {
	setDefault(&c.Owner, identity.DefaultOwner)
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 30*time.Second)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.Probe, time.Second)
	setDefault(&c.Batch, 100)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Backend writes to one northbound database. Several goroutines may call its methods;
// reads and writes exclude each other.
type Backend struct {
	cfg     Config
	servers *servers.List
	codec   codec.Codec
	log     *slog.Logger

	lock         chan struct{}           // a mutex that can be waited for until a context ends: locked while empty
	session      atomic.Pointer[session] // nil while there is none; changed under lock
	next         int                     // index of the endpoint to try first; guarded by lock
	readSessions reads.Sessions[*session]
	moved        moved // guarded by lock
}

// New returns a backend. It connects when it is first used; Close closes the connection.
// An error reports an invalid Config.
func New(cfg Config, log *slog.Logger) (*Backend, error) {
	cfg.setDefaults()
	north, err := cfg.servers("northbound", codec.Northbound.Name, cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	if _, err := ParseLayout(string(cfg.Layout)); err != nil {
		return nil, err
	}
	if cfg.Epoch != "" {
		if _, err := strconv.ParseUint(cfg.Epoch, 10, 64); err != nil {
			return nil, fmt.Errorf("northbound epoch %q: want a decimal number", cfg.Epoch)
		}
	}
	b := &Backend{cfg: cfg, servers: north, codec: codec.Codec{Owner: identity.Owner(cfg.Owner), Layout: cfg.Layout}, log: log, lock: make(chan struct{}, 1), moved: moved{ahead: map[netip.Addr]bool{}, refused: map[netip.Addr]bool{}}}
	b.release()
	return b, nil
}

// Servers returns the servers of the northbound and the southbound database. south is nil without Southbound.
func (c Config) Servers() (north, south *servers.List, err error) {
	c.setDefaults()
	north, err = c.servers("northbound", codec.Northbound.Name, c.Endpoints)
	if err == nil && c.Southbound != "" {
		south, err = c.servers("southbound", "OVN_Southbound", c.Southbound)
	}
	return north, south, err
}

func (c *Config) servers(name, database, endpoints string) (*servers.List, error) {
	all, err := servers.ParseEndpoints(endpoints, c.TLS != nil)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	return &servers.List{
		Database: database, Endpoints: all, TLS: c.TLS,
		Timeout: c.Timeout, ReadTimeout: c.ReadTimeout, ConnectTimeout: c.ConnectTimeout, Probe: c.Probe,
	}, nil
}

// Limits returns the limits of the backend's layout.
func (b *Backend) Limits() netvirt.Limits { return b.cfg.Layout.Limits() }

// Close closes the connection. A later call of another method opens a new one.
func (b *Backend) Close() {
	<-b.lock
	b.discard()
	b.release()
}

// Kinds returns the kinds that the backend writes. LayoutNode has no ports of nodes in isolated namespaces.
func (b *Backend) Kinds() netvirt.KindSet {
	if b.cfg.Layout == LayoutNode {
		return kinds &^ netvirt.NewKindSet(netvirt.KindNodePort)
	}
	return kinds
}

var kinds = netvirt.NewKindSet(
	netvirt.KindTransit, netvirt.KindNode, netvirt.KindNodeNetwork, netvirt.KindManagementPort, netvirt.KindGateway, netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindSubnet, netvirt.KindNodePort,
	netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindMACEntry, netvirt.KindVPNInterface, netvirt.KindAdjacency,
	netvirt.KindRemoteGroup, netvirt.KindEgressIP, netvirt.KindACL, netvirt.KindACE, netvirt.KindInterfaceACL,
	netvirt.KindService, netvirt.KindServiceVIP, netvirt.KindGatewayVIP, netvirt.KindFloatingIP,
)

// Read returns the objects that the rows of ours hold. If an external writer has changed
// the rows of an object, it returns an object under the same key that differs from every
// wanted object.
func (b *Backend) Read(ctx context.Context) (have netvirt.Model, err error) {
	err = b.readMirror(ctx, func(m *mirror) { have = m.model() })
	return have, err
}

// ReadByScope implements reconcile.Divided.
func (b *Backend) ReadByScope(ctx context.Context) (have map[netvirt.Scope]netvirt.Parts, err error) {
	err = b.readMirror(ctx, func(m *mirror) { have = m.byScope() })
	return have, err
}

// readMirror reads the database into the mirror, and passes this on.
func (b *Backend) readMirror(ctx context.Context, use func(*mirror)) error {
	err := b.with(ctx, func(s *session) error {
		if err := b.read(ctx, s); err != nil {
			return err
		}
		use(s.mirror)
		b.readSessions.Used(s)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read northbound database: %w", err)
	}
	return nil
}

// Write makes the changes in transactions of at most Batch groups. changes must be in the
// order of netvirt.Sort. If the database differs from the last Read, Write reads it
// again and starts over, once. While the layout changes it fails instead, also if the connection was closed since the last Read: the caller must read, because
// other objects are damaged then than it knows. A *netvirt.RejectedError names the changes that the
// server refuses; the groups that do not depend on them are written. A *netvirt.DeferredError names changes of nodes whose
// layout changes later. After any other error
// some of the changes may have been made.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	if len(changes) == 0 {
		return nil
	}
	err := b.with(ctx, func(s *session) error {
		moves := s.mirror.moves()
		err := b.write(ctx, s, changes)
		if errors.Is(err, errStale) && !moves && !s.mirror.moves() {
			b.log.Debug("reading the northbound database again", "err", err)
			s.mirror = nil
			err = b.write(ctx, s, changes)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write northbound database: %w", err)
	}
	return nil
}

// write makes the changes.
func (b *Backend) write(ctx context.Context, s *session, changes []netvirt.Change) error {
	w := &write{session: s, timeout: b.cfg.Timeout}
	if s.mirror == nil {
		w.fresh = true
		if err := b.read(ctx, s); err != nil {
			return err
		}
		if s.mirror.moves() {
			return fmt.Errorf("%w, or the connection was closed, while the layout changes", errStale)
		}
	}
	if s.mirror.moves() {
		return b.move(ctx, w, steps(changes))
	}
	return w.run(ctx, transactions(steps(changes), b.cfg.Batch))
}

func (b *Backend) read(ctx context.Context, s *session) error {
	ctx, cancel := s.conn.WhileHeard(ctx, b.cfg.ReadTimeout)
	defer cancel()
	more := max(1, int32(b.cfg.ReadTimeout/b.cfg.Timeout))
	s.large.Add(more)
	defer s.large.Add(-more)
	return s.read(ctx, b.codec)
}

// with runs a function with the session, under the lock. It closes the session if the
// function fails. If the error is errStale, it drops only the mirror.
func (b *Backend) with(ctx context.Context, do func(*session) error) error {
	if err := b.acquire(ctx); err != nil {
		return err
	}
	defer b.release()
	s, err := b.connected(ctx)
	if err != nil {
		return err
	}
	err = do(s)
	var deferred *netvirt.DeferredError
	switch {
	case err == nil, errors.Is(err, netvirt.ErrRejected), errors.As(err, &deferred):
	case errors.Is(err, errStale):
		s.mirror = nil
	default:
		b.discard()
	}
	return err
}

// acquire locks the backend, unless ctx ends first.
func (b *Backend) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-b.lock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Backend) release() { b.lock <- struct{}{} }
