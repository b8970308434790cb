package kubelab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// egressTimeout bounds the time to open a connection for the API server.
const egressTimeout = 30 * time.Second

// egressConfig lets the API server, which is outside of the cluster's network, reach nodes, pods and services through a proxy.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {uds: {udsName: %s}}
`

// egress is the proxy: it opens connections for CONNECT requests.
type egress struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	http  http.Server
	ended sync.WaitGroup
}

// egressArgs starts the proxy if it is configured, and returns the API server's arguments for it.
func (l *Lab) egressArgs() ([]string, error) {
	if !l.cfg.Egress {
		return nil, nil
	}
	socket, config := filepath.Join(l.access.dir, "egress.sock"), filepath.Join(l.access.dir, "egress.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, egressConfig, socket), 0o644); err != nil {
		return nil, fmt.Errorf("write how the API server reaches pods: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for the API server: %w", err)
	}
	l.egress = newEgress(listener, func(ctx context.Context, network, address string) (net.Conn, error) {
		return l.OVN.Dial(ctx, l.cfg.Nodes[0], network, address)
	})
	return []string{"--egress-selector-config-file=" + config}, nil
}

// newEgress starts the proxy. It serves until it is closed.
func newEgress(listener net.Listener, dial func(ctx context.Context, network, address string) (net.Conn, error)) *egress {
	e := &egress{dial: dial}
	e.http.Handler = http.HandlerFunc(e.connect)
	e.http.ReadHeaderTimeout = egressTimeout
	e.ended.Go(func() { _ = e.http.Serve(listener) })
	return e
}

// close stops the proxy, after its clients have ended.
func (e *egress) close() error {
	err := e.http.Close()
	e.ended.Wait()
	return err
}

func (e *egress) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is served here", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), egressTimeout)
	defer cancel()
	to, err := e.dial(ctx, "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = to.Close() }()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = from.Close() }()
	if _, err := fmt.Fprint(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		join(from, to)
	}
}

// join copies data between two connections until one has ended.
func join(a, b net.Conn) {
	var carried sync.WaitGroup
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	carried.Go(func() { carry(a, b) })
	carry(b, a)
	carried.Wait()
}
