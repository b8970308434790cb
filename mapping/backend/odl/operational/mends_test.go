package operational_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/operational"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// paths answers GETs with texts by the end of their path, and records other requests to its paths.
type paths struct {
	mu      sync.Mutex
	answers map[string]string
	status  int // of requests that are not GETs
	sent    []string
}

func (p *paths) fault(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, text := range p.answers {
		if !strings.HasSuffix(r.URL.EscapedPath(), path) {
			continue
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
			return true
		}
		body, _ := io.ReadAll(r.Body)
		p.sent = append(p.sent, string(body))
		w.WriteHeader(p.status)
		return true
	}
	return false
}

func (p *paths) set(path, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[path] = text
}

// take returns what was sent since the last call.
func (p *paths) take(status int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent, p.status = nil, status
	return sent
}

// groupOf is an answer of Oxygen, with the value of register 6.
const groupOf = `{"flow-node-inventory:group":[{"group-id":150002,"buckets":{"bucket":[{"bucket-id":0,"action":[
	{"order":3,"openflowplugin-extension-nicira-action:nx-resubmit":{"table":220}},
	{"order":0,"set-field":{"ethernet-match":{"ethernet-source":{"address":"9a:9a:16:5a:3b:32"}}}},
	{"order":1,"set-field":{"ethernet-match":{"ethernet-destination":{"address":"%s"}}}},
	{"order":2,"openflowplugin-extension-nicira-action:nx-reg-load":{"value":%d,"dst":{"nx-reg":"nicira-match:nxm-nx-reg6","start":0,"end":31}}}]}]},"group-name":"10.0.0.4/32","group-type":"group-all"}]}`

// TestGroupOfFormerPort corrects the group that Netvirt has kept from a former port, after two looks. It leaves a right one alone.
func TestGroupOfFormerPort(t *testing.T) {
	const hop = "/vpnNexthop/10.0.0.4%2F32"
	const former, right, mac = 9 << 8, 2 << 8, "0a:58:00:00:00:02" // the if-index is 2
	group := "/opendaylight-inventory:nodes/node/openflow%3A1/flow-node-inventory:group/150002"
	const counted = `{"vpnNexthop":[{"IpAddress":"10.0.0.4/32","egressPointer":150002,"dpnId":1,"flowrefCount":1}]}`
	var mayNot error
	const wrong = "flows not programmed: group 150002 does not lead to its port"
	begin := func(t *testing.T, answers map[string]string) (func() []string, *paths, *lab) {
		l := start(t, odlfake.Oxygen, operational.Config{Poll: 20 * time.Millisecond}, func(context.Context) error { return mayNot })
		want := odltest.PodsOf("a")
		l.write(t, want)
		p := &paths{status: http.StatusOK, answers: answers}
		l.Break(p.fault)
		l.Plug(portOf(want, "a:pod-1"))
		return func() []string {
			l.observe(t)
			return slices.Compact(slices.Sorted(maps.Values(l.lacks(want))))
		}, p, l
	}
	for name, text := range map[string]string{
		"of another port":    fmt.Sprintf(groupOf, mac, former),
		"of another address": fmt.Sprintf(groupOf, "0a:58:00:00:00:07", right),
		"of another switch":  `{"flow-node-inventory:group":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			look, p, _ := begin(t, map[string]string{hop: counted, group: text})
			require.Equal(t, []string{wrong}, look())
			require.Empty(t, p.take(http.StatusInternalServerError), "the port and the group can have changed between the reads")
			require.Equal(t, []string{wrong}, look())
			require.Len(t, p.take(http.StatusOK), 1)
			require.Equal(t, []string{wrong}, look(), "the write has failed")
			sent := p.take(http.StatusOK)
			require.Len(t, sent, 1)
			p.set(group, sent[0])
			require.Empty(t, look())
			look()
			require.Empty(t, p.take(http.StatusOK))
		})
	}
	t.Run("right", func(t *testing.T) {
		look, p, _ := begin(t, map[string]string{hop: counted, group: fmt.Sprintf(groupOf, strings.ToUpper(mac), right)})
		require.Empty(t, look())
		require.Empty(t, look())
		require.Empty(t, p.take(http.StatusOK))
	})
	t.Run("right, and counted twice", func(t *testing.T) {
		look, p, _ := begin(t, map[string]string{hop: strings.Replace(counted, `Count":1`, `Count":2`, 1), group: fmt.Sprintf(groupOf, mac, right)})
		look()
		look()
		require.Len(t, p.take(http.StatusOK), 1, "the switch possibly has an older one")
	})
	t.Run("of a release that does not count", func(t *testing.T) {
		look, p, _ := begin(t, map[string]string{hop: `{"vpnNexthop":[{"IpAddress":"10.0.0.4/32","egressPointer":150002}]}`, group: fmt.Sprintf(groupOf, mac, former)})
		look()
		require.Empty(t, look())
		require.Empty(t, p.take(http.StatusOK))
	})
	t.Run("of an external interface", func(t *testing.T) {
		look, p, l := begin(t, map[string]string{hop: counted, group: fmt.Sprintf(groupOf, mac, former)})
		const container, list, key = "ietf-interfaces:interfaces", "interface", "a:pod-1"
		e := l.Entry(container, list, key)
		e["description"] = "of somebody else"
		l.Set(container, list, key, e)
		look()
		require.Empty(t, look())
		require.Empty(t, p.take(http.StatusOK))
	})
	t.Run("of a replica that does not lead", func(t *testing.T) {
		look, p, _ := begin(t, map[string]string{hop: counted, group: fmt.Sprintf(groupOf, mac, former)})
		mayNot = errors.New("it does not lead")
		defer func() { mayNot = nil }()
		look()
		require.Equal(t, []string{wrong}, look())
		require.Empty(t, p.take(http.StatusOK))
	})
	t.Run("not readable for a time", func(t *testing.T) {
		look, p, _ := begin(t, map[string]string{hop: `{`, group: fmt.Sprintf(groupOf, mac, former)})
		require.Empty(t, look())
		p.set(hop, counted)
		require.Equal(t, []string{wrong}, look())
	})
}

// keepRoutes runs KeepRoutes until the test ends.
func (l *lab) keepRoutes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.KeepRoutes(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// TestRoutesAgain asks for the routes of a switch twice after it has connected, and again when its connection is another one. It asks in
// our vpn-instances that have interfaces on several switches. After a refusal it does not ask more often.
func TestRoutesAgain(t *testing.T) {
	for name, status := range map[string]int{"accepted": http.StatusOK, "refused": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			l := start(t, odlfake.Oxygen, operational.Config{Poll: 20 * time.Millisecond, RoutesDelay: 20 * time.Millisecond}, nil)
			l.write(t, odltest.PodsOf("a"))
			const state = `{"vpn-instance-op-data":{"vpn-instance-op-data-entry":[
				{"vrf-id":"100:7","vpn-id":100007,"vpn-instance-name":"a","vpn-to-dpn-list":[{"dpnId":1,"vpn-interfaces":[{"interface-name":"a:pod-1"}]},{"dpnId":"2","vpn-interfaces":[{"interface-name":"a:pod-2"}]}]},
				{"vrf-id":"100:1","vpn-id":100008,"vpn-instance-name":"transit:100:1","vpn-to-dpn-list":[{"dpnId":1,"vpn-interfaces":[{"interface-name":"a:pod-3"}]},{"dpnId":3,"vpn-interfaces":[{"interface-name":"a:pod-4"}]}]},
				{"vrf-id":"9:9","vpn-id":100009,"vpn-instance-name":"of-others","vpn-to-dpn-list":[{"dpnId":1,"vpn-interfaces":[{"interface-name":"x"}]},{"dpnId":2,"vpn-interfaces":[{"interface-name":"y"}]}]}]}}`
			const nodes = `{"opendaylight-inventory:nodes":{"node":[{"id":"openflow:1","flow-node-inventory:port-number":40000},{"id":"openflow:2","flow-node-inventory:port-number":%d}]}}`
			p := &paths{status: status, answers: map[string]string{
				"/odl-l3vpn:vpn-instance-op-data":         state,
				"/opendaylight-inventory:nodes":           fmt.Sprintf(nodes, 40001),
				"/operations/fib-rpc:populate-fib-on-dpn": "",
			}}
			l.Break(p.fault)
			l.keepRoutes(t)
			var all []string
			asked := func(n int) []string {
				require.Eventually(t, func() bool { all = append(all, p.take(status)...); return len(all) >= n }, patience.Patience, time.Millisecond)
				return all
			}
			const one, two = `{"fib-rpc:input":{"dpid":1,"vpn-id":100007,"rd":"100:7"}}`, `{"fib-rpc:input":{"dpid":"2","vpn-id":100007,"rd":"100:7"}}`
			const transit = `{"fib-rpc:input":{"dpid":1,"vpn-id":100008,"rd":"100:1"}}`
			require.ElementsMatch(t, []string{one, transit, one, transit, two, two}, asked(6))
			for port := range 3 { // a third time would come before
				p.set("/opendaylight-inventory:nodes", fmt.Sprintf(nodes, 40002+port))
				require.Equal(t, []string{two, two}, asked(8 + 2*port)[6+2*port:])
			}
		})
	}
}

// TestLostRoutes asks for the routes of a switch on which Netvirt has computed no route to a pod of another switch: after two looks, and then less and
// less often. It does not ask while the pod's own switch has no route, nor when all routes are there, nor for switches that are inactive or not connected. After
// a failure it looks again.
func TestLostRoutes(t *testing.T) {
	l := start(t, odlfake.Oxygen, operational.Config{Poll: 10 * time.Millisecond, RoutesDelay: time.Hour}, nil)
	want := odltest.PodsOf("a")
	l.write(t, want)
	const state = `{"vpn-instance-op-data":{"vpn-instance-op-data-entry":[{"vrf-id":"100:1","vpn-id":100008,"vpn-instance-name":"transit:100:1","vpn-to-dpn-list":[
			{"dpnId":1,"dpn-state":"active","vpn-interfaces":[{"interface-name":"a:pod-1"}]},{"dpnId":"2","dpn-state":"active","vpn-interfaces":[{"interface-name":"a:pod-2"}]},
			{"dpnId":3,"dpn-state":"inactive"},{"dpnId":4,"dpn-state":"active","vpn-interfaces":[{"interface-name":"a:pod-4"}]}]}]}}`
	p := &paths{status: http.StatusOK, answers: map[string]string{
		"/odl-l3vpn:vpn-instance-op-data": state,
		"/opendaylight-inventory:nodes": `{"opendaylight-inventory:nodes":{"node":[
			{"id":"openflow:1","flow-node-inventory:port-number":40000},{"id":"openflow:2","flow-node-inventory:port-number":40001},{"id":"openflow:3","flow-node-inventory:port-number":40002}]}}`,
		"/operations/fib-rpc:populate-fib-on-dpn": "",
	}}
	var mu sync.Mutex
	status := map[string]int{} // of flows
	checks := 0                // of connections
	var events string          // 1 and 2 for a look at the route on that switch, and A for asking
	l.Break(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		path := r.URL.EscapedPath()
		_, flow, is := strings.Cut(path, "/flow-node-inventory:table/21/flow/")
		switch {
		case strings.HasSuffix(path, "/opendaylight-inventory:nodes"):
			checks++
		case strings.HasSuffix(path, "populate-fib-on-dpn"):
			events += "A"
		case is:
			events += flow[len("L3."):][:1]
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status[flow])
			_, _ = io.WriteString(w, map[int]string{
				http.StatusOK:       `{"flow-node-inventory:flow":[{"id":"of the test"}]}`,
				http.StatusNotFound: `{"errors":{"error":[{"error-type":"application","error-tag":"data-missing","error-message":"Request could not be completed"}]}}`,
			}[status[flow]])
			return true
		}
		return p.fault(w, r)
	})
	// answer sets the answers for the flows on the switches, and waits for events after that.
	answer := func(first, second int, pattern string) {
		t.Helper()
		mu.Lock()
		status["L3.1.21.100%3A1.42.10.0.0.4"], status["L3.2.21.100%3A1.42.10.0.0.4"], events = first, second, ""
		mu.Unlock()
		expected := regexp.MustCompile(pattern)
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return expected.MatchString(events)
		}, patience.Patience, time.Millisecond, "want %s", pattern)
	}
	l.Plug(portOf(want, "a:pod-1"))
	l.observe(t)
	l.keepRoutes(t)
	answer(http.StatusNotFound, http.StatusNotFound, "^1{5}") // its own switch has no route yet
	answer(http.StatusServiceUnavailable, http.StatusNotFound, "^1+$")
	answer(http.StatusOK, http.StatusServiceUnavailable, "121212$")
	require.Empty(t, p.take(http.StatusOK))
	answer(http.StatusOK, http.StatusNotFound, "^2?(12){2}(A12){3}A")
	sent := p.take(http.StatusOK)
	require.Equal(t, slices.Repeat([]string{`{"fib-rpc:input":{"dpid":"2","vpn-id":100008,"rd":"100:1"}}`}, len(sent)), sent)
	answer(http.StatusOK, http.StatusOK, "12$")
	mu.Lock()
	status["L3.3.21.100%3A1.42.10.0.0.4"] = http.StatusOK
	mu.Unlock()
	p.set("/odl-l3vpn:vpn-instance-op-data", strings.Replace(state, "inactive", "active", 1))
	answer(http.StatusOK, http.StatusOK, "123$")
	mu.Lock()
	events, checks = "", 0
	mu.Unlock()
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return checks >= 50 }, patience.Patience, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, events)
}
