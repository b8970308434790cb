package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pingTimeout bounds Ping, httpTimeout a request.
const (
	pingTimeout = 45 * time.Second
	httpTimeout = 10 * time.Second
)

// Exec runs a program in the namespace of a pod or host, and returns its output.
func (l *Lab) Exec(ctx context.Context, pod string, argv ...string) (string, error) {
	return output(ctx, "ip", slices.Concat([]string{"netns", "exec", l.Namespace(pod)}, argv)...)
}

// Ping sends echo requests from a pod until one is answered. The first ones may be lost during neighbour discovery.
// If none is answered, and the hosts have stale flows (see HasStaleFlows), it forgets them and tries again.
func (l *Lab) Ping(ctx context.Context, from string, to netip.Addr) error {
	err := l.ping(ctx, from, to)
	if err == nil {
		return nil
	}
	if stale, _ := l.HasStaleFlows(ctx); !stale {
		return err
	}
	if err := l.ForgetFlows(ctx); err != nil {
		return err
	}
	return l.ping(ctx, from, to)
}

func (l *Lab) ping(ctx context.Context, from string, to netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := Poll(ctx, func(ctx context.Context) error {
		_, err := l.Exec(ctx, from, "ping", "-n", "-c", "1", "-W", "1", to.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("ping %s from %s: %w", to, from, err)
	}
	return nil
}

// server is an HTTP server in this process that listens in a pod.
type server struct {
	http   *http.Server
	result chan error // what Serve has returned
}

// Serve serves HTTP on a port in a pod, until the pod is unplugged or the lab is closed.
func (l *Lab) Serve(pod string, port uint16, handler http.Handler) error {
	var listener net.Listener
	err := inNamespace(l.Namespace(pod), func() (err error) {
		listener, err = net.Listen("tcp", ":"+strconv.Itoa(int(port)))
		return err
	})
	if err != nil {
		return fmt.Errorf("serve in pod %s: %w", pod, err)
	}
	s := &server{
		http:   &http.Server{Handler: handler, ReadHeaderTimeout: httpTimeout},
		result: make(chan error, 1),
	}
	go func() { s.result <- s.http.Serve(listener) }()
	l.mu.Lock()
	l.servers[pod] = append(l.servers[pod], s)
	l.mu.Unlock()
	return nil
}

func (l *Lab) closePod(pod string) error {
	l.mu.Lock()
	servers := l.servers[pod]
	delete(l.servers, pod)
	l.mu.Unlock()
	return closeServers(servers)
}

func closeServers(servers []*server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.http.Close())
		if err := <-s.result; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// HTTPGet fetches a page from a pod, once, over a new connection. The host in the URL must be an address. A status other than 200
// is an error.
func (l *Lab) HTTPGet(ctx context.Context, from, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	body, err := l.get(ctx, from, url)
	if err != nil {
		return "", fmt.Errorf("fetch page from %s: %w", from, err)
	}
	return body, nil
}

// In runs f in the network namespace of a pod, a host or the central namespace. The sockets that f
// opens stay in it.
func (l *Lab) In(pod string, f func() error) error { return inNamespace(l.Namespace(pod), f) }

// Dial connects from a pod, a host or the central namespace to an address.
func (l *Lab) Dial(ctx context.Context, from, network, address string) (conn net.Conn, err error) {
	err = inNamespace(l.Namespace(from), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (l *Lab) get(ctx context.Context, from, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, from, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: %s: %s", url, response.Status, body)
	}
	return string(body), nil
}

// Advertised sets eth0 of a pod down and up, without its addresses and routes, and returns the default route that the kernel of the pod
// learns by a router advertisement, which it solicits.
func (l *Lab) Advertised(ctx context.Context, pod string) (route string, err error) {
	const up = "ip -6 address flush dev eth0; ip link set eth0 down; sysctl -q -w net.ipv6.conf.eth0.accept_ra=2; ip link set eth0 up"
	if _, err := l.Exec(ctx, pod, "sh", "-c", up); err != nil {
		return "", err
	}
	err = Poll(ctx, func(ctx context.Context) error {
		route, err = l.Exec(ctx, pod, "ip", "-6", "route", "show", "default", "proto", "ra")
		if route = strings.TrimSpace(route); err == nil && route == "" {
			err = errors.New("no router has been advertised")
		}
		return err
	})
	return route, err
}
