package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Claimer chooses and records addresses and identifiers for namespaces that changed.
// ipam.Assigner is one.
type Claimer interface {
	// Sync updates what is chosen for the namespaces. affected are more namespaces for which
	// something may be chosen now. again is when the given ones must be synced again; 0 for
	// never.
	Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error)
}

// Claims runs a Claimer for the scopes that changed, and then hands them on to loops, so
// that a pod is mapped when it has its address.
type Claims struct {
	claimer Claimer
	log     *slog.Logger
	worker  *worker
	loops   []*Loop // set by Run

	mu      sync.Mutex
	trouble string // why no addresses are claimed, as it was logged
}

// NewClaims returns Claims that wait to be run.
func NewClaims(claimer Claimer, log *slog.Logger) *Claims {
	c := &Claims{claimer: claimer, log: log}
	c.worker = newWorker(c.process)
	return c
}

// Mark has the scopes claimed for and mapped soon.
func (c *Claims) Mark(scopes ...netvirt.Scope) { c.worker.mark(scopes...) }

// Run claims until ctx is done, and hands scopes on to the loops, one for each backend.
func (c *Claims) Run(ctx context.Context, loops ...*Loop) {
	c.loops = loops
	c.worker.run(ctx)
}

func (c *Claims) process(ctx context.Context, scopes []netvirt.Scope) error {
	namespaces := make([]string, 0, len(scopes))
	for _, s := range scopes {
		if s != netvirt.Cluster {
			namespaces = append(namespaces, string(s))
		}
	}
	affected, again, err := c.claimer.Sync(ctx, namespaces)
	// A scope whose claims failed is mapped all the same: removals go on. The loops are
	// marked last, because the goroutine that is woken last runs first.
	defer c.handOn(scopes)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			c.note(err)
		}
		return err
	}
	c.note(nil)
	for _, ns := range affected {
		c.worker.mark(netvirt.Scope(ns))
	}
	if again > 0 {
		c.worker.markAfter(again, scopes...)
	}
	return nil
}

func (c *Claims) handOn(scopes []netvirt.Scope) {
	for _, l := range c.loops {
		l.Mark(scopes...)
	}
}

// lag returns the scopes that are behind, and since when.
func (c *Claims) lag() map[netvirt.Scope]time.Time {
	if c == nil {
		return nil
	}
	return c.worker.lag()
}

// failure says why addresses cannot be chosen and recorded; empty while they can.
func (c *Claims) failure() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}

// note logs a failure, and the end of it. A failed Sync is tried again.
func (c *Claims) note(err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	c.mu.Lock()
	same := now == c.trouble
	c.trouble = now
	c.mu.Unlock()
	switch {
	case same:
	case err != nil:
		c.log.Warn("claim addresses", "err", err)
	default:
		c.log.Info("addresses are claimed again")
	}
}
