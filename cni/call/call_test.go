package call_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// serve answers on a socket until the test ends or stop is called.
func serve(t *testing.T, answer func(context.Context, call.Request) call.Answer) (socket string, stop func()) {
	socket = filepath.Join(t.TempDir(), "folder", "cni.sock")
	l, err := call.Listen(t.Context(), socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- call.Serve(ctx, l, slog.New(slog.DiscardHandler), answer) }()
	stop = func() {
		cancel()
		for err := range ended {
			require.NoError(t, err)
			close(ended)
		}
	}
	t.Cleanup(stop)
	return socket, stop
}

func TestCall(t *testing.T) {
	socket, _ := serve(t, func(_ context.Context, r call.Request) call.Answer {
		return call.Answer{Error: types.NewError(7, r.Command+" "+r.ContainerID, string(r.Config))}
	})
	answer, err := call.Do(t.Context(), socket, call.Request{Command: call.Add, ContainerID: "c1", Config: json.RawMessage(`{"a":1}`)})
	require.NoError(t, err)
	require.Equal(t, types.NewError(7, "ADD c1", `{"a":1}`), answer.Error)
	is, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), is.Mode().Perm(), "only for root")
}

// The agent notices at once that its caller has closed the connection.
func TestCallerGoes(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	socket, _ := serve(t, func(ctx context.Context, _ call.Request) call.Answer {
		close(begun)
		<-ctx.Done()
		close(ended)
		return call.Answer{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := call.Do(ctx, socket, call.Request{Command: call.Add, Config: json.RawMessage("{}")})
	require.ErrorIs(t, err, context.Canceled)
	<-ended
}

// one is a listener that accepts one connection.
type one struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (o one) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conn:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o one) Close() error   { close(o.closed); return nil }
func (o one) Addr() net.Addr { return &net.UnixAddr{} }

// A request ends with a line feed, which possibly does not fit into the decoder's buffer. The
// unread line feed must not count as a closed connection.
func TestEndOfTheLineComesLater(t *testing.T) {
	l := one{make(chan net.Conn, 1), make(chan struct{})}
	caller, agent := net.Pipe() // a write blocks until the read
	l.conn <- agent
	ctx, cancel := context.WithCancel(t.Context())
	begun, read, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- call.Serve(ctx, l, slog.New(slog.DiscardHandler), func(ctx context.Context, _ call.Request) call.Answer {
			close(begun)
			<-read
			if ctx.Err() != nil {
				return call.Answer{Error: types.NewError(types.ErrInternal, "the caller has gone", "")}
			}
			return call.Answer{}
		})
	}()
	require.NoError(t, caller.SetDeadline(time.Now().Add(patience.Patience)))
	_, err := caller.Write([]byte(`{"command":"ADD"}`))
	require.NoError(t, err)
	<-begun
	for range 2 { // the second one is read later
		_, err = caller.Write([]byte("\n"))
		require.NoError(t, err)
	}
	close(read)
	var answer call.Answer
	require.NoError(t, json.NewDecoder(caller).Decode(&answer))
	require.Nil(t, answer.Error)
	cancel()
	require.NoError(t, <-ended)
}

// A stopping agent answers the calls in progress.
func TestAgentEnds(t *testing.T) {
	begun := make(chan struct{})
	socket, stop := serve(t, func(ctx context.Context, _ call.Request) call.Answer {
		close(begun)
		<-ctx.Done()
		return call.Answer{Error: types.NewError(11, "undone", "")}
	})
	go func() {
		<-begun
		stop()
	}()
	answer, err := call.Do(t.Context(), socket, call.Request{Command: call.Add, Config: json.RawMessage("{}")})
	require.NoError(t, err)
	require.Equal(t, "undone", answer.Error.Msg)
}

func TestNoAgent(t *testing.T) {
	_, err := call.Do(t.Context(), filepath.Join(t.TempDir(), "none"), call.Request{})
	require.ErrorIs(t, err, call.ErrNoAgent)
}

func TestListen(t *testing.T) {
	socket, _ := serve(t, nil)
	_, err := call.Listen(t.Context(), socket)
	require.ErrorContains(t, err, "another agent is listening")

	left := filepath.Join(t.TempDir(), "left.sock")
	l, err := net.Listen("unix", left)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	l, err = call.Listen(t.Context(), left)
	require.NoError(t, err, "the socket of a killed agent is replaced")
	require.NoError(t, l.Close())
}

func TestNoRequest(t *testing.T) {
	socket, _ := serve(t, func(context.Context, call.Request) call.Answer { panic("no request came") })
	for _, text := range []string{"", "{", "[]\n", `{"config":"` + strings.Repeat("x", 2<<20)} {
		conn, err := net.Dial("unix", socket)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(text))
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience.Patience)))
		n, err := conn.Read(make([]byte, 1))
		require.Zero(t, n)
		require.Error(t, err, "the agent closes the connection")
		require.NoError(t, conn.Close())
	}
}
