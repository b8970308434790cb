package call

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// verifyPeer fails if the process at the other end of a unix socket does not run as root.
// The kernel recorded its user when it connected or started to listen. Other kinds of
// connections pass; Listen and Do create none.
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
		return fmt.Errorf("read the credentials of the peer: %w", err)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("peer process %d runs as user %d, not as root", peer.Pid, peer.Uid)
	}
	return nil
}
