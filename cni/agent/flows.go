package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

const (
	// flowsPoll is the interval at which the flows of the switch are read until they lead to a pod.
	flowsPoll = 100 * time.Millisecond
	// flowsWait bounds that. Flows came within four seconds on busy machines; some never come, and a new port has them.
	flowsWait = 20 * time.Second
)

// programmed waits until the flows of the switch lead to the port of a plan. OpenDaylight reports an interface before
// its flows are on the switch (decision 76). Without the socket of the bridge the agent cannot see them, and does not wait.
func (a *Agent) programmed(ctx context.Context, p plan) error {
	ctx, cancel := context.WithTimeout(ctx, flowsWait)
	defer cancel()
	port, err := a.flowPort(ctx, p)
	if err != nil {
		return err
	}
	poll := time.NewTicker(flowsPoll)
	defer poll.Stop()
	for {
		lacks, err := lackingFlows(ctx, a.cfg.Flows, port)
		switch {
		case err == nil && lacks == "":
			return nil
		case errors.Is(err, fs.ErrNotExist):
			a.log.Warn("cannot read the flows of the bridge, so the first packets of a pod may be lost; name the folder of the socket with --ovs-run-dir",
				"port", p.port.Name, "err", err)
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			if err == nil {
				err = errors.New(lacks)
			}
			return fmt.Errorf("wait for OpenDaylight's flows to port %s of interface %s: %w (%w)", p.port.Name, p.port.Interface, err, ctx.Err())
		}
	}
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

func lackingFlows(ctx context.Context, socket string, port openflow.Port) (string, error) {
	c, err := openflow.Dial(ctx, socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Lacks(ctx, port)
}
