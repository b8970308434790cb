package odl_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
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

// TestGroupOfFormerPort corrects the group that Netvirt has kept from a former port. It leaves a right one alone.
func TestGroupOfFormerPort(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := podsOf("a")
	write(t, b, want)
	address, mac := "10.0.0.4", "0a:58:00:00:00:02"
	const group = "/opendaylight-inventory:nodes/node/openflow%3A1/flow-node-inventory:group/150002"
	p := &paths{status: http.StatusInternalServerError, answers: map[string]string{
		"/vpnNexthop/" + address + "%2F32": fmt.Sprintf(`{"vpnNexthop":[{"IpAddress":"%s/32","egressPointer":150002,"dpnId":1,"flowrefCount":1}]}`, address),
		group:                              fmt.Sprintf(groupOf, mac, 9<<8),
	}}
	f.Break(p.fault)
	f.Plug(portOf(want, "a:pod-1"))
	observe(t, b)
	require.Len(t, p.take(http.StatusOK), 1)
	require.Contains(t, fmt.Sprint(lacks(b, want)), "group 150002 leads packets for "+address+" to a former port, and cannot be corrected")
	observe(t, b)
	sent := p.take(http.StatusOK)
	require.Len(t, sent, 1)
	require.Contains(t, sent[0], fmt.Sprintf(`"value":%d`, 2<<8), "if-index 2")
	require.Contains(t, sent[0], mac)
	require.Empty(t, lacks(b, want))
	observe(t, b)
	require.Empty(t, p.take(http.StatusOK), "it is corrected once")

	p.set(group, fmt.Sprintf(groupOf, strings.ToUpper(mac), 2<<8))
	f.Unplug()
	observe(t, b, "a:pod-1")
	f.Plug(portOf(want, "a:pod-1"))
	observe(t, b, "a:pod-1")
	require.Empty(t, lacks(b, want))
	require.Empty(t, p.take(http.StatusOK), "the group is right")
}

// TestRoutesAgain asks for the routes of a switch twice after it has connected, and again when its connection is another one.
func TestRoutesAgain(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Neon)} {
		t.Run(release.Name, func(t *testing.T) {
			f := newFake(t, release)
			cfg := f.config(t)
			cfg.Routes = 20 * time.Millisecond
			b := open(t, cfg)
			write(t, b, podsOf("a"))
			const state = `{"odl-l3vpn:vpn-instance-op-data":{"vpn-instance-op-data-entry":[
				{"vrf-id":"100:7","vpn-id":100007,"vpn-instance-name":"a","vpn-to-dpn-list":[{"dpnId":1,"vpn-interfaces":[{"interface-name":"a:pod-1"}]},{"dpnId":"2","vpn-interfaces":[{"interface-name":"a:pod-2"}]}]},
				{"vrf-id":"100:8","vpn-id":100008,"vpn-instance-name":"alone","vpn-to-dpn-list":[{"dpnId":1}]},
				{"vrf-id":"9:9","vpn-id":100009,"vpn-instance-name":"of-others","vpn-to-dpn-list":[{"dpnId":1,"vpn-interfaces":[{"interface-name":"x"}]},{"dpnId":2,"vpn-interfaces":[{"interface-name":"y"}]}]}]}}`
			const nodes = `{"opendaylight-inventory:nodes":{"node":[{"id":"openflow:1","flow-node-inventory:port-number":40000},{"id":"openflow:2","flow-node-inventory:port-number":%d}]}}`
			p := &paths{status: http.StatusOK, answers: map[string]string{
				"/odl-l3vpn:vpn-instance-op-data":         state,
				"/opendaylight-inventory:nodes":           fmt.Sprintf(nodes, 40001),
				"/operations/fib-rpc:populate-fib-on-dpn": "",
			}}
			f.Break(p.fault)
			watch(t, b)
			var all []string
			asked := func(n int) []string {
				require.Eventually(t, func() bool { all = append(all, p.take(http.StatusOK)...); return len(all) >= n }, patience, time.Millisecond)
				return all
			}
			require.ElementsMatch(t, []string{
				`{"fib-rpc:input":{"dpid":1,"vpn-id":100007,"rd":"100:7"}}`, `{"fib-rpc:input":{"dpid":1,"vpn-id":100007,"rd":"100:7"}}`,
				`{"fib-rpc:input":{"dpid":"2","vpn-id":100007,"rd":"100:7"}}`, `{"fib-rpc:input":{"dpid":"2","vpn-id":100007,"rd":"100:7"}}`,
			}, asked(4))
			p.set("/opendaylight-inventory:nodes", fmt.Sprintf(nodes, 40002))
			require.Contains(t, asked(6)[4], `"dpid":"2"`)
			require.Contains(t, all[5], `"dpid":"2"`)
			require.Len(t, all, 6)
		})
	}
}
