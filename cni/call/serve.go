package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	readTimeout  = 10 * time.Second // for a request
	writeTimeout = 10 * time.Second // for an answer
	maxRequest   = 1 << 20
)

// Listen listens on a socket that only root can use. It replaces the socket of a dead
// process, and fails if another process listens on it.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket: %w", err)
	}
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", socket); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on %s: another agent is listening", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the former socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("restrict the socket to root: %w", err)
	}
	return l, nil
}

// Serve calls answer for each call until ctx is done, then waits for the calls in
// progress. The context of a call also ends when its caller closes the connection.
func Serve(ctx context.Context, l net.Listener, log *slog.Logger, answer func(context.Context, Request) Answer) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // so that the caller does not wait for an answer
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept calls: %w", err)
		}
		calls.Go(func() {
			defer func() { _ = conn.Close() }()
			if err := serve(ctx, conn, answer); err != nil {
				log.Warn("a call was not answered", "err", err)
			}
		})
	}
}

func serve(ctx context.Context, conn net.Conn, answer func(context.Context, Request) Answer) error {
	if err := verifyPeer(conn); err != nil {
		return fmt.Errorf("refuse a caller: %w", err)
	}
	var r Request
	if err := conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	go func() { // until either side closes conn; a line end may be unread
		defer cancel()
		_, _ = io.Copy(io.Discard, conn)
	}()
	a := answer(ctx, r)
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(a); err != nil {
		return fmt.Errorf("answer %s of container %s: %w", r.Command, r.ContainerID, err)
	}
	return nil
}
