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

// moments is when something was first seen of each pod, by "namespace:name".
type moments struct {
	what string // was seen

	mu sync.Mutex
	at map[string]time.Time
}

func newMoments(what string) *moments { return &moments{what: what, at: map[string]time.Time{}} }

// key is a pod in moments; a switch port's name is the same.
func key(namespace, name string) string { return namespace + ":" + name }

func (m *moments) note(key string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, noted := m.at[key]; !noted {
		m.at[key] = now
	}
}

// of are the moments of the pods whose names begin with prefix.
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

// await waits until it was seen of n pods whose names begin with prefix, and returns
// when it was.
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
			return nil, fmt.Errorf("wait for %s of %d pods: seen of %d: %w", m.what, n, len(all), ctx.Err())
		case <-time.After(seenPoll + time.Duration(n)*10*time.Microsecond):
		}
	}
}

// last is the latest of moments.
func last(all map[string]time.Time) time.Time {
	var latest time.Time
	for _, at := range all {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// between is how long it took each pod from one moment to another, sorted.
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
