package backendtest

import (
	"context"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Faulty is a backend that a test can make fail.
type Faulty struct {
	Backend

	mu    sync.Mutex
	read  func() error
	write func([]netvirt.Change) (int, error)
}

// FailReads makes Read return the error that fail returns, if it is not nil. A nil fail
// ends this.
func (f *Faulty) FailReads(fail func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = fail
}

// FailWrites makes Write make only the first changes, as many as fail returns, and then
// return the error of fail. If that is nil, Write makes all changes. A nil fail ends this.
func (f *Faulty) FailWrites(fail func([]netvirt.Change) (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.write = fail
}

// Read implements Backend.
func (f *Faulty) Read(ctx context.Context) (netvirt.Model, error) {
	f.mu.Lock()
	fail := f.read
	f.mu.Unlock()
	if fail != nil {
		if err := fail(); err != nil {
			return nil, err
		}
	}
	return f.Backend.Read(ctx)
}

// Write implements Backend.
func (f *Faulty) Write(ctx context.Context, changes []netvirt.Change) error {
	f.mu.Lock()
	fail := f.write
	f.mu.Unlock()
	if fail != nil {
		if n, err := fail(changes); err != nil {
			if first := f.Backend.Write(ctx, changes[:n]); first != nil {
				return first
			}
			return err
		}
	}
	return f.Backend.Write(ctx, changes)
}
