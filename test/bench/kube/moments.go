package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	seenTimeout = 3 * time.Minute
	seenPoll    = 5 * time.Millisecond
)

// moments has the time at which an event of each pod was first seen, by "namespace:name".
type moments struct {
	what string // the kind of event

	mu sync.Mutex
	at map[string]time.Time
}

func newMoments(what string) *moments { return &moments{what: what, at: map[string]time.Time{}} }

// key returns the key of a pod in moments. The pod's switch port has the same name.
func key(namespace, name string) string { return namespace + ":" + name }

func (m *moments) note(key string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, noted := m.at[key]; !noted {
		m.at[key] = now
	}
}

// of returns the moments of the pods whose names begin with prefix.
func (m *moments) of(prefix string) map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]time.Time{}
	for key, at := range m.at {
		if _, name, _ := strings.Cut(key, ":"); strings.HasPrefix(name, prefix) {
			all[key] = at
		}
	}
	return all
}

// await waits until the event was seen of n pods whose names begin with prefix. It returns their
// moments.
func (m *moments) await(ctx context.Context, prefix string, n int) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	for {
		all := m.of(prefix)
		if len(all) >= n {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s of %d pods: %d pods have it: %w", m.what, n, len(all), ctx.Err())
		case <-time.After(seenPoll + time.Duration(n)*10*time.Microsecond):
		}
	}
}

// last returns the latest moment.
func last(all map[string]time.Time) time.Time {
	var latest time.Time
	for _, at := range all {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// between returns the duration from one moment to another for each pod, sorted.
func between(from, to map[string]time.Time) []time.Duration {
	var took []time.Duration
	for key, at := range to {
		if begun, found := from[key]; found {
			took = append(took, at.Sub(begun))
		}
	}
	slices.Sort(took)
	return took
}
