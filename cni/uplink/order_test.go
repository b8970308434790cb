package uplink_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// placed is a bridge that sends each agent the last group of tell.
type placed struct {
	url   string
	mu    sync.Mutex
	group string
	more  chan string // for the agent that is connected
	opens atomic.Int32
}

func servePlaces(t *testing.T) *placed {
	p := &placed{more: make(chan string)}
	p.url = serve(t, p.serve)
	return p
}

func (p *placed) serve(w http.ResponseWriter, r *http.Request) {
	p.opens.Add(1)
	p.mu.Lock()
	group := p.group
	p.mu.Unlock()
	for {
		_, _ = io.WriteString(w, group)
		w.(http.Flusher).Flush()
		select {
		case group = <-p.more:
		case <-r.Context().Done():
			return
		}
	}
}

// tell changes what an agent gets when it connects, and returns it.
func (p *placed) tell(id string, notifications ...string) (group string) {
	for i, n := range notifications {
		if i == len(notifications)-1 {
			group += "id: " + id + "\n"
		}
		group += `data: {"ietf-restconf:notification":{` + n + "}}\n\n"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group = group
	return group
}

const (
	begin    = `"coe-agent:snapshot-begin":{}`
	complete = `"coe-agent:snapshot-complete":{}`
	led      = `"services-by":"node",`
	notLed   = `"services-by":"network",`
)

func placeWith(members string) string {
	return `"coe-agent:node-changed":{"operation":"put","node":"192.168.33.11",` + members + `"mac-address":"0a:58:64:60:00:02","address":"100.96.0.2"}`
}

func networkOf(identity string) string {
	return fmt.Sprintf(`"coe-agent:network-changed":{"identity":%q}`, identity)
}

// An agent of a node with OpenDaylight does not follow a bridge that serves OVN first. An agent of a node with OVN follows both.
func TestWhomANodeFollows(t *testing.T) {
	const isolated, wayOut = `"isolated":true,`, `"way-out":{"name":"node:192.168.33.11:port","mac-address":"0a:58:c0:a8:21:0b"},`
	for members, follows := range map[string]bool{
		led + wayOut:      true,
		led + isolated:    true,
		notLed:            false,
		notLed + isolated: false,
		wayOut:            true, // of a bridge of an earlier version
		isolated:          true,
		"":                false,
	} {
		b := servePlaces(t)
		b.tell("5@x", begin, placeWith(members), complete)
		a := start(t, uplink.Config{URLs: []string{b.url}, OpenDaylight: true})
		require.Eventually(t, func() bool {
			is := a.Status()
			return is.Synced || errors.Is(is.Err, uplink.ErrServesOVN)
		}, patience.Patience, time.Millisecond, members)
		_, known, _ := a.Place()
		require.Equal(t, follows, known, members)
		require.Equal(t, !follows, errors.Is(a.CheckOrder(t.Context(), b.url), uplink.ErrServesOVN), members)
		a.stop()

		a = start(t, uplink.Config{URLs: []string{b.url}})
		require.Eventually(t, func() bool { return a.Status().Synced }, patience.Patience, time.Millisecond, members)
		require.NoError(t, a.CheckOrder(t.Context(), b.url), members)
		a.stop()
	}
}

// While the bridge serves OVN first, an agent of a node with OpenDaylight keeps what it has, over restarts too, and takes nothing.
// Once OpenDaylight comes first again, it goes on.
func TestWrongOrder(t *testing.T) {
	b := servePlaces(t)
	cfg := uplink.Config{URLs: []string{b.url}, Dir: t.TempDir(), OpenDaylight: true}
	b.tell("5@x", begin, placeWith(led), networkOf("right"), complete)
	a := start(t, cfg)
	has := func(id, identity string) {
		t.Helper()
		require.Eventually(t, func() bool { return a.ID() == id }, patience.Patience, time.Millisecond)
		is, known, _ := a.Place()
		got, _ := a.Network()
		require.True(t, known)
		require.Equal(t, uplink.NodeLeads, is.ServicesBy)
		require.Equal(t, identity, got)
	}
	held := func() {
		t.Helper()
		require.Eventually(t, func() bool { return errors.Is(a.Status().Err, uplink.ErrServesOVN) }, patience.Patience, time.Millisecond)
		require.False(t, a.Status().Connected)
	}
	has("5@x", "right")
	b.more <- b.tell("6@x", placeWith(notLed), networkOf("wrong"))
	held()
	heard := a.Heard()
	for _, id := range []string{"7@x", "8@x", "9@x"} {
		b.more <- b.tell(id, networkOf("wrong"))
	}
	held()
	has("5@x", "right")
	require.Equal(t, heard, a.Heard())
	require.EqualValues(t, 1, b.opens.Load(), "it stays connected")
	b.more <- b.tell("10@x", placeWith(led), networkOf("next"))
	has("10@x", "next")
	require.Eventually(t, func() bool { return a.Status().Connected }, patience.Patience, time.Millisecond)
	require.EqualValues(t, 2, b.opens.Load(), "it continues from what it took last")
	a.stop()

	b.tell("11@x", begin, placeWith(notLed), complete)
	a = start(t, cfg)
	held()
	has("10@x", "next")
	a.stop()

	cfg.OpenDaylight = false
	a = start(t, cfg)
	require.Eventually(t, func() bool { return a.ID() == "11@x" }, patience.Patience, time.Millisecond)
	a.stop()
	cfg.OpenDaylight, cfg.URLs = true, []string{"http://127.0.0.1:1"}
	a = start(t, cfg)
	_, known, _ := a.Place()
	require.False(t, known, "the state is of the time with OVN")
	require.Empty(t, a.ID())
}

// A request goes to the replica that the agent follows. The caller could have no time left after another one that does not answer.
func TestAsksTheReplicaItFollows(t *testing.T) {
	var asked atomic.Int32
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	places := servePlaces(t)
	places.tell("5@x", begin, placeWith(led), complete)
	followed := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			places.serve(w, r)
		}
	})
	a := start(t, uplink.Config{URLs: []string{other, followed}})
	require.Eventually(t, func() bool { return a.Status().Synced }, patience.Patience, time.Millisecond)
	require.NoError(t, a.Post(t.Context(), uplink.Pod{UID: uid1, InterfaceUID: uid1, Namespace: "web", Name: "front"}))
	require.Zero(t, asked.Load())
}
