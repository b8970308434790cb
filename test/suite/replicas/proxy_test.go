package replicas

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// proxy is a proxy between a replica and its API server. It can delay answers, or cut connections.
type proxy struct {
	l   net.Listener
	to  string
	lag time.Duration

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
	wg    sync.WaitGroup
}

// throughProxy returns a proxy, and a kubeconfig of the API server behind it.
func throughProxy(t *testing.T, plane *kube.ControlPlane, lag time.Duration) (p *proxy, kubeconfig string) {
	t.Helper()
	server, err := url.Parse(plane.URL())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p = &proxy{l: l, to: server.Host, lag: lag}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(true)
		p.wg.Wait()
	})
	text, err := os.ReadFile(plane.Kubeconfig())
	require.NoError(t, err)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(string(text), server.Host, l.Addr().String())), 0o600))
	return p, kubeconfig
}

// cut closes all connections and refuses new ones, or allows them again.
func (p *proxy) cut(isCut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = isCut
	if isCut {
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.conns = nil
	}
}

func (p *proxy) accept() {
	for {
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		isCut := p.isCut
		p.mu.Unlock()
		if isCut {
			p.cut(true)
		}
		p.wg.Go(func() { p.pass(far, near, 0) })
		p.wg.Go(func() { p.pass(near, far, p.lag) })
	}
}

// pass forwards data with a delay.
func (p *proxy) pass(to, from net.Conn, lag time.Duration) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	const much = 1 << 16
	queue := make(chan chunk, much)
	p.wg.Go(func() {
		defer func() { _ = to.Close() }()
		for c := range queue {
			elapse(time.Until(c.due))
			if _, err := to.Write(c.data); err != nil {
				break
			}
		}
		for range queue { // drain the queue, so that the sender ends
		}
	})
	defer close(queue)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			queue <- chunk{time.Now().Add(lag), append([]byte(nil), buffer[:n]...)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			return
		}
	}
}
