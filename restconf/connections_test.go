package restconf

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
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
	sendTooMuch(t, served(t, b.Server))
}

// sendTooMuch sends a body without a length until the server refuses it. The answer and the end of
// the connection come before a reset, so the client reads both, however long it takes. Go's
// client could report instead that it cannot write any more.
func sendTooMuch(t *testing.T, server string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Patience)))
	_, err = io.WriteString(conn, "PUT "+podsRFC+uid1+" HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YWRtaW46YWRtaW4=\r\n"+
		"Content-Type: application/yang-data+json\r\nTransfer-Encoding: chunked\r\n\r\n")
	require.NoError(t, err)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		chunk := "400\r\n" + strings.Repeat(" ", 0x400) + "\r\n"
		for {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return // the server has closed the connection
			}
		}
	})
	answer := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answer, nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	require.True(t, resp.Close)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	_, err = answer.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the connection ends before it is reset")
}
