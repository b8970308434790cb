package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/node"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// inProcess is the agent of a host in the test's process. It fails where the test wants it to,
// and sweeps only on request.
type inProcess struct {
	*agent.Agent
	vswitch  *ovs.Switch
	uplink   *uplink.Uplink
	services *services

	w     *world
	host  string
	dir   string
	steps *stepLog
}

func (w *world) inProcess(host, bridge string, controller ovs.Controller) *inProcess {
	t := w.t
	steps := &stepLog{Handler: slog.DiscardHandler}
	log := slog.New(steps)
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	require.NoError(t, writeFile(password, bridgetest.Password))
	up, err := uplink.New(uplink.Config{
		URLs: []string{bridge}, Node: w.lab.Host(host).Address, User: bridgetest.User, PasswordFile: password,
		OpenDaylight: controller == ovs.OpenDaylight, Dir: dir, Log: log,
	})
	require.NoError(t, err)
	sw, err := ovs.New(ovs.Config{Endpoint: w.lab.Host(host).OVSDB.Remote, Controller: controller, Log: log})
	require.NoError(t, err)
	node, led := w.node(host), &services{}
	a, err := agent.New(agent.Config{
		Switch: sw, Uplink: up, Node: node, Dir: dir, Confirmed: controller == ovs.OpenDaylight, Flows: w.flows, Deadline: cmp.Or(w.deadline, 20*time.Second), Log: log,
		Services: led, Registry: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { sw.Run(ctx) })
	running.Go(func() { up.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		require.NoError(t, node.Close())
	})
	return &inProcess{Agent: a, vswitch: sw, uplink: up, services: led, w: w, host: host, dir: dir, steps: steps}
}

// services leads pods to services if the node's own part runs.
type services struct{ by atomic.Pointer[node.Node] }

func (s *services) LeadPod(ctx context.Context, netns string) {
	if n := s.by.Load(); n != nil {
		n.Services().LeadPod(ctx, netns)
	}
}

func (a *inProcess) call(ctx context.Context, command string, s *sandbox) *types.Error {
	return a.answer(ctx, command, s, nil).Error
}

func (a *inProcess) answer(ctx context.Context, command string, s *sandbox, more object) call.Answer {
	keys := object{"cniVersion": "1.1.0", "name": "coe", "type": "coe-cni"}
	maps.Copy(keys, more)
	conf, err := json.Marshal(keys)
	require.NoError(a.w.t, err)
	return a.Answer(ctx, call.Request{
		Command: command, ContainerID: s.container, Netns: s.path(), IfName: "eth0", Args: s.args(), Config: conf,
	})
}

// stepLog is a log that calls a function, as a rule the end of a call, at the n-th start or end of a step.
type stepLog struct {
	slog.Handler
	mu   sync.Mutex
	left int
	do   func()
}

func (l *stepLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *stepLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "step ") {
		l.next()()
	}
	return nil
}

// next counts a moment, and returns what to do in it.
func (l *stepLog) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	if l.left != -1 || l.do == nil {
		return func() {}
	}
	return l.do
}

// after makes the log call do after a number of starts and ends of steps.
func (l *stepLog) after(moments int, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.do = moments, do
}

// failAfter returns a context that ends after a number of starts and ends of steps.
func (l *stepLog) failAfter(ctx context.Context, moments int) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	l.after(moments, cancel)
	return ctx
}
