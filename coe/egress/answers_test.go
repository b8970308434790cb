package egress_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	agent "github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// freePort returns a port on which nobody listens.
func freePort(t *testing.T) uint16 {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// An agent answers with the version that is in force. Only an answer with the key of the node, to this question, counts.
func TestAnswers(t *testing.T) {
	ns, err := netns.Get()
	require.NoError(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	port, key := freePort(t), []byte("key")
	answers := func(want egress.Answer, why ...any) {
		t.Helper()
		requireAnswer(t, want, egress.Question{Node: loopback, Port: port, Key: key}, why...)
	}
	answers(egress.Answer{Heard: true}, "the kernel answers without an agent")

	s := agent.New(ns)
	t.Cleanup(s.Close)
	unfit := []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	require.NoError(t, s.Sync(netip.AddrPortFrom(loopback, port), key, agent.State{Version: "v1", Unfit: unfit}))
	answers(egress.Answer{Heard: true, Answered: true, Version: "v1", Unfit: unfit})
	require.False(t, egress.Ask(t.Context(), egress.Question{Node: loopback, Port: port, Key: []byte("of another node")}).Answered)
	require.NoError(t, s.Sync(netip.AddrPortFrom(loopback, port), key, agent.State{Version: "v2"}))
	answers(egress.Answer{Heard: true, Answered: true, Version: "v2"})
	var many []string
	links := map[string]string{}
	for i := range 2 * netvirt.MaxEgressIPs {
		many = append(many, netvirt.EgressPortName(uint16(i/2+1), i%2))
		links[many[i]] = "lo"
	}
	links[many[0]] = "no such link"
	require.NoError(t, s.Sync(netip.AddrPortFrom(loopback, port), key, agent.State{Version: "v2", Applied: "v3", Missing: many, Links: links}))
	answers(egress.Answer{Heard: true, Answered: true, Version: "v2", Applied: "v3", Missing: many})
	counted := answered(t, egress.Question{Node: loopback, Port: port, Key: key, Count: true})
	require.Len(t, counted.Received, len(many)-1)
	require.Positive(t, counted.Received[many[1]], "of the loopback link")
	require.Equal(t, many, counted.Missing)
	require.NoError(t, s.Sync(netip.AddrPortFrom(loopback, port), key, agent.State{Version: "v2", Links: map[string]string{"port": "lo"}}))

	first, mac := get(t, "http://"+netip.AddrPortFrom(loopback, port).String()+"/?nonce=n")
	require.NotContains(t, first, "received")
	for _, nonce := range []string{"n", "n" + first} {
		again, _ := get(t, "http://"+netip.AddrPortFrom(loopback, port).String()+"/?nonce="+url.QueryEscape(nonce)+"&count="+mac)
		require.Equal(t, first, again, "an answer lets nobody else ask for counts")
	}

	var repeats atomic.Bool
	var recorded atomic.Pointer[recording]
	replay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !repeats.Load() {
			answer, err := http.Get("http://" + netip.AddrPortFrom(loopback, port).String() + "/?" + r.URL.RawQuery)
			if err != nil {
				return
			}
			defer func() { _ = answer.Body.Close() }()
			body, _ := io.ReadAll(answer.Body)
			recorded.Store(&recording{answer.Header.Get("X-Coe-Mac"), body})
		}
		w.Header().Set("X-Coe-Mac", recorded.Load().mac)
		_, _ = w.Write(recorded.Load().body)
	}))
	t.Cleanup(replay.Close)
	at := netip.MustParseAddrPort(replay.Listener.Addr().String()).Port()
	_ = answered(t, egress.Question{Node: loopback, Port: at, Key: key})
	repeats.Store(true)
	require.False(t, egress.Ask(t.Context(), egress.Question{Node: loopback, Port: at, Key: key}).Answered, "an old answer")

	require.NoError(t, s.Sync(netip.AddrPort{}, nil, agent.State{}))
	answers(egress.Answer{Heard: true})
}

// recording is an answer.
type recording struct {
	mac  string
	body []byte
}

// requireAnswer asks until a node answers as wanted. On a busy machine an answer can come too late.
func requireAnswer(t *testing.T, want egress.Answer, q egress.Question, why ...any) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, want, egress.Ask(t.Context(), q))
	}, patience.Patience, time.Millisecond, why...)
}

// answered asks until the agent of a node answers, and returns the answer.
func answered(t *testing.T, q egress.Question) (a egress.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		a = egress.Ask(t.Context(), q)
		return a.Answered
	}, patience.Patience, time.Millisecond)
	return a
}

// get returns the body of an answer, and its HMAC.
func get(t *testing.T, at string) (body, mac string) {
	answer, err := http.Get(at)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(content), answer.Header.Get("X-Coe-Mac")
}

// neighbours returns sockets that have a port and the next one, and that do not listen: the kernel refuses connections.
func neighbours(t *testing.T) (uint16, [2]int) {
	for range 100 {
		first, err := bound(t, 0)
		require.NoError(t, err)
		at, err := unix.Getsockname(first)
		require.NoError(t, err)
		port := at.(*unix.SockaddrInet4).Port
		if second, err := bound(t, port+1); err == nil { // else another program has it, or there is none
			return uint16(port), [2]int{first, second}
		}
	}
	require.Fail(t, "no two consecutive ports are free")
	return 0, [2]int{}
}

// bound returns a socket with a port, any if it is 0.
func bound(t *testing.T, port int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback.As4(), Port: port})
}

// The kernel drops connections to an agent that hangs, once its queue is full. The next port shows that the node lives.
func TestAgentHangs(t *testing.T) {
	port, sockets := neighbours(t)
	question := func(hangs bool) egress.Question {
		return egress.Question{Node: loopback, Port: port, Key: []byte("key"), Hangs: hangs}
	}
	ask := func(hangs bool) egress.Answer { return egress.Ask(t.Context(), question(hangs)) }
	hang := func(socket int) { require.NoError(t, unix.Listen(socket, 0)) } // it accepts no connection
	hang(sockets[0])
	for range 3 {
		_ = ask(false)
	}
	require.Equal(t, egress.Answer{}, ask(false), "nobody else speaks for a node that did not hang")
	requireAnswer(t, egress.Answer{Heard: true, Hangs: true}, question(true))
	hang(sockets[1])
	for range 3 {
		_ = ask(true)
	}
	require.Equal(t, egress.Answer{}, ask(true), "nothing answers")
}
