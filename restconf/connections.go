package restconf

import (
	"net"
	"sync"
	"syscall"
)

// fileShare is the part of the files that the process may open that connections get: the
// datastore must find one whenever it needs it.
const fileShare = 2

// maxConnections is how many connections there are at once.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return DefaultMaxStreams
	}
	return max(1, int(min(files.Cur, 1<<20))/fileShare)
}

// bounded is a listener of which so many connections are open at once. Those that come
// then wait in the kernel.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(l net.Listener, connections int) *bounded {
	return &bounded{Listener: l, places: make(chan struct{}, connections), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}

// CloseWrite lets who is still sending read the answer that is there, as net/http has it
// of a connection that can.
func (p *placed) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
