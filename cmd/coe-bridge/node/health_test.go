package node

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestSlowReaders: clients that do not read their answers lose their connections, and others get an answer.
func TestSlowReaders(t *testing.T) {
	const slow = 2
	free, ended := make(chan struct{}, slow), make(chan struct{}, slow) // as many answers at a time as there are slow clients
	server := healthServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free; ended <- struct{}{} }()
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<20)) // more than the buffers of a connection
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	for range slow {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
	}
	for range slow {
		select {
		case <-ended:
		case <-time.After(patience.Patience):
			require.Fail(t, "a client that does not read keeps others from an answer")
		}
	}
}
