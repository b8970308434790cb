package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	flapServices = 490 // a namespace has at most 500 node ports, and the other measurements have some
	flapTime     = time.Minute
	flapWorkers  = 4
	flapInterval = 10 * time.Millisecond // between two changes
	firstFlap    = 30100
)

// measureFlap changes an endpoint of one of many services a hundred times a second, for a minute. Half of the
// services have the policy Local. Agent and kube-proxy follow the same changes on the same node.
func measureFlap(ctx context.Context, c *cluster) ([]figures.Figure, error) {
	c.Say("creating %d services", flapServices)
	name := func(i int) string { return fmt.Sprintf("flap-%d", i) }
	_, err := kube.Each(ctx, flapServices, flapWorkers, func(ctx context.Context, i int) error {
		policy := corev1.ServiceExternalTrafficPolicyCluster
		if i%2 == 1 {
			policy = corev1.ServiceExternalTrafficPolicyLocal
		}
		return c.expose(ctx, newService(name(i), policy, uint16(firstFlap+i)), c.newSlice(name(i), "a1", "b1"))
	})
	if err != nil {
		return nil, err
	}
	if err := c.use(ctx, c.ways("flap", 0)[1]); err != nil {
		return nil, err
	}
	before, err := c.processorTimes(ctx)
	if err != nil {
		return nil, err
	}
	begun, count := time.Now(), 0
	for tick := time.NewTicker(flapInterval); time.Since(begun) < flapTime; count++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		round := count / flapServices
		if err := c.move(ctx, name(count%flapServices), pods[(round+1)%2].name, "b1"); err != nil {
			return nil, err
		}
	}
	after, err := c.processorTimes(ctx)
	if err != nil {
		return nil, err
	}
	agent, proxy := after[0]-before[0], after[1]-before[1]
	ratio := float64(agent) / float64(proxy)
	return []figures.Figure{{
		Name:     fmt.Sprintf("%d services with node ports, %.0f changed endpoints a second for a minute: processor time of the agent", flapServices, float64(count)/flapTime.Seconds()),
		Measured: fmt.Sprintf("%.2f of kube-proxy's (%s, kube-proxy %s)", ratio, figures.Short(agent), figures.Short(proxy)),
		Bound:    "at most 1", Within: ratio <= 1,
	}}, nil
}

// settleTime is longer than the time in which agent and kube-proxy follow a change.
const settleTime = 10 * time.Second

// settle waits until agent and kube-proxy have followed.
func settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settleTime):
		return nil
	}
}

// processorTimes returns the processor time of the agent and of kube-proxy on the asked node, once both have
// followed.
func (c *cluster) processorTimes(ctx context.Context) (times [2]time.Duration, err error) {
	if err := settle(ctx); err != nil {
		return times, err
	}
	agents, err := c.lab.Node(node).Processes("coe-bridge", "agent")
	if err != nil {
		return times, err
	}
	if len(agents) != 1 {
		return times, fmt.Errorf("node %s has %d agents", node, len(agents))
	}
	proxy, err := c.proxy.PID()
	if err != nil {
		return times, err
	}
	for i, pid := range []int{agents[0], proxy} {
		own, children, err := child.ProcessorTime(pid)
		if err != nil {
			return times, err
		}
		times[i] = own + children
	}
	return times, nil
}
