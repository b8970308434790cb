package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Claimer chooses what must be remembered (addresses, identifiers) for
// namespaces of which something changed; ipam.Assigner is one.
type Claimer interface {
	// Sync brings what is chosen for the namespaces in accord with the store.
	// affected are further namespaces for which something may be chosen now;
	// again is when the given ones want to be synced again, 0 for not at all.
	Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error)
}

// Claims runs a Claimer for the scopes of which something changed, and then
// hands them on to the loops, so that a pod is mapped when it has its address.
type Claims struct {
	claimer Claimer
	loops   []*Loop
	log     *slog.Logger
	worker  *worker
	trouble string // why no addresses are claimed, as it was logged; only process uses it
}

// NewClaims returns Claims that hands scopes on to the loops, one a backend.
func NewClaims(claimer Claimer, log *slog.Logger, loops ...*Loop) *Claims {
	c := &Claims{claimer: claimer, loops: loops, log: log}
	c.worker = newWorker(c.process)
	for _, l := range loops {
		l.claims = c.worker
	}
	return c
}

// Mark has the scopes claimed for and mapped soon.
func (c *Claims) Mark(scopes ...netvirt.Scope) { c.worker.mark(scopes...) }

// Run claims until ctx is done.
func (c *Claims) Run(ctx context.Context) { c.worker.run(ctx) }

func (c *Claims) process(ctx context.Context, scopes []netvirt.Scope) error {
	namespaces := make([]string, 0, len(scopes))
	for _, s := range scopes {
		if s != netvirt.Cluster {
			namespaces = append(namespaces, string(s))
		}
	}
	affected, again, err := c.claimer.Sync(ctx, namespaces)
	// What could not be claimed for is mapped all the same: removals go on. It is marked
	// last, and so is the first to be gone on with.
	defer c.handOn(err, scopes)
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

// handOn tells the loops how it went, and of what.
func (c *Claims) handOn(err error, scopes []netvirt.Scope) {
	for _, l := range c.loops {
		l.claimed(err)
		l.Mark(scopes...)
	}
}

// note logs how it goes when that turns: what fails is tried again.
func (c *Claims) note(err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now == c.trouble {
		return
	}
	c.trouble = now
	if err != nil {
		c.log.Warn("claim addresses", "err", err)
	} else {
		c.log.Info("addresses are claimed again")
	}
}
