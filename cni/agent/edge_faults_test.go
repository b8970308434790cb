package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// connection is an open TCP connection to who.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

// connectTo opens a connection from a namespace to a port, and asks once.
func (w *world) connectTo(from, to string, port int) *connection {
	w.t.Helper()
	conn, err := w.lab.Dial(w.t.Context(), from, "tcp", net.JoinHostPort(to, strconv.Itoa(port)))
	require.NoError(w.t, err)
	c := &connection{conn, bufio.NewReader(conn)}
	_, err = c.ask()
	require.NoError(w.t, err)
	return c
}

// ask sends a request over the connection, and returns the answer.
func (c *connection) ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(patient)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: who\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// edgeWay is a way by which a client outside reaches services through host1.
type edgeWay struct{ client, at string }

// edgeWorld is an exposeWorld in which host1 is a gateway of OVN too, with a client behind it.
type edgeWorld struct {
	*exposeWorld
	whole          *testing.T // the test of all steps
	ways           map[string]edgeWay
	cluster, local nodePorts // the endpoint of the latter is on host1
}

func newEdgeWorld(t *testing.T) *edgeWorld {
	t.Helper()
	w := newExposeWorld(t)
	north := network{"north", "10.33.75"}
	w.connect("host1", "eth1", north)
	w.mustGateway("changed", "host1", "init", "--services", "--physical-interface", "eth1",
		"--physical-ip", north.at(ofGateway)+"/24", "--default-gw", north.at(ofNextHop))
	e := &edgeWorld{
		exposeWorld: w, whole: t,
		ways:    map[string]edgeWay{"kernel": {"central", w.address("host1")}, "ovn": {north.name, north.at(ofGateway)}},
		cluster: w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1", "host2"),
		local:   w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1"),
	}
	e.leadsTo("host1", "host2")
	return e
}

// leadsTo waits until both ways lead to the pods of these hosts, and to no other pod for a while.
func (w *edgeWorld) leadsTo(hosts ...string) {
	w.t.Helper()
	const enough = 20 // a pod that is one of two is missed once in a million times
	for name, way := range w.ways {
		await(w.t, fmt.Sprintf("%s leads to the pods of %q", name, hosts), func() error {
			seen, want := map[string]bool{}, map[string]bool{}
			for _, host := range hosts {
				want["pod-"+host] = true
			}
			for range enough {
				answer, err := w.ask(way.client, way.at, w.cluster.tcp)
				if err != nil {
					return w.withoutStaleFlows(err)
				}
				var pod string
				_, _ = fmt.Sscan(answer, &pod)
				seen[pod] = true
			}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				return fmt.Errorf("answers of %v", seen)
			}
			return nil
		})
		await(w.t, name+" leads to the local endpoint", func() error {
			_, err := w.ask(way.client, way.at, w.local.tcp)
			return w.withoutStaleFlows(err)
		})
	}
}

// withoutStaleFlows removes the datapath flows of hosts that can have stale ones, after an error: a host that boots makes flows
// that drop packets, and packets keep them.
func (w *edgeWorld) withoutStaleFlows(err error) error {
	if err == nil {
		return nil
	}
	stale, known := w.lab.HasStaleFlows(w.t.Context())
	if stale {
		known = w.lab.ForgetFlows(w.t.Context())
	}
	return errors.Join(err, known)
}

// serves runs a step while clients use both ways. Open connections to the pod of host1 must go on, and no new one may fail.
func (w *edgeWorld) serves(step string, do func()) {
	w.t.Helper()
	w.step(step, func() {
		open, asked := map[string]*connection{}, map[string]func() error{}
		for name, way := range w.ways {
			open[name] = w.connectTo(way.client, way.at, w.local.tcp)
			asked[name] = w.asking(way.client, way.at, w.cluster.tcp)
		}
		do()
		for name := range w.ways {
			require.NoError(w.t, asked[name](), name)
			answer, err := open[name].ask()
			require.NoError(w.t, err, name)
			require.Contains(w.t, answer, "pod-host1 ", name)
			require.NoError(w.t, open[name].Close())
		}
	})
}

// TestEdgeFaults: clients outside reach services through a node, and through a gateway of OVN on it, while agents and the bridge
// are killed, and while the other node is drained. After a node has failed, its pods are left out as soon as they are no
// endpoints any more. A rebooted node serves again.
func TestEdgeFaults(t *testing.T) {
	w := newEdgeWorld(t)
	w.serves("agents and bridge are killed", func() {
		for _, host := range []string{"host1", "host2"} {
			require.NoError(w.t, w.agents[host].Kill())
		}
		w.bridge.Kill()
		w.leadsTo("host1", "host2")
		w.startBridge()
		for _, host := range []string{"host1", "host2"} {
			require.NoError(w.t, w.agents[host].Start(w.t.Context()))
		}
		w.leadsTo("host1", "host2")
	})
	w.serves("the other node is drained, and returns", func() {
		w.endpoints("cluster", "host1")
		w.leadsTo("host1")
		require.NoError(w.t, w.pods["host2"].del())
		w.leadsTo("host1")
		w.pods["host2"].mustAdd()
		w.endpoints("cluster", "host1", "host2")
		w.leadsTo("host1", "host2")
	})
	w.step("the other node fails, and boots", func() {
		start := w.fail("host2")
		failed := map[string]func() time.Time{}
		for name, way := range w.ways {
			failed[name] = w.lastFailure(way.client, way.at, w.cluster.tcp)
		}
		changed := time.Now()
		w.endpoints("cluster", "host1")
		w.leadsTo("host1")
		for name, last := range failed {
			t.Logf("%s: the last connection that failed began %s after the change of the endpoints", name, last().Sub(changed))
		}
		w.serves("without it", func() { w.leadsTo("host1") })
		start()
		w.endpoints("cluster", "host1", "host2")
		w.leadsTo("host1", "host2")
	})
	w.step("the asked node fails, and boots", func() {
		start := w.fail("host1")
		w.endpoints("local")
		w.endpoints("cluster", "host2")
		w.seen("central", w.address("host2"), w.cluster.tcp, "pod-host2 "+w.edge("host2"))
		start()
		w.endpoints("local", "host1")
		w.endpoints("cluster", "host1", "host2")
		w.leadsTo("host1", "host2")
	})
}

// lastFailure asks at least every answerTime, and returns once a connection has failed. stop ends the questions, and returns the start
// of the last connection that failed.
func (w *edgeWorld) lastFailure(from, to string, port int) (stop func() time.Time) {
	w.t.Helper()
	const answerTime = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(w.t.Context())
	failed, last := make(chan struct{}, 1), make(chan time.Time, 1)
	go func() {
		var at time.Time
		for ctx.Err() == nil {
			began := time.Now()
			asked, end := context.WithTimeout(ctx, answerTime)
			if _, err := w.lab.HTTPGet(asked, from, "http://"+net.JoinHostPort(to, strconv.Itoa(port))); err != nil && ctx.Err() == nil {
				at = began
				select {
				case failed <- struct{}{}:
				default:
				}
			}
			end()
		}
		last <- at
	}()
	select {
	case <-failed:
	case <-time.After(patient):
		cancel()
		require.Fail(w.t, "no connection fails, although a failed node has an endpoint")
	}
	return func() time.Time {
		cancel()
		return <-last
	}
}

// fail ends all processes of a host, and removes what a boot does not restore: rules, and namespaces of pods. The function
// that it returns boots the host, and starts its pod in a new sandbox.
func (w *edgeWorld) fail(host string) (start func()) {
	w.t.Helper()
	h, agent, was := w.lab.Host(host), w.agents[host], w.pods[host]
	for _, p := range []interface{ Kill() error }{agent, h.Controller, h.VSwitchd, h.OVSDB} {
		require.NoError(w.t, p.Kill())
	}
	was.remove()
	_, err := w.lab.Exec(w.t.Context(), host, "nft", "flush", "ruleset")
	require.NoError(w.t, err)
	return func() {
		for _, p := range []interface{ Start(context.Context) error }{h.OVSDB, h.VSwitchd, h.Controller, agent} {
			require.NoError(w.t, p.Start(w.t.Context()))
		}
		next := w.sandboxOfAll(host, was)
		next.mustAdd()
		require.Equal(w.t, was.address, next.address)
		w.who(next.inLab(), next.name)
		w.pods[host] = next
	}
}

// sandboxOfAll creates the next sandbox of a pod, which stays until the whole test ends.
func (w *edgeWorld) sandboxOfAll(host string, was *sandbox) *sandbox {
	step := w.t
	defer func() { w.t = step }()
	w.t = w.whole
	return w.sandbox(host, was.namespace, was.name, was.uid, was.container+"b")
}
