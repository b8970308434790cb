package healthchecks_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/healthchecks"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// newServer returns a Server in the network namespace of the test, and a free port.
func newServer(t *testing.T) (*healthchecks.Server, uint16) {
	home, err := netns.Get()
	require.NoError(t, err)
	s := healthchecks.New(home)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, home.Close())
	})
	for port := 20000 + rand.N(uint16(10000)); ; port++ { // the kernel gives these to nobody
		if l, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			require.NoError(t, l.Close())
			return s, port
		}
	}
}

// ask returns the answer of a port.
func ask(t *testing.T, port uint16) (status int, header http.Header, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
	require.NoError(t, err)
	response, err := new(http.Transport).RoundTrip(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(text)
}

// A port answers with the number of endpoints on the node, as kube-proxy does.
func TestAnswers(t *testing.T) {
	s, port := newServer(t)
	for _, c := range []struct {
		endpoints int
		healthy   bool
		status    int
	}{{2, true, 200}, {0, true, 503}, {1, true, 200}, {1, false, 503}} {
		require.NoError(t, s.Sync(map[uint16]healthchecks.Check{port: {Namespace: "shop", Service: "web", Endpoints: c.endpoints}}, c.healthy))
		status, header, body := ask(t, port)
		require.Equal(t, c.status, status)
		require.Equal(t, fmt.Sprint(c.endpoints), header.Get("X-Load-Balancing-Endpoint-Weight"))
		require.Equal(t, "application/json", header.Get("Content-Type"))
		require.Equal(t, fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}",
			c.endpoints, c.healthy), body)
	}
	require.NoError(t, s.Sync(nil, true))
	_, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), patience.Patience)
	require.ErrorContains(t, err, "refused")
}

// A port on which another program listens is an error, until it is free. The others are served.
func TestPortInUse(t *testing.T) {
	s, port := newServer(t)
	taken, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	all := map[uint16]healthchecks.Check{
		port: {Namespace: "shop", Service: "web", Endpoints: 1}, uint16(taken.Addr().(*net.TCPAddr).Port): {Namespace: "shop", Service: "other"},
	}
	require.ErrorContains(t, s.Sync(all, true), "answer health checks of service shop/other")
	status, _, _ := ask(t, port)
	require.Equal(t, 200, status)
	require.NoError(t, taken.Close())
	require.NoError(t, s.Sync(all, true))
}

// Connections that send nothing do not keep load balancers from asking.
func TestManyConnections(t *testing.T) {
	s, port := newServer(t)
	require.NoError(t, s.Sync(map[uint16]healthchecks.Check{port: {Namespace: "shop", Service: "web", Endpoints: 1}}, true))
	var silent []net.Conn
	for range 600 {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		require.NoError(t, err)
		silent = append(silent, conn)
	}
	status, _, _ := ask(t, port)
	require.Equal(t, 200, status)
	require.NoError(t, silent[0].SetReadDeadline(time.Now().Add(4*time.Second))) // before it times out itself
	_, err := silent[0].Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the oldest one is closed")
	for _, conn := range silent {
		require.NoError(t, conn.Close())
	}
}
