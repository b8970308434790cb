package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/node"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// orderedBridge is a bridge whose replica sends a node all records at each connection, and again when they change.
type orderedBridge struct {
	url  string
	mu   sync.Mutex
	now  string
	more chan struct{} // closed and replaced at a change

	unconfirmed bool // of the records that serve sends
}

func newOrderedBridge(t *testing.T) *orderedBridge {
	b := &orderedBridge{more: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for {
			b.mu.Lock()
			now, more := b.now, b.more
			b.mu.Unlock()
			_, _ = io.WriteString(rw, now)
			rw.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	}))
	b.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return b
}

// serve changes the records: the node's place, and the endpoint of a service on it; empty if the network leads to services.
func (b *orderedBridge) serve(id int, place, endpoint string) {
	notifications := []string{
		`"coe-agent:snapshot-begin":{}`,
		`"coe-agent:interface-changed":{"operation":"put","pod-uid":"u1","interface-uid":"u1","namespace":"web","pod":"front","name":"web:front",` +
			`"parent-interface":"tap0a1b2c3d-4e","node":"172.31.99.11","primary":true,"confirmed":` + strconv.FormatBool(!b.unconfirmed) + `,"mac-address":"0a:58:0a:2a:00:02",` + oneAddress + `}`,
		`"coe-agent:node-changed":` + place,
	}
	if endpoint != "" {
		notifications = append(notifications, `"coe-agent:exposed-address-changed":{"operation":"put","external-address":"10.96.0.10","protocol":"tcp",`+
			`"port":80,"cluster-address":"10.96.0.10","service-port":80,"endpoint":[{"ip":"`+endpoint+`","port":8080}]}`)
	}
	text := ""
	for _, n := range notifications {
		text += `data: {"ietf-restconf:notification":{` + n + "}}\n\n"
	}
	text += fmt.Sprintf("id: %d@x\n", id) + `data: {"ietf-restconf:notification":{"coe-agent:snapshot-complete":{}}}` + "\n\n"
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = text
	close(b.more)
	b.more = make(chan struct{})
}

// The places of a node with a bridge that serves OpenDaylight or OVN first, without and with isolated namespaces.
const (
	ledByNode = `{"operation":"put","node":"172.31.99.11","name":"node:172.31.99.11:management","mac-address":"0a:58:64:60:00:02",` +
		`"address":"100.96.0.2","prefix-length":16,"gateway":"100.96.0.1","service-address":"100.96.0.3","edge-address":"100.96.255.254",` +
		`"way-out":{"name":"node:172.31.99.11:port","mac-address":"0a:58:ac:1f:63:0b"},"services-by":"node",` +
		`"pod-network":["10.42.0.0/16"],"service-network":["10.96.0.0/12"]}`
	ledByNetwork = `{"operation":"put","node":"172.31.99.11","name":"node:172.31.99.11:management","mac-address":"0a:58:64:60:00:02",` +
		`"address":"100.96.0.2","prefix-length":16,"gateway":"100.96.0.1","service-address":"100.96.0.3","edge-address":"100.96.255.254",` +
		`"services-by":"network","pod-network":["10.42.0.0/16"],"service-network":["10.96.0.0/12"]}`
	isolatedByNode = `{"operation":"put","node":"172.31.99.11","isolated":true,"name":"node:172.31.99.11:port","mac-address":"0a:58:ac:1f:63:0b",` +
		`"address":"172.31.99.11","gateway":"100.96.0.1","edge-address":"100.96.0.6",` +
		`"way-out":{"name":"node:172.31.99.11:port","mac-address":"0a:58:ac:1f:63:0b"},"services-by":"node",` +
		`"pod-network":["10.42.0.0/16"],"service-network":["10.96.0.0/12"]}`
	isolatedByNetwork = `{"operation":"put","node":"172.31.99.11","isolated":true,"name":"node:172.31.99.11:port","mac-address":"0a:58:ac:1f:63:0b",` +
		`"address":"172.31.99.11","services-by":"network","pod-network":["10.42.0.0/16"]}`
)

// TestOrderOfBackendsInProcess: a node with OpenDaylight keeps its links, rules, routes and endpoints while the bridge serves OVN first, and
// says why it does not follow it. When OpenDaylight comes first again, it goes on.
func TestOrderOfBackendsInProcess(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]struct{ right, wrong, link string }{
		"joined": {ledByNode, ledByNetwork, "coe0"}, "isolated": {isolatedByNode, isolatedByNetwork, "coe-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, bridge, a := managedHost(t, places.wrong, "")
			a.joins(nil)
			await(t, "a node that has nothing says why", func() error { return w.says(a, uplink.ErrServesOVN.Error()) })
			require.NotContains(t, w.onHost1("ip -o link"), places.link)

			bridge.serve(2, places.right, "10.42.0.7")
			await(t, "the node is connected", func() error { return w.connected(places.link, "10.42.0.7") })
			joined := w.connection()
			bridge.serve(3, places.wrong, "")
			await(t, "it says why", func() error { return w.says(a, uplink.ErrServesOVN.Error()) })
			require.Equal(t, joined, w.connection())
			links := w.onHost1("ip -o -4 addr")
			w.onHost1("nft delete table inet coe-bridge")
			await(t, "it repairs what it has", func() error { return w.connected(places.link, "10.42.0.7") })
			require.Equal(t, links, w.onHost1("ip -o -4 addr"))

			bridge.serve(4, places.right, "10.42.0.8")
			await(t, "it goes on", func() error { return w.connected(places.link, "10.42.0.8") })
			require.ErrorContains(t, w.connected(places.link, "10.42.0.7"), "10.42.0.7")
			require.True(t, a.uplink.Status().Connected)
		})
	}
}

// TestPodsAreLedInProcess: ADD ends when a pod is led to services in its network namespace. The pod follows them, also when the agent starts
// again, and is led no more by an agent for OVN.
func TestPodsAreLedInProcess(t *testing.T) {
	t.Parallel()
	w, bridge, a := managedHost(t, ledByNode, "10.42.0.7")
	stop := a.joinsAs(node.Config{OpenDaylight: true})
	await(t, "the node is connected", func() error { return w.connected("coe0", "10.42.0.7") })
	_, err := w.lab.Hosts[0].VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	await(t, "OpenDaylight is there", func() error { return w.notReady(a) })
	p, added := w.sandbox("host1", "web", "front", "u1", "sandbox1"), make(chan *types.Error, 1)
	bridge.unconfirmed = true
	bridge.serve(2, ledByNode, "10.42.0.7")
	go func() { added <- a.call(t.Context(), call.Add, p) }()
	await(t, "the switch has the port", func() error {
		_, err := w.lab.Hosts[0].VSCtl(t.Context(), "get", "Interface", "tap0a1b2c3d-4e", "name")
		return err
	})
	bridge.unconfirmed = false
	bridge.serve(3, ledByNode, "10.42.0.7")
	require.Nil(t, <-added)
	require.NoError(t, p.isLed("10.42.0.7"))
	bridge.serve(4, ledByNode, "10.42.0.8")
	await(t, "the pod follows", func() error { return p.isLed("10.42.0.8") })
	stop()
	require.NoError(t, p.isLed("10.42.0.8"))
	bridge.serve(5, ledByNode, "10.42.0.9")
	stop = a.joinsAs(node.Config{OpenDaylight: true})
	await(t, "the pod follows", func() error { return p.isLed("10.42.0.9") })
	bridge.serve(6, ledByNode, "")
	await(t, "no service is left", func() error { return p.isLed("") })
	bridge.serve(7, ledByNode, "10.42.0.9")
	await(t, "the pod follows", func() error { return p.isLed("10.42.0.9") })
	stop()

	t.Cleanup(a.joinsAs(node.Config{}))
	await(t, "OVN leads the pod", func() error {
		if rules := p.rules(); rules != "" {
			return errors.New(rules)
		}
		return nil
	})
	require.Nil(t, a.call(t.Context(), call.Del, p))
}

// isLed fails unless the network namespace of a pod leads to an endpoint of a service; empty: to none.
func (s *sandbox) isLed(endpoint string) error {
	s.w.t.Helper()
	if rules := s.rules(); endpoint == "" && strings.Contains(rules, "10.42.0.") || !strings.Contains(rules, endpoint) {
		return fmt.Errorf("its rules do not lead to %q: %s", endpoint, rules)
	}
	return nil
}

// rules returns the rules of nftables in the network namespace of a pod.
func (s *sandbox) rules() string {
	s.w.t.Helper()
	out, err := exec.CommandContext(s.w.t.Context(), "ip", "netns", "exec", s.netns(), "nft", "list", "ruleset").CombinedOutput()
	require.NoError(s.w.t, err, "%s", out)
	return string(out)
}

// managedHost returns a host whose switch OpenDaylight manages, with an agent that follows a bridge, which serves a place and an endpoint.
func managedHost(t *testing.T, place, endpoint string) (*world, *orderedBridge, *inProcess) {
	w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
	bridge := newOrderedBridge(t)
	bridge.serve(1, place, endpoint)
	a := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	w.openDaylight("host1")
	w.manage(a)
	return w, bridge, a
}

// joins runs the node's own part of an agent for OpenDaylight until the test ends. programmed returns the ports that OpenDaylight
// knows, as node.Config says; nil: all are programmed.
func (a *inProcess) joins(programmed func(context.Context, openflow.Addresses) (map[uint32]openflow.Stage, error)) {
	a.w.t.Cleanup(a.joinsAs(node.Config{OpenDaylight: true, Programmed: programmed}))
}

// joinsAs runs the node's own part of an agent until stop.
func (a *inProcess) joinsAs(cfg node.Config) (stop func()) {
	netns := a.w.node(a.host)
	cfg.Switch, cfg.Uplink, cfg.Netns, cfg.Log, cfg.Registry = a.vswitch, a.uplink, netns, slog.New(a.steps), prometheus.NewRegistry()
	cfg.MTU = func(ctx context.Context) (int, error) { return agent.MTU(ctx, a.vswitch, netns) }
	own := node.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { own.Run(ctx) })
	a.services.by.Store(own)
	return func() {
		a.services.by.Store(nil)
		cancel()
		running.Wait()
		require.NoError(a.w.t, netns.Close())
	}
}

// connection returns the addresses, routes and rules of host1, with kernel numbers that identify new links and rules. The table of ports of
// services is not among them: it says for how long endpoints are current.
func (w *world) connection() (all string) {
	w.t.Helper()
	for _, argv := range []string{"ip -4 -o addr", "ip rule", "ip route show table all proto 206"} {
		all += w.onHost1(argv)
	}
	for line := range strings.Lines(w.onHost1("nft list tables")) {
		if name := strings.TrimSpace(strings.TrimPrefix(line, "table ")); !strings.HasSuffix(name, nodeports.TableName) {
			all += w.onHost1("nft -a -s list table " + name)
		}
	}
	return all
}

func (w *world) onHost1(argv string) string {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), "host1", strings.Fields(argv)...)
	require.NoError(w.t, err)
	return out
}

// connected fails unless host1 has the links of a node with OpenDaylight, and leads to an endpoint.
func (w *world) connected(link, endpoint string) error {
	is := w.onHost1("ip -o link") + w.connection() + w.onHost1("nft list ruleset")
	for _, has := range []string{": " + link, "table inet coe-bridge {", "10.42.0.", endpoint} {
		if !strings.Contains(is, has) {
			return fmt.Errorf("there is no %q in %s", has, is)
		}
	}
	return nil
}
