package restconf

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// If all places are taken, the next connection waits until another is closed, if
// none is a stranger; a listener that ends lets nobody wait.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := bound(inner, 2, newStrangers(8, func() { t.Error("a stranger was closed") }))
	accept := func() (net.Conn, error) {
		c, err := l.Accept()
		if err == nil {
			own(c).authenticated()
		}
		return c, err
	}
	var accepted []net.Conn
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for range 2 {
		dial()
		conn, err := accept()
		require.NoError(t, err)
		accepted = append(accepted, conn)
	}
	dial()
	third := make(chan error, 1)
	go func() {
		conn, err := accept()
		if err == nil {
			err = conn.Close()
		}
		third <- err
	}()
	select {
	case <-third:
		t.Fatal("there was no place for a third")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, accepted[0].Close())
	require.Error(t, accepted[0].Close(), "one place is given back once")
	require.NoError(t, <-third)

	dial()
	_, err = accept()
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() {
		_, err := accept()
		waits <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-waits, net.ErrClosed)
	require.Positive(t, maxConnections())
}

// A client that sends too much reads why, even over a bounded listener.
func TestTooLargeBodyIsAnswered(t *testing.T) {
	b := newBed(t, func(c *Config) { c.BodyLimit = 1 << 10 })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, served(t, b.Server)+podsRFC+uid1, &zeros{left: 64 << 20})
	require.NoError(t, err)
	r.SetBasicAuth("admin", "admin")
	r.Header.Set("Content-Type", "application/yang-data+json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 413, resp.StatusCode)
}

// zeros is a long body whose length nobody says.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	z.left -= n
	return n, nil
}
