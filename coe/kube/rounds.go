package kube

import (
	"context"
	"sync"
)

// rounds count the complete listings of all resources. A list belongs to the round in which it
// started.
type rounds struct {
	mu     sync.Mutex
	number int // the current round, from 1
	ends   []context.CancelFunc
}

// join returns the number of the current round, and a context that ends with it.
func (r *rounds) join(ctx context.Context) (context.Context, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	r.ends = append(r.ends, end)
	return ctx, r.number
}

// next starts the next round.
func (r *rounds) next() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	for _, end := range r.ends {
		end()
	}
	r.ends = nil
}

func (r *rounds) isCurrent(number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number == number
}
