package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	arrivalBase   = 2000
	arrivalPods   = 200 // in a round
	arrivalEvery  = 50 * time.Millisecond
	arrivalRounds = 15
	arrivalHosts  = 2
	arrivalFactor = 1.3
)

// measureArrivals has 2,000 pods. 20 pods a second come to two real hosts, alternating between the bridge and a client that writes the
// same rows. The ports of the pods are in the switches before. The measured time is from the pod's event, or from the
// begin of the client's transaction, until ovn-controller has installed the flows of the port. Each host has a pod before: with
// the first one its ovn-controller receives the whole network, which takes seconds.
func measureArrivals(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	c, err := b.newCluster(ctx, spec{
		layout: ovn.LayoutNode, hosts: arrivalHosts,
		load: kube.PodLoad{Count: arrivalBase, Namespaces: 20, Nodes: 10},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	a := &arrivals{cluster: c, at: map[string]time.Time{}}
	if err := a.plug(ctx); err != nil {
		return nil, err
	}
	for _, host := range c.lab.Hosts {
		w, err := nbwatch.StartInstalled(ctx, host.OVSDB.Remote, a.note)
		if err != nil {
			return nil, err
		}
		defer w.Stop()
	}
	if err := a.firstOfHosts(ctx); err != nil {
		return nil, err
	}
	var ours, bare []time.Duration
	for n := range arrivalRounds {
		rows, took, err := a.byBridge(ctx)
		if err != nil {
			return nil, err
		}
		ours = append(ours, took...)
		if took, err = a.byClient(ctx, rows); err != nil {
			return nil, err
		}
		bare = append(bare, took...)
		if err := c.startBridge(ctx); err != nil {
			return nil, err
		}
		b.Say("pods arrive, round %d of %d is done", n+1, arrivalRounds)
	}
	slices.Sort(ours)
	slices.Sort(bare)
	const name = "20 pods/s on 2,000, layout node: pod known to ovn-installed, "
	for _, p := range []int{50, 99} {
		o, c := figures.Percentile(ours, p), figures.Percentile(bare, p)
		f := figures.Unbound(fmt.Sprintf("%sp%d", name, p), fmt.Sprintf("%.2f of a bare client's (%s, bare %s)", float64(o)/float64(c), figures.Short(o), figures.Short(c)))
		if p == 99 {
			f.Bound, f.Within = fmt.Sprintf("at most %g", arrivalFactor), float64(o) <= arrivalFactor*float64(c)
		}
		all = append(all, f)
	}
	return all, nil
}

// arrivals notes when the ports of further pods are installed.
type arrivals struct {
	*cluster

	mu sync.Mutex
	at map[string]time.Time // by port
}

func (a *arrivals) note(port string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, noted := a.at[port]; !noted {
		a.at[port] = now
	}
}

// firstOfHosts lets a pod come to each host for good.
func (a *arrivals) firstOfHosts(ctx context.Context) error {
	if err := a.pods.Resize(a.load.Count + a.hosts); err != nil {
		return err
	}
	if err := a.await(ctx, a.hosts); err != nil {
		return err
	}
	a.load.Count += a.hosts
	return errors.Join(a.awaitInstalled(ctx, a.hosts), a.sync(ctx))
}

// plug adds the ports of all further pods to the switches of their hosts.
func (a *arrivals) plug(ctx context.Context) error {
	a.bench.Say("adding %d ports to the switches", arrivalPods)
	args := map[string][]string{}
	for i := range arrivalHosts + arrivalPods {
		p, port := a.pod(a.load.Count+i), a.portOf(a.load.Count+i)
		name := netvirt.PortName(port, string(p.UID))
		args[p.Spec.NodeName] = append(args[p.Spec.NodeName], "--", "add-port", "br-int", name, "--", "set", "Interface", name, "type=internal",
			fmt.Sprintf("external_ids:iface-id=%q", port), fmt.Sprintf("external_ids:iface-id-ver=%q", p.UID))
	}
	for host, all := range args {
		if _, err := a.lab.Host(host).VSCtl(ctx, all...); err != nil {
			return err
		}
	}
	return nil
}

// byBridge lets the pods come, and deletes them. It returns the rows that the bridge has written.
func (a *arrivals) byBridge(ctx context.Context) (*bareRows, []time.Duration, error) {
	took, err := a.round(ctx, arrivalPods, arrivalEvery, func(_ context.Context, i int) error { return a.pods.Resize(a.load.Count + i + 1) })
	if err != nil {
		return nil, nil, err
	}
	rows, err := a.further(ctx, arrivalPods)
	if err != nil {
		return nil, nil, err
	}
	return rows, took, errors.Join(a.deleteFurther(ctx), a.awaitReleased(ctx))
}

// byClient writes the same rows while no bridge runs, and deletes them.
func (a *arrivals) byClient(ctx context.Context, rows *bareRows) ([]time.Duration, error) {
	if err := a.stopBridge(); err != nil {
		return nil, err
	}
	took, err := a.round(ctx, arrivalPods, arrivalEvery, rows.insert)
	if err != nil {
		return nil, err
	}
	return took, errors.Join(rows.delete(ctx), a.sync(ctx), a.awaitReleased(ctx))
}

// round makes pods come at a steady pace, and returns the time that each took until it was noted.
func (a *arrivals) round(ctx context.Context, pods int, every time.Duration, come func(context.Context, int) error) (took []time.Duration, err error) {
	a.mu.Lock()
	clear(a.at)
	a.mu.Unlock()
	known := map[string]time.Time{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range pods {
		known[a.portOf(a.load.Count+i)] = time.Now()
		if err := come(ctx, i); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	if err := a.awaitInstalled(ctx, pods); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for port, at := range a.at {
		if since, is := known[port]; is { // other ports can change, too
			took = append(took, at.Sub(since))
		}
	}
	return took, nil
}

// awaitInstalled waits until a number of ports are noted.
func (a *arrivals) awaitInstalled(ctx context.Context, ports int) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return ovnhost.Poll(ctx, func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.at) < ports {
			return fmt.Errorf("%d of %d ports are noted", len(a.at), ports)
		}
		return nil
	})
}

// awaitReleased waits until ovn-controller has removed the flows of the pods of a round.
func (a *arrivals) awaitReleased(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return ovnhost.Poll(ctx, func(ctx context.Context) error {
		for _, host := range a.lab.Hosts {
			out, err := host.VSCtl(ctx, "--bare", "--columns=name", "find", "Interface", "external_ids:ovn-installed=true")
			if err == nil && len(strings.Fields(out)) > 1 { // its first pod
				err = fmt.Errorf("ports of deleted pods are installed on %s", host.Name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
