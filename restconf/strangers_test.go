package restconf

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// strangersBed are strangers, on connections without a network.
type strangersBed struct {
	*strangers
	t      *testing.T
	closed int // for others
}

func newStrangersBed(t *testing.T, most, mostFrom int) *strangersBed {
	b := &strangersBed{t: t}
	b.strangers = &strangers{most: most, mostFrom: mostFrom, timeout: 10 * time.Second, limited: func() { b.closed++ }}
	return b
}

func (b *strangersBed) from(address string) *conn {
	here, there := net.Pipe()
	b.t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	c := &conn{Conn: here, from: access.AddressOf(netip.AddrPortFrom(netip.MustParseAddr(address), 1).String()), strangers: b.strangers, closed: make(chan struct{}), leave: func() {}}
	b.add(c)
	return c
}

// isClosed reports whether a connection was closed.
func isClosed(c *conn) bool { return c.SetDeadline(time.Time{}) != nil }

func (b *strangersBed) requireClosed(want ...*conn) {
	b.t.Helper()
	for i, c := range want {
		require.True(b.t, isClosed(c), "connection %d is open", i)
	}
	require.Equal(b.t, len(want), b.closed)
}

func TestStrangersOfOneAddress(t *testing.T) {
	b := newStrangersBed(t, 100, 2)
	other := b.from("192.0.2.2")
	first, second := b.from("192.0.2.1"), b.from("::ffff:192.0.2.1")
	b.requireClosed()
	third := b.from("192.0.2.1")
	b.requireClosed(first)
	third.authenticated()
	b.from("192.0.2.1")
	b.requireClosed(first)
	b.from("192.0.2.1")
	b.requireClosed(first, second)
	require.False(t, isClosed(other))
	require.False(t, isClosed(third))

	network := b.from("2001:db8:0:1::1")
	b.from("2001:db8:0:1:ffff::1")
	b.from("2001:db8:0:2::1")
	b.from("2001:db8:0:1::2")
	b.requireClosed(first, second, network)
}

func TestStrangersInAll(t *testing.T) {
	b := newStrangersBed(t, 3, 2)
	known := b.from("192.0.2.1")
	known.authenticated()
	var all []*conn
	for i := range 5 {
		all = append(all, b.from(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}).String()))
	}
	b.requireClosed(all[0], all[1])
	require.NoError(t, all[3].Close())
	b.from("192.0.2.1")
	b.requireClosed(all[0], all[1])
	require.Len(t, b.open, 3)
	require.False(t, isClosed(known))

	b.closeOldest()
	b.requireClosed(all[0], all[1], all[2])
	for range 4 {
		b.closeOldest()
	}
	require.Empty(t, b.open)
	require.Equal(t, 5, b.closed)
	require.False(t, isClosed(known))
}

// A stranger without a request is closed after a while; one that was authenticated, or
// whose request is under way, is not.
func TestStrangersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStrangersBed(t, 100, 100)
		silent, known, busy, asks := b.from("192.0.2.1"), b.from("192.0.2.1"), b.from("192.0.2.1"), b.from("192.0.2.1")
		known.authenticated()
		b.state(busy, http.StateActive)
		b.state(asks, http.StateActive)
		<-time.After(9 * time.Second)
		b.state(asks, http.StateIdle)
		b.state(known, http.StateIdle)
		<-time.After(2 * time.Second)
		require.True(t, isClosed(silent))
		require.False(t, isClosed(asks))
		<-time.After(9 * time.Second)
		require.True(t, isClosed(asks))
		require.False(t, isClosed(known))
		require.False(t, isClosed(busy))
		require.NoError(t, busy.Close())
		require.NoError(t, known.Close())
		require.Empty(t, b.open)
		require.Zero(t, b.closed, "none was closed for another")
	})
}

// A connection is a stranger until a request on it was authenticated, whatever else was
// asked on it before.
func TestStrangersAreAuthenticated(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			keys := httptest.NewUnstartedServer(http.NotFoundHandler())
			keys.EnableHTTP2 = protocol == "HTTP/2.0"
			keys.StartTLS()
			defer keys.Close()
			b := newBed(t, func(c *Config) {
				c.TLS = keys.TLS
				c.Open = map[string]http.Handler{"/stranger": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c := connOf(r)
					c.strangers.mu.Lock()
					defer c.strangers.mu.Unlock()
					_, _ = fmt.Fprint(w, c.timer != nil && c.busy, len(c.strangers.open))
				})}
			})
			at := strings.Replace(served(t, b.Server), "http:", "https:", 1)
			client, connections := keys.Client(), 0
			counted := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
				if !c.Reused {
					connections++
				}
			}})
			get := func(path, password string) (int, string) {
				r, err := http.NewRequestWithContext(counted, http.MethodGet, at+path, http.NoBody)
				require.NoError(t, err)
				if password != "" {
					r.SetBasicAuth("admin", password)
				}
				answer, err := client.Do(r)
				require.NoError(t, err)
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, protocol, answer.Proto)
				return answer.StatusCode, string(body)
			}
			asked := func() bool { // on one connection; a client that is slow does not use a connection again
				client.CloseIdleConnections()
				require.Eventually(t, func() bool {
					_, stranger := get("/stranger", "")
					return stranger == "true 1"
				}, patience.Patience, time.Millisecond, "the server closes the former connection")
				connections = 0
				for _, c := range []struct {
					path, password string
					status         int
					stranger       string
				}{
					{"/stranger", "", 200, "true 1"},
					{podsRFC, "", 401, "true 1"},
					{podsRFC, "wrong", 401, "true 1"},
					{"/nowhere", "admin", 404, "false 0"},
					{podsRFC, "wrong", 401, "false 0"},
				} {
					status, _ := get(c.path, c.password)
					_, stranger := get("/stranger", "")
					if connections > 0 {
						return false
					}
					require.Equal(t, c.status, status, "%+v", c)
					require.Equal(t, c.stranger, stranger, "%+v", c)
				}
				return true
			}
			for round := 0; !asked(); round++ {
				require.Less(t, round, 100, "the server closes connections")
			}
		})
	}
}

// TestAnswersToStrangers: a client that reads no answers keeps a few of them waiting. The
// others are a status alone.
func TestAnswersToStrangers(t *testing.T) {
	b := newStrangersBed(t, 100, 100)
	c := b.from("192.0.2.1")
	begun, read := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range strangersAnswers {
		all.Go(func() {
			c.answerStranger(httptest.NewRecorder(), func() { begun <- struct{}{}; <-read })
		})
		<-begun
	}
	one := httptest.NewRecorder()
	c.answerStranger(one, func() { t.Error("one too many is answered") })
	require.Equal(t, http.StatusServiceUnavailable, one.Code)
	require.Empty(t, one.Body)
	close(read)
	all.Wait()
	answered := false
	c.answerStranger(httptest.NewRecorder(), func() { answered = true })
	require.True(t, answered)
}

// TestReportsAreSparse: failed handshakes do not fill the log, and hide no panic.
func TestReportsAreSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		log := slog.NewLogLogger(&sparse{Handler: slog.NewTextHandler(&text, nil)}, slog.LevelWarn)
		for range 100 {
			log.Print("http: TLS handshake error")
		}
		require.Equal(t, 1, strings.Count(text.String(), "handshake"))
		for _, panicked := range []string{"http: panic serving 192.0.2.1:80: x", "http2: panic serving 192.0.2.1:80: x"} {
			log.Print(panicked)
			require.Contains(t, text.String(), panicked)
		}
		<-time.After(sparseEvery)
		log.Print("http: TLS handshake error")
		require.Equal(t, 1, strings.Count(text.String(), "left-out-before=99"))
	})
}

// endless has always something to read.
type endless struct{ net.Conn }

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A connection on which many requests in a row were not authenticated waits before each read.
func TestStrangersWaitAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStrangersBed(t, 100, 100)
		c, other := b.from("192.0.2.1"), b.from("192.0.2.1")
		took := func(c *conn) time.Duration {
			begun := time.Now()
			_, err := c.Read(nil)
			require.NoError(t, err)
			return time.Since(begun)
		}
		for _, one := range []*conn{c, other} {
			one.Conn = endless{one.Conn}
		}
		for range strangersFree {
			c.answerStranger(httptest.NewRecorder(), func() {})
			require.Zero(t, took(c))
		}
		c.answerStranger(httptest.NewRecorder(), func() {})
		require.Equal(t, strangersPause, took(c))
		require.Equal(t, strangersPause, took(c))
		require.Zero(t, took(other))
		c.authenticated()
		require.Zero(t, took(c))

		c.refused.Store(strangersFree + 1)
		ended := make(chan error)
		go func() {
			_, err := c.Read(nil)
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
	})
}
