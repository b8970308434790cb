// Package ovn is the backend that realises the model in OVN's northbound
// database, with a logical switch for each elan-instance and a logical router
// for each vpn-instance.
//
// Rows of ours have UUIDs that follow from what they are for, and external_ids
// that name their owner; no other row is ever changed, and rows of ours belong
// to us wholly. The backend reads by select and writes by transaction, over a
// connection of its own whose answers it decodes while they come; by libovsdb it
// claims NB_Global and monitors that alone. So it notices at once when a server is gone or
// its database is another, while a single row that another hand has changed is
// found by reading again, which says so by an object that differs.
//
// An Interface has no row before its ELANInterface does; until then it is not
// read back.
//
// Under isolation "none" (vpn-instances with a Transit) a pod reaches the
// services of every namespace. Without a Transit it reaches those of its own.
//
// It knows neither Kubernetes nor RESTCONF, and retries nothing.
package ovn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/reads"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config says where the database is and who writes to it. The zero value of a
// field takes its default.
type Config struct {
	// Endpoints are the servers of one database: unix:PATH, tcp:HOST:PORT or
	// ssl:HOST:PORT, comma-separated. Any that answers will do.
	Endpoints string
	// TLS is for endpoints that begin with ssl:. It is used for each new connection.
	TLS *tls.Config
	// Owner tells rows of this program from those of another instance of it in
	// the same database. Default "coe-bridge".
	Owner string
	// Epoch is a decimal number that grows from one writer to the next. The
	// database belongs to the writer with the greatest. Empty: it belongs to all.
	Epoch string
	// Datastore names what the epochs are counted by; epochs of two of them have
	// nothing to do with each other. While the database has an epoch of another one,
	// it is not written to. Empty: there is one alone.
	Datastore string
	// Timeout bounds each transaction that writes. Default 10 s.
	Timeout time.Duration
	// ReadTimeout bounds the reading of all that is ours. Default 30 s.
	ReadTimeout time.Duration
	// ConnectTimeout bounds the attempt at one endpoint. Default 2 s.
	ConnectTimeout time.Duration
	// Probe is how often a connection is tried while it is watched. Default 5 s.
	Probe time.Duration
	// Batch is the number of groups (pods, services, subnets, …) that are
	// written in one transaction. Default 100.
	Batch int
}

func (c *Config) setDefaults() {
	setDefault(&c.Owner, "coe-bridge")
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 30*time.Second)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.Probe, 5*time.Second)
	setDefault(&c.Batch, 100)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Backend writes to one northbound database. Its methods may be called by
// several goroutines; reads and writes take turns.
type Backend struct {
	cfg       Config
	endpoints []string
	codec     codec
	log       *slog.Logger

	turn         chan struct{} // holds one value while nobody has the turn
	session      *session      // nil while there is none; who has the turn may use it
	next         int           // endpoint to try first
	readSessions reads.Sessions[*session]
}

// New returns a backend. It connects at its first use. Close frees it.
func New(cfg Config, log *slog.Logger) (*Backend, error) {
	cfg.setDefaults()
	endpoints := strings.Split(cfg.Endpoints, ",")
	for _, e := range endpoints {
		if err := checkEndpoint(e, &cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Epoch != "" {
		if _, err := strconv.ParseUint(cfg.Epoch, 10, 64); err != nil {
			return nil, fmt.Errorf("northbound epoch %q: want a decimal number", cfg.Epoch)
		}
	}
	b := &Backend{cfg: cfg, endpoints: endpoints, codec: codec{cfg.Owner}, log: log, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b, nil
}

func checkEndpoint(e string, cfg *Config) error {
	scheme, rest, _ := strings.Cut(e, ":")
	switch {
	case rest == "":
	case scheme == "ssl" && cfg.TLS == nil:
		return fmt.Errorf("northbound endpoint %q: needs a certificate and its key", e)
	case scheme == "unix", scheme == "tcp", scheme == "ssl":
		return nil
	}
	return fmt.Errorf("northbound endpoint %q: want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT", e)
}

// Close ends the connection. A later call opens another.
func (b *Backend) Close() {
	<-b.turn
	b.discard()
	b.turn <- struct{}{}
}

// Kinds are those that have a form in OVN.
func (b *Backend) Kinds() netvirt.KindSet {
	return netvirt.NewKindSet(
		netvirt.KindTransit, netvirt.KindNodeNetwork, netvirt.KindManagementPort, netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindSubnet,
		netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindMACEntry, netvirt.KindVPNInterface, netvirt.KindAdjacency,
		netvirt.KindService, netvirt.KindServiceVIP, netvirt.KindFloatingIP,
	)
}

// Read returns the objects that the rows of ours say. Of rows that another hand
// has changed it returns an object that no source wants, under the key of the
// one that they were made for; see damaged.
func (b *Backend) Read(ctx context.Context) (netvirt.Model, error) {
	var have netvirt.Model
	err := b.with(ctx, func(s *session) error {
		if err := b.read(ctx, s); err != nil {
			return err
		}
		have = s.mirror.model()
		b.readSessions.Used(s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read northbound database: %w", err)
	}
	return have, nil
}

// Write makes the changes in transactions of Batch groups, in an order that
// keeps theirs. If the database turns out to be another than the backend
// remembers, it is read and the write begun again, once.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	if len(changes) == 0 {
		return nil
	}
	err := b.with(ctx, func(s *session) error {
		err := b.write(ctx, s, changes)
		if errors.Is(err, errStale) {
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

func (b *Backend) write(ctx context.Context, s *session, changes []netvirt.Change) error {
	w := &write{session: s, timed: b.timed}
	if s.mirror == nil {
		w.fresh = true
		if err := b.read(ctx, s); err != nil {
			return err
		}
	}
	return w.run(ctx, steps(changes), b.cfg.Batch)
}

func (b *Backend) read(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ReadTimeout)
	defer cancel()
	return s.read(ctx, b.codec)
}

func (b *Backend) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.cfg.Timeout)
}

// with runs a function with the session, when it is its turn. A session that
// fails is left; one in which only the mirror is in doubt is kept.
func (b *Backend) with(ctx context.Context, do func(*session) error) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.give()
	s, err := b.connected(ctx)
	if err != nil {
		return err
	}
	err = do(s)
	switch {
	case err == nil, errors.Is(err, netvirt.ErrRejected):
	case errors.Is(err, errStale):
		s.mirror = nil
	default:
		b.discard()
	}
	return err
}

func (b *Backend) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-b.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Backend) give() { b.turn <- struct{}{} }
