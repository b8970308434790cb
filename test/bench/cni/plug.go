package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/install"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

const (
	// plugged is the number of pods that each side plugs in. The sides alternate after each
	// round of pods.
	plugged = 500
	round   = 50
	// memoryAt is the number of pods with which the agent's memory is measured.
	memoryAt   = 200
	memoryMost = 60
	// ratio bounds the duration of a call in relation to the reference.
	ratio = 1.3
	host  = "host1"
)

// measurePlug plugs pods in and out, alternating with the reference plugins.
func measurePlug(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := newWorld(ctx, b, host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c, err := newContest(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var memory []figures.Figure
	for begin := 0; begin < plugged; begin += round {
		if err := c.add(ctx, begin, begin+round); err != nil {
			return nil, err
		}
		if begin+round == memoryAt {
			if memory, err = w.memory(); err != nil {
				return nil, err
			}
		}
	}
	for begin := 0; begin < plugged; begin += round {
		if err := c.del(ctx, begin, begin+round); err != nil {
			return nil, err
		}
	}
	steps, err := w.steps(ctx, host)
	if err != nil {
		return nil, err
	}
	b.say("steps on average: %s", steps)
	all = append(compared("ADD less the wait for ovn-installed", c.oursAdd, c.theirsAdd), compared("DEL", c.oursDel, c.theirsDel)...)
	return append(all, memory...), nil
}

// compared returns p50 and p99, with p50 and p99 of the reference.
func compared(name string, ours, theirs []time.Duration) (all []figures.Figure) {
	slices.Sort(ours)
	slices.Sort(theirs)
	for _, p := range []int{50, 99} {
		reference := figures.Percentile(theirs, p)
		all = append(all, figures.AtMost(
			fmt.Sprintf("%s, %d pods, %d at a time, p%d; bridge + host-local: %s", name, len(ours), atOnce, p, figures.Short(reference)),
			figures.Percentile(ours, p), time.Duration(ratio*float64(reference))))
	}
	return all
}

// contest has the durations of our plugin and of the reference.
type contest struct {
	*world
	ours, theirs       plugin
	mine, others       []sandbox
	namespaces         []string
	oursAdd, theirsAdd []time.Duration
	oursDel, theirsDel []time.Duration
}

const referenceHost = prefix + "-reference"

func newContest(ctx context.Context, w *world) (*contest, error) {
	c := &contest{world: w, namespaces: []string{referenceHost}}
	c.ours = w.plugin(host)
	c.theirs = w.referencePlugin()
	for i := range plugged {
		c.mine = append(c.mine, w.sandbox("1", i))
		c.others = append(c.others, w.referenceSandbox(i))
		c.namespaces = append(c.namespaces, c.mine[i].netns, c.others[i].netns)
	}
	if err := addNamespaces(c.namespaces...); err != nil {
		return nil, errors.Join(err, c.close())
	}
	w.say("posting %d pods", plugged)
	for i := range plugged {
		if err := w.post(ctx, host, "1", i); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, w.awaitInterfaces(ctx, plugged)
}

func (c *contest) close() error { return removeNamespaces(c.namespaces...) }

// referencePlugin returns the plugin bridge with host-local.
func (w *world) referencePlugin() plugin {
	return plugin{filepath.Join(w.reference, "bridge"), fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"reference","type":"bridge","bridge":"cni0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.99.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		filepath.Join(w.dir, "host-local")), referenceHost}
}

func (w *world) referenceSandbox(n int) sandbox {
	return sandbox{netns: fmt.Sprintf("%s-r%d", prefix, n), container: fmt.Sprintf("reference%d", n)}
}

// plugin returns our plugin on a host.
func (w *world) plugin(host string) plugin {
	return plugin{filepath.Join(w.lab.Dir, host, install.PluginName), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"coe","type":"coe-cni","socket":%q}`, w.socket(host)), w.lab.Namespace(host)}
}

// sandbox returns the sandbox of the pod of a kind and number.
func (w *world) sandbox(kind string, n int) sandbox {
	name := fmt.Sprintf("%s-p%s-%d", prefix, kind, n)
	return sandbox{name, name, "IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=" + podName(kind, n) + ";K8S_POD_UID=" + uid(kind, n)}
}

func podName(kind string, n int) string { return fmt.Sprintf("pod-%s-%d", kind, n) }

// post posts a pod.
func (w *world) post(ctx context.Context, host, kind string, n int) error {
	id := uid(kind, n)
	return w.put(ctx, "pod:coe/pods/"+id, fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":%q,"network-NS":"bench","host-ip-address":%q,"interface":[{"uid":%q,"network-type":"VXLAN"}]}]}`,
		id, podName(kind, n), w.lab.Host(host).Address, id))
}

// awaitInterfaces waits until the agent knows n interfaces.
func (w *world) awaitInterfaces(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	want := fmt.Sprintf("\ncoe_agent_interfaces %d\n", n)
	for {
		page, err := w.lab.HTTPGet(ctx, host, "http://127.0.0.1:8182/metrics")
		if err == nil && strings.Contains(page, want) {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %d interfaces: %w", n, errors.Join(ctx.Err(), err))
		}
	}
}

func (c *contest) add(ctx context.Context, begin, end int) error {
	took, err := c.theirs.each(ctx, "ADD", c.others[begin:end], nil)
	if err != nil {
		return err
	}
	c.theirsAdd = append(c.theirsAdd, took...)
	if took, err = c.ours.each(ctx, "ADD", c.mine[begin:end], nil); err != nil {
		return err
	}
	for i := range took {
		added, installed, err := c.watch[host].await(ctx, uid("1", begin+i))
		if err != nil {
			return err
		}
		c.oursAdd = append(c.oursAdd, took[i]-installed.Sub(added))
	}
	c.say("plugged %d in", end)
	return nil
}

func (c *contest) del(ctx context.Context, begin, end int) error {
	took, err := c.theirs.each(ctx, "DEL", c.others[begin:end], nil)
	if err != nil {
		return err
	}
	c.theirsDel = append(c.theirsDel, took...)
	if took, err = c.ours.each(ctx, "DEL", c.mine[begin:end], nil); err != nil {
		return err
	}
	c.oursDel = append(c.oursDel, took...)
	c.say("plugged %d out", end)
	return nil
}

// memory measures the memory of the agent's process.
func (w *world) memory() ([]figures.Figure, error) {
	pid, err := w.agents[host].PID()
	if err != nil {
		return nil, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("read the agent's memory: %w", err)
	}
	kilobytes := func(name string) float64 {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		fields := strings.Fields(rest)
		n, _ := strconv.ParseFloat(fields[0], 64)
		return n * 1024 / 1e6
	}
	rss := kilobytes("VmRSS")
	return []figures.Figure{{
		Name:     fmt.Sprintf("agent's memory with %d pods (VmRSS), of which it maps %.0f MB of its program", memoryAt, kilobytes("RssFile")),
		Measured: fmt.Sprintf("%.1f MB", rss), Bound: fmt.Sprintf("under %d MB", memoryMost), Within: rss < memoryMost,
	}}, nil
}
