package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// clusterShare bounds the rate by a cluster address in relation to kube-proxy's.
const clusterShare = 0.8

// onOpenDaylight is onCluster for nodes that OpenDaylight programs.
func onOpenDaylight(measure func(context.Context, *cluster) ([]figures.Figure, error)) func(context.Context, *cluster) ([]figures.Figure, error) {
	return func(ctx context.Context, c *cluster) ([]figures.Figure, error) {
		if c.lab != nil {
			return nil, errors.New("the cluster is on OVN: make this measurement alone")
		}
		c.release = odl.Oxygen
		return onCluster(measure)(ctx, c)
	}
}

// measureClusterIP sends requests from a pod to a cluster address, each over a new connection. The agent of the pod's node leads them to
// endpoints on both nodes. While kube-proxy is measured, the agent stands still and its rules are gone.
func measureClusterIP(ctx context.Context, c *cluster) (all []figures.Figure, err error) {
	service := newService("clusterip", "", 0)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	if err := c.expose(ctx, service, c.newSlice(service.Name, "a1", "b1")); err != nil {
		return nil, err
	}
	if service, err = c.lab.Client().CoreV1().Services(namespace).Get(ctx, service.Name, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		return nil, err
	}
	client, err := c.lab.Pod(ctx, namespace, "a2")
	if err != nil {
		return nil, err
	}
	c.client = &client
	at := netip.AddrPortFrom(address, uint16(service.Spec.Ports[0].Port))
	ways := []*way{{name: "coe-bridge", at: at}, {name: "kube-proxy", proxy: true, at: at}}
	for _, clients := range []int{1, 64} {
		loads := make([]load, len(ways))
		for n := range requestRounds {
			for i := range ways {
				i = (i + n) % len(ways)
				if err := c.turn(ctx, ways[i], "b1", clients, &loads[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
			}
			c.Say("%d clients, round %d of %d: %.0f/s, kube-proxy %.0f/s", clients, n+1, requestRounds, loads[0].rates[n], loads[1].rates[n])
		}
		sorted(loads)
		all = append(all, compare(fmt.Sprintf("requests by a cluster address on OpenDaylight, %d clients", clients), loads[0], loads[1], clusterShare)...)
	}
	return all, nil
}

// stopAgent stops the agent of the asked node, and removes its rules for services.
func (c *cluster) stopAgent(ctx context.Context) error {
	if err := c.signalAgent(syscall.SIGSTOP); err != nil {
		return err
	}
	_, err := c.lab.OVN.Exec(ctx, node, "nft", "delete", "table", "ip", "coe-bridge-node-ports")
	return err
}

func (c *cluster) signalAgent(signal syscall.Signal) error {
	pids, err := c.lab.Node(node).Processes("coe-bridge", "agent")
	if err == nil && len(pids) == 0 {
		err = errors.New("it does not run")
	}
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, signal))
	}
	if err != nil {
		return fmt.Errorf("signal the agent of %s: %w", node, err)
	}
	return nil
}
