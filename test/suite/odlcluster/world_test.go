package odlcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	// callDeadline is the deadline of the agents' calls, their default.
	callDeadline = 30 * time.Second
	// afterFault is the time within which a new pod must be plugged in after the last fault, on a machine at a quarter of its speed.
	afterFault = 4 * time.Minute
	// longestGap is the longest time for which pods that run may lose packets while members come and go.
	longestGap = 10 * time.Second
	// gapWithoutData is longestGap when the cluster has lost its datastore, and the switches forget their flows.
	gapWithoutData = 2 * time.Minute
	// firstWire is the port of the wire in front of the first member.
	firstWire = 8191
	// awayFor is the time for which a member is frozen or separated.
	awayFor = time.Minute
)

// world is a cluster with a bridge, two hosts, and the pods that are plugged in.
type world struct {
	t       *testing.T
	lab     *odlpods.Lab
	members []*odl.Controller
	wires   map[*odl.Controller]*wire.Wire // between the bridge and each member
	counted time.Time                      // until when the writes of the bridge are counted
	away    *odl.Controller                // the member that is out of the cluster; nil if none is
	pods    []odlpods.Plugged
	names   []string // of all pods
	script  *odlpods.Script
	scripts []odlpods.ScriptPort // that are plugged in
}

// newWorld starts a cluster and a bridge that reaches each member by a wire.
func newWorld(t *testing.T) *world {
	odl.SkipUnlessAsked(t)
	bin := odlpods.Programs(t)
	begun := time.Now()
	w := &world{t: t, members: odl.Members(t, odl.Oxygen, "host1", "host2"), wires: map[*odl.Controller]*wire.Wire{}, counted: begun}
	t.Logf("three members are ready after %s", time.Since(begun).Round(time.Second))
	urls := map[*odl.Controller]string{}
	for i, c := range w.members {
		port := uint16(firstWire + i)
		urls[c] = fmt.Sprintf("http://%s:%d", ovnhost.Central, port)
		w.wires[c] = wire.New(c.Inside, &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return c.Lab.Dial(ctx, ovnhost.CentralNamespace, network, address)
			},
		})
		t.Cleanup(w.wires[c].Close)
		require.NoError(t, c.Lab.Serve(ovnhost.CentralNamespace, port, w.wires[c]))
	}
	var err error
	w.lab, err = odlpods.Start(t.Context(), odlpods.Config{
		Controller: w.members[0], Others: w.members[1:], Bin: bin, CallDeadline: callDeadline,
		Reach: func(c *odl.Controller) string { return urls[c] },
	})
	require.NoError(t, err)
	return w
}

// step runs a part of the test.
func (w *world) step(name string, do func()) {
	w.t.Helper()
	whole := w.t
	defer func() { w.t = whole }()
	if !whole.Run(name, func(t *testing.T) { w.t = t; do() }) {
		whole.FailNow()
	}
}

func (w *world) newPod(namespace, host string) odlpods.Pod {
	n := len(w.names) + 1
	p := odlpods.Pod{Namespace: namespace, Name: "pod" + strconv.Itoa(n), Host: host, UID: fmt.Sprintf("c1000000-c0e0-4000-8000-%012d", n)}
	w.names = append(w.names, p.String())
	return p
}

func (w *world) await(what string, f func(context.Context) error) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), f), what)
}

// plug creates a pod, and plugs it in. A call that fails at its deadline is repeated, as runtimes do. A pod that is not plugged in afterFault is
// deleted.
func (w *world) plug(p odlpods.Pod) (odlpods.Plugged, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), afterFault)
	defer cancel()
	require.NoError(w.t, w.lab.ApplyPods(ctx, p))
	plugged, err := w.lab.Retry(ctx, p, func(err error) { w.t.Log(err) })
	if err != nil {
		w.unplug(odlpods.Plugged{Pod: p})
		return plugged, err
	}
	w.pods = append(w.pods, plugged)
	return plugged, nil
}

// unplugLast unplugs and deletes the pod that was plugged in last.
func (w *world) unplugLast() {
	w.t.Helper()
	last := len(w.pods) - 1
	w.unplug(w.pods[last])
	w.pods = w.pods[:last]
}

func (w *world) unplug(p odlpods.Plugged) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p.Pod))
}

// requireAll requires that all pods reach all, and that the bridge is in sync.
func (w *world) requireAll() {
	w.t.Helper()
	for _, from := range w.pods {
		for _, to := range w.pods {
			w.requireReached(w.lab.Reach(w.t.Context(), from.Pod, to.Address))
		}
	}
	w.await("the bridge is in sync", func(ctx context.Context) error {
		said, err := w.lab.Ask(ctx, "status")
		if err == nil && !strings.Contains(said, "odl: in sync") {
			err = errors.New(said)
		}
		return err
	})
	w.await("nothing is doubled", w.hasOnly)
}

// requireReached prints what shows the cause if err is that a pod does not reach another one, and fails then.
func (w *world) requireReached(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Log(w.lab.Evidence(w.t.Context()))
	}
	require.NoError(w.t, err)
}

// requireWhole requires that each switch is connected to all members, and what requireAll does.
func (w *world) requireWhole() {
	w.t.Helper()
	w.awaitConnections(len(w.members))
	w.requireAll()
}

// requireNewPod plugs a pod in, which reaches another one.
func (w *world) requireNewPod() {
	w.t.Helper()
	require.NoError(w.t, w.tryNewPod())
}

// tryNewPod plugs a pod in, which must reach another one then, and logs how long this takes.
func (w *world) tryNewPod() error {
	w.t.Helper()
	begun := time.Now()
	p, err := w.plug(w.newPod("shop", "host2"))
	if err != nil {
		return err
	}
	added := time.Since(begun)
	w.requireReached(w.lab.Answered(w.t.Context(), p.String(), w.pods[1].Address))
	w.t.Logf("a new pod has its network after %.1f s, and is answered after %.1f s", added.Seconds(), time.Since(begun).Seconds())
	return nil
}

// resident matches the resident memory of a process.
var resident = regexp.MustCompile(`(?m)^VmRSS.*$`)

// flow sends pings from the first pod to the second, which is on the other host, while do runs. It logs what was lost, and requires that
// an answer comes at least once in a time.
func (w *world) flow(most time.Duration, do func()) {
	w.t.Helper()
	pings, err := w.lab.StartPings(w.t.Context(), "flow"+strconv.Itoa(len(w.names)), w.pods[0].Pod, w.pods[1].Address)
	require.NoError(w.t, err)
	do()
	got, err := pings.End()
	require.NoError(w.t, err)
	w.t.Logf("running pods: %d of %d packets lost, and none answered for %.1f s at most", got.Lost, got.Sent, got.Gap.Seconds())
	require.Less(w.t, got.Gap, most)
}

func (w *world) leader() *odl.Controller {
	w.t.Helper()
	leader, err := odl.Leader(w.members, odl.ConfigShard)
	require.NoError(w.t, err)
	return leader
}

// neither returns a member that is none of two.
func (w *world) neither(one, two *odl.Controller) *odl.Controller {
	return w.members[slices.IndexFunc(w.members, func(c *odl.Controller) bool { return c != one && c != two })]
}

// useFollower makes the bridge use a follower, and returns that: the wires of the other members are cut until it does.
func (w *world) useFollower() *odl.Controller {
	w.t.Helper()
	leader := w.leader()
	follower := w.neither(leader, leader)
	cut := func(cut bool) {
		for c, between := range w.wires {
			if c != follower {
				between.Cut(cut)
			}
		}
	}
	cut(true)
	defer cut(false)
	before := len(w.wires[follower].Seen())
	w.await("the bridge uses a follower", func(context.Context) error {
		if len(w.wires[follower].Seen()) == before {
			return errors.New("it does not ask " + follower.Name())
		}
		return nil
	})
	w.requireAll()
	w.t.Logf("the bridge uses %s, and %s leads", follower.Name(), leader.Name())
	return follower
}

// logMemory logs the memory that each member occupies.
func (w *world) logMemory() {
	w.t.Helper()
	for _, c := range w.members {
		pid, err := c.Process().PID()
		require.NoError(w.t, err)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(w.t, err)
		w.t.Logf("%s: resident %s", c.Name(), resident.FindString(string(status)))
	}
}

// awaitConnections waits until each switch is connected to so many members, for OVSDB and OpenFlow.
func (w *world) awaitConnections(n int) {
	w.t.Helper()
	w.await("the switches are connected", func(ctx context.Context) error {
		for _, h := range w.lab.Hosts {
			for _, table := range []string{"Manager", "Controller"} {
				out, err := h.VSCtl(ctx, "--bare", "--columns=is_connected", "list", table)
				if err != nil {
					return err
				}
				if got := strings.Count(out, "true"); got != n {
					return fmt.Errorf("%s has %d connections in table %s, want %d", h.Name, got, table, n)
				}
			}
		}
		return nil
	})
}

// running returns a member that runs with the others.
func (w *world) running() *odl.Controller {
	return w.members[slices.IndexFunc(w.members, func(c *odl.Controller) bool { _, err := c.Process().PID(); return err == nil && c != w.away })]
}

// plugBesideScript plugs a pod in, beside a port whose entries a script writes.
func (w *world) plugBesideScript() {
	w.t.Helper()
	await := w.startScript()
	require.NoError(w.t, errors.Join(w.tryNewPod(), await()))
	w.unplugScripts()
}

// startScript plugs in a port whose entries a script writes, and logs after which time it is answered. The result awaits that, for afterFault at most.
func (w *world) startScript() (await func() error) {
	var (
		port odlpods.ScriptPort
		err  error
	)
	done := make(chan struct{})
	t, c, begun := w.t, w.running(), time.Now()
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(t.Context(), afterFault)
		defer cancel()
		var accepted time.Time
		if port, accepted, err = w.script.Retry(ctx, c, func(err error) { t.Log("a port of a script:", err) }); err != nil {
			return
		}
		t.Logf("a port of a script: its entries are accepted after %.1f s, and it is answered after %.1f s", accepted.Sub(begun).Seconds(), time.Since(begun).Seconds())
	}()
	return func() error {
		<-done
		w.scripts = append(w.scripts, port)
		return err
	}
}

// unplugScripts removes the ports of the script.
func (w *world) unplugScripts() {
	w.t.Helper()
	for _, port := range w.scripts {
		require.NoError(w.t, w.script.Unplug(w.t.Context(), w.running(), port))
	}
	w.scripts = nil
}

// hasOnly fails unless the config datastore has the interfaces of all pods that are plugged in, and of no other pods, and no tunnel is its
// own parent.
func (w *world) hasOnly(ctx context.Context) error {
	var want []string
	for _, p := range w.pods {
		want = append(want, p.String())
	}
	slices.Sort(want)
	for _, list := range []struct{ path, list, key string }{
		{"ietf-interfaces:interfaces", "interface", "name"},
		{"elan:elan-interfaces", "elan-interface", "name"},
		{"l3vpn:vpn-interfaces", "vpn-interface", "name"},
	} {
		status, answer, err := w.running().Request(ctx, http.MethodGet, "/restconf/config/"+list.path, "")
		if err != nil {
			return err
		}
		var all map[string]map[string][]map[string]any
		if status != http.StatusNotFound && json.Unmarshal(answer, &all) != nil {
			return fmt.Errorf("%d: %s", status, answer)
		}
		var got []string
		for _, container := range all {
			for _, e := range container[list.list] {
				name, _ := e[list.key].(string)
				if parent, _ := e["odl-interface:parent-interface"].(string); parent == name {
					return fmt.Errorf("%s is its own parent (decision 108)", name)
				}
				if strings.HasPrefix(name, "web:") || strings.HasPrefix(name, "shop:") {
					got = append(got, name)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s has %v, want %v", list.path, got, want)
		}
	}
	return nil
}
