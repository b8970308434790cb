package bridge

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

// openEvery is how long an answer without credentials is reused before it is computed again.
const openEvery = time.Second

// computed is a value that is computed at most once in openEvery, by one caller. Other callers
// wait.
type computed[T any] struct {
	compute func() T

	mu    sync.Mutex
	value T
	until time.Time
}

func (c *computed[T]) get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(c.until) {
		c.value = c.compute()
		c.until = time.Now().Add(openEvery)
	}
	return c.value
}

// page is an answer that is the same for every client.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// shared answers every request with a page of h, without regard to the header.
func shared(h http.Handler) http.Handler {
	pages := &computed[*page]{compute: func() *page {
		p := &page{header: http.Header{}, status: http.StatusOK}
		h.ServeHTTP(p, &http.Request{Method: http.MethodGet, Header: http.Header{}})
		return p
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := pages.get()
		maps.Copy(w.Header(), p.header)
		w.WriteHeader(p.status)
		_, _ = w.Write(p.body.Bytes()) // the client may be gone
	})
}
