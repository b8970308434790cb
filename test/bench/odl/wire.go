package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// request is a request to the controller. If a wire has recorded it, it also has its times and its
// answer.
type request struct {
	method, path, body string
	status             int
	begun, answered    time.Time
}

func (r *request) writes() bool { return r.method != http.MethodGet }

// wire is a proxy in front of the controller that records all requests.
type wire struct {
	URL string

	to     string
	client *http.Client
	server *http.Server
	done   chan error

	mu    sync.Mutex
	all   []request     // in the order of their answers
	heard chan struct{} // closed and replaced when a request is recorded
}

// startWire starts a wire to a URL.
func startWire(to string) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen before the controller: %w", err)
	}
	w := &wire{
		URL: "http://" + listener.Addr().String(), to: to, done: make(chan error, 1), heard: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * parallel}},
	}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: time.Second}
	go func() { w.done <- w.server.Serve(listener) }()
	return w, nil
}

func (w *wire) stop() error {
	err := w.server.Close()
	<-w.done // the error says that the server was closed
	w.client.CloseIdleConnections()
	return err
}

// ServeHTTP implements http.Handler.
func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if err := w.pass(out, r); err != nil {
		http.Error(out, err.Error(), http.StatusBadGateway)
	}
}

func (w *wire) pass(out http.ResponseWriter, r *http.Request) error {
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
	response, err := w.client.Do(on)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	w.note(request{r.Method, r.URL.EscapedPath(), string(body), response.StatusCode, begun, time.Now()})
	maps.Copy(out.Header(), response.Header)
	out.WriteHeader(response.StatusCode)
	_, err = io.Copy(out, response.Body)
	return err
}

func (w *wire) note(one request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	close(w.heard)
	w.heard = make(chan struct{})
}

// seen returns the requests since the start of the wire.
func (w *wire) seen() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[:len(w.all):len(w.all)]
}

// await waits until n requests after the first since ones have a text in their body. It returns
// these requests.
func (w *wire) await(ctx context.Context, since, n int, text string) ([]request, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		all, heard := w.all[since:], w.heard
		w.mu.Unlock()
		var found []request
		for _, one := range all {
			if strings.Contains(one.body, text) {
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
