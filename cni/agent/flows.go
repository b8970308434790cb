package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

const (
	// flowsPoll is the interval at which the flows of the switch are read until they lead to a pod.
	flowsPoll = 100 * time.Millisecond
	// flowsWait bounds the time without a further flow to the pod. Flows came within four seconds on busy machines; some never
	// come, and a new port has them.
	flowsWait = 20 * time.Second
)

// programmed waits until the flows of the switch lead to the port of a plan. OpenDaylight reports an interface before
// its flows are on the switch (decision 76). Without the socket of the bridge the agent cannot see them, and does not wait.
func (a *Agent) programmed(ctx context.Context, p plan) error {
	port, err := a.flowPort(ctx, p)
	if err != nil {
		return err
	}
	err = awaitFlows(ctx, func() (string, error) { return lackingFlows(ctx, a.cfg.Flows, port) })
	if errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("cannot read the flows of the bridge, so the first packets of a pod may be lost; name the folder of the socket with --ovs-run-dir",
			"port", p.port.Name, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for OpenDaylight's flows to port %s of interface %s: %w", p.port.Name, p.port.Interface, err)
	}
	return nil
}

// awaitFlows waits until lacking names no missing flow. It fails when lacking has named the same flow for flowsWait, or when lacking
// fails because the socket does not exist.
func awaitFlows(ctx context.Context, lacking func() (string, error)) error {
	poll, late := time.NewTicker(flowsPoll), time.NewTimer(flowsWait)
	defer poll.Stop()
	defer late.Stop()
	before := ""
	for {
		now, err := lacking()
		if err == nil && now == "" || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && now != before {
			before = now
			late.Reset(flowsWait)
		}
		select {
		case <-poll.C:
			continue
		case <-late.C:
		case <-ctx.Done():
		}
		switch {
		case err == nil:
			err = errors.New(now)
		case before != "":
			err = fmt.Errorf("%s; then %w", before, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		return fmt.Errorf("%w (no further flow within %s: %w)", err, flowsWait, context.DeadlineExceeded)
	}
}

// flowsQuiet is how long OpenDaylight must have written no flow until it counts as ready. On busy machines it writes the flows of a new
// datastore for half a minute.
const flowsQuiet = 10 * time.Second

// Settled reports whether OpenDaylight has written no flow to the bridge with a management socket for a time. Without the socket the
// agent cannot see that, and does not wait for it.
func Settled(ctx context.Context, socket string) bool {
	c, err := openflow.Dial(ctx, socket)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer c.Close()
	age, err := c.Age(ctx)
	return err == nil && age >= flowsQuiet
}

// Programmed returns the stages of the ports that OpenDaylight knows on the bridge with a management socket, by their OpenFlow numbers. The
// error is fs.ErrNotExist without the socket.
func Programmed(ctx context.Context, socket string, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
	c, err := openflow.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Ports(ctx, addresses)
}

// Empty reports whether a bridge with a management socket has no flows. Without the socket the agent cannot see that, and it has some.
func Empty(ctx context.Context, socket string) bool {
	c, err := openflow.Dial(ctx, socket)
	if err != nil {
		return false
	}
	defer c.Close()
	age, err := c.Age(ctx)
	return err == nil && age == math.MaxInt64
}

// KeepARP makes a bridge with a management socket keep ARP packets from OpenDaylight. Without the socket the agent cannot do that.
func KeepARP(ctx context.Context, socket string) error {
	c, err := openflow.Dial(ctx, socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return c.KeepARP(ctx)
}

// flowPort returns the port of a plan as the flows see it.
func (a *Agent) flowPort(ctx context.Context, p plan) (openflow.Port, error) {
	number, err := a.cfg.Switch.Number(ctx, p.port.Name)
	if err != nil {
		return openflow.Port{}, err
	}
	port := openflow.Port{Number: number, MAC: p.pair.MAC, Addresses: p.port.Addresses}
	for _, n := range p.pair.Neighbours {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			return openflow.Port{}, fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
		port.Neighbours = append(port.Neighbours, mac)
	}
	return port, nil
}

// seesFlows reports whether an ADD sees the flows to its port.
func (a *Agent) seesFlows(ctx context.Context) bool {
	if a.cfg.Flows == "" {
		return false
	}
	c, err := openflow.Dial(ctx, a.cfg.Flows)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func lackingFlows(ctx context.Context, socket string, port openflow.Port) (string, error) {
	c, err := openflow.Dial(ctx, socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Lacks(ctx, port)
}
