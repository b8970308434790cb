package kube

import (
	"context"
	"sync"
)

// rounds are the times that all resources are to be listed. A list counts for the
// round in which it was begun.
type rounds struct {
	mu     sync.Mutex
	number int // of the round that counts; the first has 1
	ends   []context.CancelFunc
}

// join returns the number of the round that counts, and a context that ends with it.
func (r *rounds) join(ctx context.Context) (context.Context, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	r.ends = append(r.ends, end)
	return ctx, r.number
}

// next begins another round.
func (r *rounds) next() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	for _, end := range r.ends {
		end()
	}
	r.ends = nil
}

func (r *rounds) counts(number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number == number
}
