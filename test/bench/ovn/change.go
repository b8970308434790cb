package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	labkube "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

const (
	changeLive  = 4
	changeMTU   = 1400
	changeBound = 5 * time.Second
)

// changeOf returns a measurement that has some pods, 50 on each node, and four with traffic on two hosts. The bridge restarts with the other layout,
// and then again with the first one.
func changeOf(pods int) func(context.Context, *bench) ([]figures.Figure, error) {
	return func(ctx context.Context, b *bench) ([]figures.Figure, error) { return b.measureChange(ctx, pods) }
}

func (b *bench) measureChange(ctx context.Context, pods int) (all []figures.Figure, err error) {
	c, err := b.newCluster(ctx, spec{
		layout: ovn.LayoutELAN, hosts: 2, load: labkube.PodLoad{Count: pods, Namespaces: 20, Nodes: pods / 50},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	ways, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	for _, to := range []ovn.Layout{ovn.LayoutNode, ovn.LayoutELAN} {
		var took time.Duration
		gap, err := packets.Streams{Lab: c.lab, Ways: ways, MTU: changeMTU}.LongestGap(ctx, func() error {
			if err := c.stopBridge(); err != nil {
				return err
			}
			c.layout = to
			begun := time.Now()
			err := errors.Join(c.startBridge(ctx), c.sync(ctx))
			took = time.Since(begun)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("change the layout to %s: %w", to, err)
		}
		f := figures.AtMost(fmt.Sprintf("%d pods, a restart with layout %s: longest time without packets between running pods", pods, to), gap, changeBound)
		f.Measured += fmt.Sprintf(" (in the switches %s after the start)", figures.Short(took))
		all = append(all, f)
	}
	return all, nil
}

// live lets pods come to the hosts, and plugs them in. They reach each other the ways that it returns.
func (c *cluster) live(ctx context.Context) (ways []packets.Way, err error) {
	if err := c.pods.Resize(c.load.Count + changeLive); err != nil {
		return nil, err
	}
	if err := errors.Join(c.await(ctx, changeLive), c.api.AwaitAnnotations(ctx, c.load.Count+changeLive)); err != nil {
		return nil, err
	}
	var pods []ovnhost.Pod
	for i := c.load.Count; i < c.load.Count+changeLive; i++ {
		p, err := c.chosen(i)
		if err != nil {
			return nil, err
		}
		if err := c.lab.Plug(ctx, p); err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	c.load.Count += changeLive
	for i, n := range [changeLive]int{1, 3, 0, 2} { // two ways between the hosts, and one on each
		from, to := pods[i], pods[n]
		way := packets.Way{From: from.Name, To: to.Name, Address: to.Address.Addr()}
		if err := c.lab.Ping(ctx, way.From, way.Address); err != nil {
			return nil, err
		}
		ways = append(ways, way)
	}
	return ways, nil
}

// chosen returns the pod with a number, with what the bridge has chosen for it.
func (c *cluster) chosen(i int) (ovnhost.Pod, error) {
	p := c.pod(i)
	var got []report.Interface
	if err := json.Unmarshal([]byte(p.Annotations[kube.InterfacesAnnotation]), &got); err != nil || len(got) != 1 {
		return ovnhost.Pod{}, fmt.Errorf("read what pod %s/%s has got: want one interface, got %d: %w", p.Namespace, p.Name, len(got), err)
	}
	mac, err := net.ParseMAC(got[0].MAC)
	if err != nil {
		return ovnhost.Pod{}, err
	}
	name := c.portOf(i)
	return ovnhost.Pod{
		Host: p.Spec.NodeName, Name: name, UID: string(p.UID), PortName: netvirt.PortName(name, string(p.UID)),
		MAC: mac, Address: got[0].IPs[0], Gateway: got[0].Gateways[0],
	}, nil
}
