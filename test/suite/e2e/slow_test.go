package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The time limits of a connection, and the tolerance on a busy machine.
const (
	headTime = 10 * time.Second
	bodyTime = 30 * time.Second
	readTime = 40 * time.Second
	leeway   = time.Minute
	// The numbers of clients that send a header or a body slowly, and of clients that do not read.
	slowHeads, slowBodies, deaf = 200, 100, 20
	// others is how many requests of other clients must be answered meanwhile.
	others = 5
)

const credentials = "Authorization: Basic YWRtaW46YWRtaW4=\r\n"

// TestSlowClients has clients that send a header or a body byte by byte, and clients that do not read
// a long answer, each on many connections. The bridge closes each connection when its time is over.
// Other clients do not wait, and no resources are left.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as slow clients are granted; make test runs it")
	}
	t.Parallel()
	p := bridgetest.Serve(t, "--body-limit", fmt.Sprint(64<<20))
	r := rest{p.Client()}
	r.write(t, "k8s:k8s", longAnswer())
	server := strings.TrimPrefix(p.Bridge().URL(), "http://")
	before := metric(t, r, "go_goroutines")

	var all sync.WaitGroup
	slow := func(connections int, granted time.Duration, client func(net.Conn, <-chan time.Time) error) {
		begun := time.Now()
		for range connections {
			all.Go(func() {
				conn, err := net.Dial("tcp", server)
				if !assert.NoError(t, err) {
					return
				}
				defer func() { _ = conn.Close() }()
				assert.NoError(t, conn.SetDeadline(begun.Add(granted+leeway)))
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				assert.NoError(t, client(conn, tick.C), "granted %s", granted)
				assert.Less(t, time.Since(begun), granted+leeway)
			})
		}
	}
	awaitClients := func(n int) {
		t.Helper()
		await(t, leeway, "the bridge waits for clients", func() error {
			if now := metric(t, r, "go_goroutines"); now < before+float64(n) {
				return fmt.Errorf("%v goroutines, and before there were %v", now, before)
			}
			return nil
		})
	}
	// The number of connections is below the limit of an address for connections without
	// authentication.
	slow(slowHeads, headTime, func(conn net.Conn, tick <-chan time.Time) error {
		return drip(conn, tick, "GET /rests HTTP/1.1\r\nHost: x\r\nX-Slow: ", "")
	})
	awaitClients(slowHeads) // a slow machine answers the others when the time of these is over
	slow(slowBodies, bodyTime, func(conn net.Conn, tick <-chan time.Time) error {
		return drip(conn, tick, "PUT /restconf/config/pod:coe HTTP/1.1\r\nHost: x\r\n"+credentials+
			"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", "408 Request Timeout")
	})
	for range deaf {
		askAndIgnore(t, server, "GET /restconf/config/k8s:k8s HTTP/1.1\r\nHost: x\r\n"+credentials+"\r\n")
	}
	asked := time.Now()
	awaitClients(slowBodies + deaf)
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	require.GreaterOrEqual(t, r.writes(t, done), others, "other clients are served meanwhile")
	await(t, readTime+leeway-time.Since(asked), "no resources of the connections are left", func() error {
		if now := metric(t, r, "go_goroutines"); now > before+deaf/2 {
			return fmt.Errorf("%v goroutines, and before there were %v", now, before)
		}
		return nil
	})
}

// longAnswer is larger than the buffers of a connection.
func longAnswer() string {
	name := strings.Repeat("x", 16<<20)
	return `{"k8s":{"network-policies":{"network-policy":[{"uuid":"8f2a6d5e-0000-4000-8000-000000000001","name":"` + name + `"}]}}}`
}

// drip sends the start of a request and then a byte at each tick, until the server closes the
// connection. If status is not empty, the server must have answered with it.
func drip(conn net.Conn, tick <-chan time.Time, begin, status string) error {
	if _, err := io.WriteString(conn, begin); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		answered <- line
	}()
	for {
		select {
		case line := <-answered:
			if !strings.Contains(line, status) {
				return fmt.Errorf("the answer is %q", line)
			}
			return nil
		case <-tick:
			_, _ = conn.Write([]byte("x")) // the server may have closed it
		}
	}
}

// askAndIgnore sends a request, and does not read the answer until the test ends.
func askAndIgnore(t *testing.T, server, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
}

// write puts an entry, and repeats the request while the datastore takes too long (503): on a
// busy disk etcd gives up after 5 s.
func (r rest) write(t *testing.T, path string, body any) {
	t.Helper()
	await(t, patience.Patience, "a PUT is answered", func() error {
		status, answer, err := r.do(t.Context(), http.MethodPut, "config/"+path, body)
		require.NoError(t, err)
		if status == http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", status, answer)
		}
		require.Equal(t, 2, status/100, "PUT %s: %d %s", path, status, answer)
		return nil
	})
}

// writes writes pods until done is closed, and returns the number of answers.
func (r rest) writes(t *testing.T, done <-chan struct{}) (answered int) {
	t.Helper()
	for {
		p := aPod{uid: uid("a", answered%10), name: fmt.Sprintf("pod-%d", answered%10), namespace: "web", node: loadNodes[0]}
		r.write(t, podPath(p.uid), p.body())
		select {
		case <-done:
			return answered
		case <-time.After(200 * time.Millisecond):
			answered++
		}
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, r rest, name string) (value float64) {
	t.Helper()
	_, text, err := r.Do(t.Context(), http.MethodGet, "/metrics", nil)
	require.NoError(t, err)
	_, rest, found := strings.Cut(text, "\n"+name+" ")
	require.True(t, found, name)
	_, err = fmt.Sscan(rest, &value)
	require.NoError(t, err)
	return value
}
