package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// requestTimeout bounds a request, its connection included.
const requestTimeout = 5 * time.Second

// openTimeout bounds the time until a way is in use.
const openTimeout = 2 * time.Minute

// outside calls f on a thread of the clients, which are outside the cluster or in a pod. f must use the network on its own goroutine.
func (c *cluster) outside(f func() error) error {
	if c.client != nil {
		return c.client.In(f)
	}
	return c.lab.OVN.In(ovnhost.CentralNamespace, f)
}

// ask requests the name of the pod at an address, over a new connection.
func ask(ctx context.Context, at netip.AddrPort) (pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	// A reset instead of TIME_WAIT, so that a long run does not exhaust the ports of the client.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return "", err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/hostname", http.NoBody)
	if err != nil {
		return "", err
	}
	if err := r.Write(conn); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", at, answer.Status)
	}
	return string(body), err
}

// open opens a way, and waits until a pod answers on it.
func (c *cluster) open(ctx context.Context, w *way, pod string) error {
	if err := c.use(ctx, w); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return c.outside(func() error {
		_, err := awaitPod(ctx, w.at, pod)
		return err
	})
}

// awaitPod asks until a pod answers, and returns the time when it did.
func awaitPod(ctx context.Context, at netip.AddrPort, pod string) (time.Time, error) {
	err := ovnhost.Poll(ctx, func(ctx context.Context) error {
		for {
			answered, err := ask(ctx, at)
			if err != nil || answered == pod {
				return err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("pod %s answers, not %s", answered, pod)
			}
		}
	})
	return time.Now(), err
}
