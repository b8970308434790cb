package call

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// verifyPeer fails if the process at the other end of a unix socket is not root's. The
// kernel says whose it was when it connected, or began to listen. Connections of other
// kinds have no such process and pass: Listen and Do make none.
func verifyPeer(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("ask who is at the other end: %w", err)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("process %d at the other end runs as user %d, not as root", peer.Pid, peer.Uid)
	}
	return nil
}
