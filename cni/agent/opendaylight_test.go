package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The addresses at which a fake OpenDaylight accepts switches and bridges.
const (
	managerAt    = "127.0.0.1:6640"
	controllerAt = "127.0.0.1:6653"
)

// fakeOpenDaylight is OpenDaylight as far as the switch sees it: connected, but idle.
type fakeOpenDaylight struct {
	listeners []net.Listener
	running   sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	stopped bool
}

func (w *world) openDaylight(host string) *fakeOpenDaylight {
	w.t.Helper()
	f := &fakeOpenDaylight{}
	for address, serve := range map[string]func(net.Conn){managerAt: discard, controllerAt: openflow.Speak} {
		inHost(w.t, w.lab.Namespace(host), func() {
			l, err := net.Listen("tcp", address)
			require.NoError(w.t, err)
			f.listeners = append(f.listeners, l)
			f.running.Go(func() { f.accept(l, serve) })
		})
	}
	w.t.Cleanup(f.stop)
	return f
}

func (f *fakeOpenDaylight) accept(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		if f.stopped { // it was accepted just before
			_ = conn.Close()
		}
		f.mu.Unlock()
		f.running.Go(func() { serve(conn) })
	}
}

// stop stops it, and waits for its end.
func (f *fakeOpenDaylight) stop() {
	for _, l := range f.listeners {
		_ = l.Close()
	}
	f.mu.Lock()
	f.stopped = true
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

func discard(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// fakeBridge is a bridge with a single pod.
type fakeBridge struct {
	url string
	say chan bool // whether the pod's interface is confirmed
	// addresses is the part of the record with the pod's addresses, and what follows them.
	addresses atomic.Pointer[string]
}

// oneAddress is the part of a record with a pod's addresses.
const oneAddress = `"address":[{"ip":"10.42.0.2","prefix-length":24,"gateway":"10.42.0.1"}]`

func newFakeBridge(t *testing.T, addresses string) *fakeBridge {
	b := &fakeBridge{say: make(chan bool, 10)}
	b.addresses.Store(&addresses)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for n := 1; ; n++ {
			select {
			case confirmed := <-b.say:
				_, _ = fmt.Fprintf(rw, "id: %d@x\n"+`data: {"ietf-restconf:notification":{"coe-agent:interface-changed":{"operation":"put",`+
					`"pod-uid":"u1","interface-uid":"u1","namespace":"web","pod":"front","name":"web:front","parent-interface":"tap0a1b2c3d-4e",`+
					`"node":"172.31.99.11","primary":true,"confirmed":%t,"mac-address":"0a:58:0a:2a:00:02",%s}}}`+"\n\n", n, confirmed, *b.addresses.Load())
				rw.(http.Flusher).Flush()
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

// TestOpenDaylightInProcess attaches a pod to a switch that OpenDaylight programs. ADD succeeds when the
// bridge confirms the pod, and is undone after a timeout. A lost OpenDaylight is reported and
// does not affect attached pods.
func TestOpenDaylightInProcess(t *testing.T) {
	t.Parallel()
	w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
	bridge := newFakeBridge(t, oneAddress)
	a := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	p := w.sandbox("host1", "web", "front", "u1", "sandbox1")
	await(t, "the bridge has said nothing", func() error { return w.says(a, "the agent has never reached the bridge") })
	bridge.say <- false
	await(t, "nobody manages the switch", func() error { return w.says(a, "the switch has no manager") })

	odl := w.openDaylight("host1")
	w.manage(a)
	await(t, "the bridge is not programmed yet", func() error { return w.says(a, "does not program bridge br-int: it has no OpenFlow connection") })
	_, err := w.lab.Hosts[0].VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	await(t, "OpenDaylight is there", func() error { return w.notReady(a) })

	added := make(chan *types.Error, 1)
	go func() { added <- a.call(t.Context(), call.Add, p) }()
	await(t, "the port is there", func() error { return w.left("host1", a.dir).is(1) })
	require.Empty(t, added, "it waits for the bridge")
	bridge.say <- true
	require.Nil(t, <-added)
	answer := a.answer(t.Context(), call.Add, p, nil)
	require.Nil(t, answer.Error)
	require.Equal(t, 1450, answer.Result.Interfaces[1].Mtu, "the underlay's 1500 less VXLAN's")
	require.Nil(t, a.answer(t.Context(), call.Check, p, object{"prevResult": answer.Result}).Error)

	bridge.say <- false
	await(t, "CHECK fails without the port", func() error {
		if err := a.answer(t.Context(), call.Check, p, object{"prevResult": answer.Result}).Error; err == nil {
			return fmt.Errorf("CHECK is content")
		}
		return nil
	})
	odl.stop()
	await(t, "OpenDaylight is away", func() error { return w.says(a, "it has no connection to tcp:"+managerAt) })
	require.NoError(t, w.left("host1", a.dir).is(1))
	require.Nil(t, a.call(t.Context(), call.Status, p), "the node is ready: its pods run")

	require.Nil(t, a.call(t.Context(), call.Del, p))
	require.NoError(t, w.left("host1", a.dir).is(0))
	failed := w.addFails(a, p, "it has no connection to tcp:"+managerAt)
	require.Contains(t, failed.Msg, "web/front")
	require.NoError(t, w.left("host1", a.dir).is(0))
	p.nothingIn()

	w.openDaylight("host1")
	await(t, "OpenDaylight is there again", func() error { return w.notReady(a) })
	_ = w.addFails(a, p, "wait for the network to program interface web:front of port tap0a1b2c3d-4e")
	require.NoError(t, w.left("host1", a.dir).is(0))

	bridge.say <- true // of the former port
	_, err = a.uplink.Await(t.Context(), func(r *uplink.Record) bool { return r.Confirmed })
	require.NoError(t, err)
	_ = w.addFails(a, p, "wait for the network to remove interface web:front")
	bridge.follow(w)
	require.Greater(t, w.failAdds(a, p), 10, "there are steps")
	require.Nil(t, a.call(t.Context(), call.Del, p))
	require.NoError(t, w.left("host1", a.dir).is(0))
}

// addFails adds a pod until the call fails with a text in its details. Each try has more time than the one before, because on a busy
// machine the agent needs long until it waits for what is missing.
func (w *world) addFails(a *inProcess, p *sandbox, text string) (failed *types.Error) {
	w.t.Helper()
	deadline := time.Second
	await(w.t, "ADD fails: "+text, func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), deadline)
		defer cancel()
		deadline *= 2
		failed = a.call(ctx, call.Add, p)
		require.NotNil(w.t, failed)
		require.EqualValues(w.t, types.ErrTryAgainLater, failed.Code, "%v", failed)
		if !strings.Contains(failed.Details, text) {
			return failed
		}
		return nil
	})
	return failed
}

// follow confirms the pod while the switch has its port, until the test ends.
func (b *fakeBridge) follow(w *world) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = ovnhost.Poll(ctx, func(ctx context.Context) error {
			out, err := w.lab.Hosts[0].VSCtl(ctx, "--columns=name", "find", "Interface", "name=tap0a1b2c3d-4e")
			if err == nil {
				b.say <- out != ""
			}
			return errors.New("go on")
		})
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// manage keeps the agent's switch managed until the test ends.
func (w *world) manage(a *inProcess) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	m := ovs.Management{Managers: []string{"tcp:" + managerAt}, Tunnels: w.lab.Host(a.host).Address}
	running.Go(func() { a.vswitch.KeepManaged(ctx, m, a.uplink.Network) })
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// notReady returns why an agent is not ready, or nil.
func (w *world) notReady(a *inProcess) error {
	answer := httptest.NewRecorder()
	a.HTTP(prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if answer.Code == http.StatusOK {
		return nil
	}
	return fmt.Errorf("%d: %s", answer.Code, answer.Body)
}

// says fails unless the agent is not ready for a reason with this text.
func (w *world) says(a *inProcess, why string) error {
	if err := w.notReady(a); err == nil || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("it should say %q: %w", why, err)
	}
	return nil
}
