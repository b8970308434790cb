package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// thisMachine returns the machine on which the test runs. A node of the cluster is not outside, and neither is a pod.
func thisMachine(nodes []corev1.Node) (m connectivity.Machine) {
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return connectivity.Machine{Inside: "the test runs in a pod: run it on a machine outside of the cluster"}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return connectivity.Machine{Inside: fmt.Sprintf("the addresses of this machine are unknown: %v", err)}
	}
	is := map[netip.Addr]bool{}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			is[prefix.Addr()] = true
			m.Addresses = append(m.Addresses, prefix.Addr())
		}
	}
	for _, n := range nodes {
		for _, a := range nodeFact(n).Addresses {
			if is[a] {
				return connectivity.Machine{Inside: fmt.Sprintf("this machine is node %s: run the test on a machine outside of the cluster", n.Name)}
			}
		}
	}
	return m
}

// dial connects from this machine. With UDP it waits for an answer.
func dial(ctx context.Context, protocol connectivity.Protocol, target string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, strings.ToLower(string(protocol)), target)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if protocol != connectivity.UDP {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("x\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// outcomeOf returns the outcome of a dial.
func outcomeOf(err error) connectivity.Outcome {
	var timeout net.Error
	switch {
	case err == nil:
		return connectivity.Outcome{}
	case errors.Is(err, syscall.ECONNREFUSED):
		return connectivity.Outcome{Cause: connectivity.Refused}
	case errors.As(err, &timeout) && timeout.Timeout():
		return connectivity.Outcome{Cause: connectivity.NoAnswer}
	}
	return connectivity.Outcome{Cause: connectivity.Other, Detail: err.Error()}
}

// beyond returns why a failed check from this machine says nothing about the cluster; empty if it does. If the machine does not
// even reach the kubelet of the node, the network between them is the cause.
func (t *test) beyond(ctx context.Context, r connectivity.Result) string {
	target, err := netip.ParseAddrPort(r.Target)
	if r.From != connectivity.ThisMachine || r.Status != connectivity.Failed || err != nil {
		return ""
	}
	for _, n := range t.facts.Nodes {
		if n.Name != r.ToNode {
			continue
		}
		kubelet := netip.AddrPortFrom(target.Addr(), n.Port).String()
		err := t.dial(ctx, connectivity.TCP, kubelet)
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil { // a node that refuses is reached
			return fmt.Sprintf("this machine reaches neither the NodePort nor the kubelet of node %s (%s)", n.Name, kubelet)
		}
	}
	return ""
}
