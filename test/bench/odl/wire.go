package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
)

// served is a wire at a URL of its own.
type served struct {
	*wire.Wire
	URL string

	server *http.Server
	done   chan error
}

// startWire starts a wire to a URL.
func startWire(to string) (*served, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen before the controller: %w", err)
	}
	w := &served{
		Wire: wire.New(to, &http.Transport{MaxIdleConnsPerHost: 2 * parallel}), URL: "http://" + listener.Addr().String(), done: make(chan error, 1),
	}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: time.Second}
	go func() { w.done <- w.server.Serve(listener) }()
	return w, nil
}

func (w *served) stop() error {
	err := w.server.Close()
	<-w.done // the error says that the server was closed
	w.Close()
	return err
}

// await is Await with a deadline.
func (w *served) await(ctx context.Context, since, n int, text string) ([]wire.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	return w.Await(ctx, since, n, text)
}
