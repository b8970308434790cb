// Package odl is the backend that writes the model to the config datastore of an
// OpenDaylight controller with Netvirt, over RESTCONF.
//
// Package codec translates objects to entries of Netvirt's lists and back. An entry that is correct is never written again, because
// OpenDaylight treats each write as a new entry.
//
// Package controller is the connection: it supports the RESTCONF dialects of OpenDaylight's releases, and detects the dialect of a
// controller. The backend ignores all answers of a controller that has not loaded all models yet. Package operational reads what
// OpenDaylight has made of the entries. Package shards keeps the datastore of a cluster working.
//
// The package knows neither Kubernetes nor coe, and retries nothing.
package odl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/operational"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/shards"
	"github.com/coe-bridge/coe-bridge/mapping/backend/reads"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config configures a Backend. A field with its zero value takes its default.
type Config struct {
	// URLs lists the controllers of one cluster, comma-separated: http://HOST:PORT or
	// https://HOST:PORT. The backend uses the first that answers.
	URLs string
	// AuthFile is a file with one line "user:password". It is read again when it changes.
	// Empty: requests have no credentials.
	AuthFile string
	// TLS returns the configuration of a new connection, for https URLs. Nil: the system's
	// CAs are trusted.
	TLS func() *tls.Config
	// Dialect is one of Dialects. Empty: the backend detects it.
	Dialect string
	// Timeout bounds each request that writes or reads a single entry. A request that
	// creates many entries has this time once more for each further 200. Default 10 s.
	Timeout time.Duration
	// ReadTimeout bounds the reading of one whole list. Default 30 s.
	ReadTimeout time.Duration
	// ConnectTimeout bounds each attempt to connect. Default 2 s.
	ConnectTimeout time.Duration
	// Probe is the interval of Watch's check that the controller answers. Default 5 s.
	Probe time.Duration
	// Poll is the interval at which Watch compares our entries with those that were read or
	// written. It is longer if the comparisons would take more than a twentieth of the
	// time. Default 15 s.
	Poll time.Duration
	// RoutesDelay is the time from the new connection of a switch until its routes are asked for again. They are asked for once more after
	// three times as long. Default 30 s.
	RoutesDelay time.Duration
	// StuckAfter is how long no transaction of a shard of a cluster must have been committed, though some wait, until another member
	// leads it. Default 15 s.
	StuckAfter time.Duration
	// Conflict is the time for which an entry must be in conflict with other transactions (409) until it counts as refused.
	// Default 10 s.
	Conflict time.Duration
	// Parallel is the maximum number of concurrent requests, if the dialect allows them.
	// Default 8.
	Parallel int
	// BatchBytes and BatchEntries bound the body of one request that creates several
	// entries. Defaults 1 MiB and 1,000.
	BatchBytes, BatchEntries int
	// AnswerBytes bounds the answer with one list. Only our entries of it are held in
	// memory. Default 128 MiB.
	AnswerBytes int64
	// MayWrite, if not nil, is called before each request that writes; its error prevents
	// the request. OpenDaylight has no conditional writes, so a request that was sent before
	// cannot be stopped.
	MayWrite func(context.Context) error
}

func (c *Config) setDefaults() {
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 30*time.Second)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.Probe, 5*time.Second)
	setDefault(&c.Poll, 15*time.Second)
	setDefault(&c.RoutesDelay, 30*time.Second) // OpenDaylight needs up to 20 s for the former flows, and more on a busy machine
	setDefault(&c.StuckAfter, 15*time.Second)  // OpenDaylight reports a transaction that waits after 15 to 20 s
	setDefault(&c.Conflict, 10*time.Second)
	setDefault(&c.Parallel, 8)
	setDefault(&c.BatchBytes, 1<<20)
	setDefault(&c.BatchEntries, 1000)
	setDefault(&c.AnswerBytes, 128<<20)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Backend writes to the config datastore of one controller or cluster. Several goroutines
// may call its methods; reads and writes exclude each other.
type Backend struct {
	cfg    Config
	urls   []string
	client *controller.Client
	log    *slog.Logger

	// lock is a mutex that can be waited for until a context ends: locked while empty. It
	// guards the fields up to warned.
	lock         chan struct{}
	session      *controller.Session // nil while there is none; setSession sets it
	next         int                 // the URL to try first
	mirror       *codec.Mirror       // our entries in the datastore; nil while they are unknown
	readSessions reads.Sessions[*controller.Session]
	failures     map[place]failureCount
	// leaving holds deleted entries of interfaces, by name, and postponed when operations were postponed.
	leaving   map[string]departure
	postponed map[place]postponement
	logged    string // the controller that was logged as connected
	warned    bool   // about the controller's own renderer

	identity atomic.Pointer[string] // the mirror's, or that of the mirror before
	// network is the operational state of our entries. It has the session too: Observe must not wait for a Write, which can take ten seconds.
	network *operational.Network
	shards  *shards.Keeper
}

// New returns a backend. It connects when it is first used; Close closes the connections.
// An error reports an invalid Config.
func New(cfg Config, log *slog.Logger) (*Backend, error) {
	cfg.setDefaults()
	urls := strings.Split(cfg.URLs, ",")
	for i, u := range urls {
		if err := checkURL(u); err != nil {
			return nil, err
		}
		urls[i] = strings.TrimRight(u, "/")
	}
	if cfg.Dialect != "" && !slices.Contains(Dialects(), cfg.Dialect) {
		return nil, fmt.Errorf("OpenDaylight dialect %q: want one of %s", cfg.Dialect, strings.Join(Dialects(), ", "))
	}
	client, err := controller.New(controller.Config{
		AuthFile: cfg.AuthFile, TLS: cfg.TLS, Dialect: cfg.Dialect, Timeout: cfg.Timeout, ReadTimeout: cfg.ReadTimeout, ConnectTimeout: cfg.ConnectTimeout,
		Parallel: cfg.Parallel, AnswerBytes: cfg.AnswerBytes, MayWrite: cfg.MayWrite,
	}, log)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		cfg: cfg, urls: urls, client: client, log: log, lock: make(chan struct{}, 1), failures: map[place]failureCount{},
		leaving: map[string]departure{}, postponed: map[place]postponement{},
		network: operational.New(operational.Config{Poll: cfg.Poll, RoutesDelay: cfg.RoutesDelay}, log),
		shards:  shards.New(shards.Config{Client: client, URLs: urls, Poll: cfg.Probe, StuckAfter: cfg.StuckAfter}, log),
	}
	b.release()
	return b, nil
}

// Dialects returns the valid values of Config.Dialect.
func Dialects() []string { return controller.Dialects() }

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The error would contain the text, and the text may contain a password.
		return errors.New("OpenDaylight URL: invalid URL; want http://HOST:PORT or https://HOST:PORT")
	case u.User != nil:
		return fmt.Errorf("OpenDaylight URL %q: user and password belong in a file (--odl-auth-file)", u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("OpenDaylight URL %q: want http://HOST:PORT or https://HOST:PORT", text)
	}
	return nil
}

// Close closes the connections. A later call of another method opens new ones.
func (b *Backend) Close() {
	<-b.lock
	b.setSession(nil)
	b.mirror = nil
	b.client.CloseIdle()
	b.release()
}

// Limits returns the limits of this backend: aclservice cannot match ports of SCTP, and logs nothing.
// Netvirt cannot give pods our addresses by DHCP; the agents of nodes do (decision 96). Netvirt still removes an elan-instance when its deletion is answered.
func Limits() netvirt.Limits {
	return netvirt.Limits{NoPhysicalNetworks: true, NoSCTPPorts: true, NoLogs: true, NoDHCP: true, KeepsELANs: true}
}

// Kinds returns the kinds that the backend writes.
func (b *Backend) Kinds() netvirt.KindSet { return codec.Kinds() }

// Read returns the objects that our entries hold. If an external writer has changed an
// entry, it returns an object under the same key that differs from every wanted object.
func (b *Backend) Read(ctx context.Context) (netvirt.Model, error) {
	var have netvirt.Model
	err := b.with(ctx, func(s *controller.Session) error {
		if err := b.read(ctx, s); err != nil {
			return err
		}
		have = b.mirror.Model()
		b.readSessions.Used(s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read OpenDaylight: %w", err)
	}
	return have, nil
}

// Write makes the changes list by list, in the order of the lists' dependence, with as few
// requests as the dialect allows. changes must be in the order of netvirt.Sort. A
// *netvirt.RejectedError names the changes that the controller refuses; the changes that do
// not depend on them are made. A *netvirt.DeferredError names changes that have to wait until the controller has processed
// others; all others are made. After any other error some of the changes may have been made.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	if len(changes) == 0 {
		return nil
	}
	defer b.network.Forget(changes)
	var late error
	err := b.with(ctx, func(s *controller.Session) error {
		if b.mirror == nil {
			if err := b.read(ctx, s); err != nil {
				return err
			}
		}
		b.forgetOld()
		w := &write{
			Session: s, backend: b, begun: time.Now(), mirror: b.mirror, refused: map[netvirt.Key]bool{}, lateUnits: map[codec.Unit]bool{}, lateHeads: map[netvirt.Key]bool{},
		}
		defer w.end()
		if err := w.run(ctx, changes); err != nil {
			return err
		}
		late = w.deferred()
		return nil
	})
	if err != nil {
		return fmt.Errorf("write to OpenDaylight: %w", err)
	}
	return late
}

// Observe implements reconcile.Observer. It does not wait for a Write.
func (b *Backend) Observe(ctx context.Context, awaited []string) (changed []string, err error) {
	return b.network.Observe(ctx, awaited)
}

// Lacks implements reconcile.Observer. It returns why a written object is not in operation, or not known to be; empty if it is.
func (b *Backend) Lacks(o netvirt.Object) string { return b.network.Lacks(o) }

// read reads the mirror.
func (b *Backend) read(ctx context.Context, s *controller.Session) error {
	before := b.mirror
	b.mirror = nil
	m, err := readAll(ctx, s)
	if err == nil {
		if before != nil {
			m.Subnets = before.Subnets
		}
		b.mirror = m
		identity := m.Identity
		b.identity.Store(&identity)
	}
	return err
}

// with runs a function with the session, under the lock. If the function fails, with drops
// the mirror and, unless the controller only refused entries, the session.
func (b *Backend) with(ctx context.Context, do func(*controller.Session) error) error {
	if err := b.acquire(ctx); err != nil {
		return err
	}
	defer b.release()
	s, err := b.connected(ctx)
	if err != nil {
		return err
	}
	if err = do(s); err != nil {
		b.mirror = nil
		if b.mayLeave(err) {
			b.discard()
		}
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
