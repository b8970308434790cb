package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// accept sends back what comes over connections, until the listener is closed. The connections end with the flow.
func (f *flow) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.note(err)
			continue
		}
		f.mu.Lock()
		if f.serving == nil {
			f.serving = conn
		}
		f.mu.Unlock()
		f.running.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			_, _ = io.Copy(conn, conn) // without an answer the packet is lost
			f.closeConn(conn)
		})
	}
}

// read reads the answer to a packet. TCP does not keep the ends of packets: the number of a packet says how large it is.
func (f *flow) read(conn net.Conn, packet []byte) (int, error) {
	if !f.TCP {
		return conn.Read(packet)
	}
	if _, err := io.ReadFull(conn, packet[:8]); err != nil {
		return 0, err
	}
	size := sizeOf(int(binary.BigEndian.Uint64(packet)), f.large)
	_, err := io.ReadFull(conn, packet[8:size])
	return size, err
}

// closeConn closes a connection, and keeps how many packets it has sent again.
func (f *flow) closeConn(conn net.Conn) {
	again := sentAgain(conn)
	f.mu.Lock()
	f.again += again
	f.mu.Unlock()
	_ = conn.Close()
}

// sentAgain returns how many packets and answers TCP has sent again, on the connection that lasts and on those that have begun later.
func (f *flow) sentAgain() (again, againNew int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sentAgain(f.sender) + sentAgain(f.serving), f.again
}

// sentAgain returns how many packets a connection has sent again; 0 if it is closed, or not of TCP.
func sentAgain(conn net.Conn) (n int) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Total_retrans)
		}
	})
	return n
}
