// Package odl is the backend that realises the model in the config datastore of an
// OpenDaylight with Netvirt, over RESTCONF.
//
// Objects become entries of Netvirt's lists, several objects one entry: an elan-interface
// has its static MAC entries in it, a vpn-interface its adjacencies. Entries of ours are
// recognised by what is written on them (docs/decisions/0024), no other entry is ever
// changed, and of ours only what the model says: what the controller or another hand
// adds to them (an elan-tag, a learnt adjacency) is neither read nor wiped. An entry that is
// as it should be is never written again, for OpenDaylight takes that for a new one.
//
// Netvirt does not carry packets between vpn-instances with a common route target, so a
// Transit is a vpn-instance, which the interfaces of all vpn-instances are members of that have
// the Transit; these themselves then have none, and say which Transit they have.
//
// The backend speaks the dialects of RESTCONF that OpenDaylight's releases have, and finds
// out which one a controller has, and which of two forms of Netvirt's l3vpn. Nothing that
// a controller says before all of its models are loaded is taken for data.
//
// It knows neither Kubernetes nor coe, and retries nothing.
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

	"github.com/coe-bridge/coe-bridge/mapping/backend/reads"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config says where the controller is and how it is spoken to. The zero value of a field
// takes its default.
type Config struct {
	// URLs are the controllers of one cluster, http://HOST:PORT or https://HOST:PORT,
	// comma-separated. Any that answers will do.
	URLs string
	// AuthFile holds "user:password". It is read again when it changes. Empty: nobody
	// is said to ask.
	AuthFile string
	// TLS returns the configuration of a new connection, for URLs that begin with https. Nil:
	// whom the system trusts is trusted.
	TLS func() *tls.Config
	// Dialect is one of Dialects. Empty: it is found out.
	Dialect string
	// Timeout bounds each request that writes, and those that are small; one that creates many
	// entries has as much again for each further 200. Default 10 s.
	Timeout time.Duration
	// ReadTimeout bounds the reading of one list as a whole. Default 30 s.
	ReadTimeout time.Duration
	// ConnectTimeout bounds the making of a connection. Default 2 s.
	ConnectTimeout time.Duration
	// Probe is how often the controller is asked for a sign of life while it is watched.
	// Default 5 s.
	Probe time.Duration
	// Poll is how often what is ours is compared with what was written while it is
	// watched; the comparisons take a twentieth of the time at most. Default 15 s.
	Poll time.Duration
	// Parallel is how many requests are under way at once, where the dialect bears it.
	// Default 8.
	Parallel int
	// BatchBytes and BatchEntries bound the body of one request that creates several
	// entries. Defaults 1 MiB and 1,000.
	BatchBytes, BatchEntries int
	// AnswerBytes bounds what is read of one list. Default 128 MiB; of it, only what is
	// ours is kept in memory.
	AnswerBytes int64
	// MayWrite, if not nil, is asked before each request that writes, and keeps it back with
	// an error. OpenDaylight knows no write on a condition, so this is as late as one who is
	// to write no more can be stopped: what is under way then is carried out.
	MayWrite func(context.Context) error
}

func (c *Config) setDefaults() {
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 30*time.Second)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.Probe, 5*time.Second)
	setDefault(&c.Poll, 15*time.Second)
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

// Backend writes to the config datastore of one controller, or cluster. Its methods may be
// called by several goroutines; reads and writes take turns.
type Backend struct {
	cfg    Config
	urls   []string
	client *client
	log    *slog.Logger

	// turn holds one value while nobody has the turn. Who has it may use what follows.
	turn         chan struct{}
	session      *session // nil while there is none
	next         int      // the URL to try first
	mirror       *mirror  // what the datastore has of ours; nil while that is unknown
	readSessions reads.Sessions[*session]
	strikes      strikes
	greeted      string // of which controller was said that it is connected
	warned       bool   // of the controller's own renderer

	identity atomic.Pointer[string] // the mirror's, or the last one's
	network  network                // what the controller made of what is written
}

// New returns a backend. It connects at its first use. Close frees it.
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
	client, err := newClient(&cfg, log)
	if err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, urls: urls, client: client, log: log, turn: make(chan struct{}, 1), strikes: strikes{}}
	b.turn <- struct{}{}
	return b, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The text may hold a password, and the error the text.
		return errors.New("OpenDaylight URL: it can't be read; want http://HOST:PORT or https://HOST:PORT")
	case u.User != nil:
		return fmt.Errorf("OpenDaylight URL %q: user and password belong in a file (--odl-auth-file)", u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("OpenDaylight URL %q: want http://HOST:PORT or https://HOST:PORT", text)
	}
	return nil
}

// Close ends the connections. A later call opens others.
func (b *Backend) Close() {
	<-b.turn
	b.session, b.mirror = nil, nil
	b.client.closeIdle()
	b.turn <- struct{}{}
}

// Kinds are those that Netvirt has a form for. What they refer to of others (subnet, service)
// is in their own leaves.
func (b *Backend) Kinds() netvirt.KindSet {
	return netvirt.NewKindSet(
		netvirt.KindTransit, netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindInterface, netvirt.KindELANInterface,
		netvirt.KindMACEntry, netvirt.KindVPNInterface, netvirt.KindAdjacency, netvirt.KindFloatingIP,
	)
}

// Read returns the objects that the entries of ours say. Of an entry that another hand has
// changed it returns an object that no source wants; see damaged.
func (b *Backend) Read(ctx context.Context) (netvirt.Model, error) {
	var have netvirt.Model
	err := b.with(ctx, func(s *session) error {
		if err := b.read(ctx, s); err != nil {
			return err
		}
		have = b.mirror.model()
		b.readSessions.Used(s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read OpenDaylight: %w", err)
	}
	return have, nil
}

// Write makes the changes: list after list in the order of their dependence, in as few
// requests as the dialect allows. What the controller refuses is found out, named, and
// keeps nothing back but what refers to it.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	if len(changes) == 0 {
		return nil
	}
	defer b.network.forget(changes)
	err := b.with(ctx, func(s *session) error {
		if b.mirror == nil {
			if err := b.read(ctx, s); err != nil {
				return err
			}
		}
		w := &write{session: s, backend: b, mirror: b.mirror, refused: map[netvirt.Key]bool{}}
		return w.run(ctx, changes)
	})
	if err != nil {
		return fmt.Errorf("write to OpenDaylight: %w", err)
	}
	return nil
}

// read has the mirror read anew.
func (b *Backend) read(ctx context.Context, s *session) error {
	before := b.mirror
	b.mirror = nil
	m, err := s.readAll(ctx)
	if err == nil {
		if before != nil {
			m.subnets = before.subnets
		}
		b.mirror = m
		identity := m.identity
		b.identity.Store(&identity)
	}
	return err
}

// with runs a function with a session, when it is its turn. One that fails is left.
func (b *Backend) with(ctx context.Context, do func(*session) error) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.give()
	s, err := b.connected(ctx)
	if err != nil {
		return err
	}
	if err = do(s); err != nil {
		b.mirror = nil
		if !errors.Is(err, netvirt.ErrRejected) && !isRefusal(err) {
			b.discard()
		}
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
