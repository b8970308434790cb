// Package wire has a proxy in front of an OpenDaylight that records the requests of a bridge.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Request is a request to the controller. If a wire has recorded it, it also has its times and its answer.
type Request struct {
	Method, Path, Body string
	Status             int // of the answer; 0 if there was none
	Begun, Answered    time.Time
}

// Writes reports whether the request writes.
func (r *Request) Writes() bool { return r.Method != http.MethodGet }

// Wire is a proxy in front of a controller that records all requests. A request to a controller that accepts no connection is not sent,
// and not recorded. If the controller does not answer, the wire closes the connection of its client, as the controller does.
type Wire struct {
	to     string
	client *http.Client
	cut    atomic.Bool

	mu    sync.Mutex
	all   []Request     // in the order of their answers
	heard chan struct{} // closed and replaced when a request is recorded
}

var _ http.Handler = (*Wire)(nil)

// New returns a wire to a URL, with the transport that reaches it.
func New(to string, transport *http.Transport) *Wire {
	return &Wire{to: to, client: &http.Client{Transport: transport}, heard: make(chan struct{})}
}

// Close closes the connections that no request uses.
func (w *Wire) Close() { w.client.CloseIdleConnections() }

// Cut starts or ends that the wire closes the connection of each request, without sending it.
func (w *Wire) Cut(cut bool) { w.cut.Store(cut) }

// ServeHTTP implements http.Handler.
func (w *Wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if w.cut.Load() || w.pass(out, r) != nil {
		panic(http.ErrAbortHandler)
	}
}

// pass sends a request to the controller, and its answer to the client.
func (w *Wire) pass(out http.ResponseWriter, r *http.Request) error {
	begun := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	on, err := http.NewRequestWithContext(r.Context(), r.Method, w.to+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	on.Header = r.Header
	recorded := Request{Method: r.Method, Path: r.URL.EscapedPath(), Body: string(body), Begun: begun}
	response, err := w.client.Do(on)
	recorded.Answered = time.Now()
	if err != nil {
		if !isRefused(err) {
			w.note(recorded)
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	recorded.Status = response.StatusCode
	w.note(recorded)
	maps.Copy(out.Header(), response.Header)
	out.WriteHeader(response.StatusCode)
	_, err = io.Copy(out, response.Body)
	return err
}

// isRefused reports whether there was no connection.
func isRefused(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

func (w *Wire) note(one Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	close(w.heard)
	w.heard = make(chan struct{})
}

// Seen returns the requests since the start of the wire.
func (w *Wire) Seen() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[:len(w.all):len(w.all)]
}

// Await waits until n requests after the first since ones have a text in their body. It returns these requests.
func (w *Wire) Await(ctx context.Context, since, n int, text string) ([]Request, error) {
	for {
		w.mu.Lock()
		all, heard := w.all[since:], w.heard
		w.mu.Unlock()
		var found []Request
		for _, one := range all {
			if strings.Contains(one.Body, text) {
				found = append(found, one)
			}
		}
		if len(found) >= n {
			return found, nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s to be written: %d of %d requests: %w", text, len(found), n, ctx.Err())
		}
	}
}
