package kubelab

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

func proxy(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "egress.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	e := newEgress(listener, new(net.Dialer).DialContext)
	t.Cleanup(func() { require.NoError(t, e.close()) })
	return socket
}

// ask sends a request to the proxy, and returns the connection with the status of the
// answer.
func ask(t *testing.T, socket, request string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Patience)))
	_, err = fmt.Fprint(conn, request+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return conn, response.StatusCode
}

func TestEgressConnects(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_, _ = io.CopyN(conn, conn, 4)
		_ = conn.Close()
	}()
	conn, status := ask(t, proxy(t), "CONNECT "+server.Addr().String())
	require.Equal(t, http.StatusOK, status)
	_, err = fmt.Fprint(conn, "ping")
	require.NoError(t, err)
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "ping", string(said), "and the proxy passes on the end of one side to the other")
}

func TestEgressSaysWhatItCanNot(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for request, want := range map[string]int{
		"CONNECT " + closed.Addr().String(): http.StatusBadGateway,
		"GET /":                             http.StatusMethodNotAllowed,
	} {
		_, status := ask(t, proxy(t), request)
		require.Equal(t, want, status, request)
	}
}
