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
// hands them on to the loop, so that a pod is mapped when it has its address.
type Claims struct {
	claimer Claimer
	loop    *Loop
	log     *slog.Logger
	worker  *worker
	trouble string // why no addresses are claimed, as it was logged; only process uses it
}

// NewClaims returns Claims that hands scopes on to the loop.
func NewClaims(claimer Claimer, loop *Loop, log *slog.Logger) *Claims {
	c := &Claims{claimer: claimer, loop: loop, log: log}
	c.worker = newWorker(c.process)
	loop.claims = c.worker
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
	defer c.loop.Mark(scopes...)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			c.note(err)
		}
		c.loop.claimed(err)
		return err
	}
	c.note(nil)
	c.loop.claimed(nil)
	for _, ns := range affected {
		c.worker.mark(netvirt.Scope(ns))
	}
	if again > 0 {
		c.worker.markAfter(again, scopes...)
	}
	return nil
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
