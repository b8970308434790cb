// Package unixctl asks daemons of Open vSwitch and OVN over their control sockets, as ovs-appctl does: JSON-RPC over
// a unix socket in the daemon's run directory. It does not know what the commands mean.
package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Ask sends a command to a daemon, and returns the answer.
func Ask(ctx context.Context, runDir, daemon, command string, args ...string) (string, error) {
	c, err := Dial(ctx, runDir, daemon)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Ask(ctx, command, args...)
}

// Conn is a connection to a daemon. It is for one goroutine.
type Conn struct {
	socket string
	conn   net.Conn
	in     *json.Decoder
}

// Sockets returns the control sockets of a daemon: NAME.PID.ctl, or NAME.ctl of a database of OVN. Sockets of dead
// processes can be among them.
func Sockets(runDir, daemon string) ([]string, error) {
	if _, err := os.Stat(runDir); err != nil {
		return nil, err
	}
	var all []string
	for _, pattern := range []string{".[0-9]*.ctl", ".ctl"} {
		some, err := filepath.Glob(filepath.Join(runDir, daemon+pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Dial connects to a daemon. It tries the next socket if one belongs to a dead process.
func Dial(ctx context.Context, runDir, daemon string) (*Conn, error) {
	sockets, err := Sockets(runDir, daemon)
	if err != nil {
		return nil, err
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("%s has no control socket in %s", daemon, runDir)
	}
	var errs []error
	for _, socket := range sockets {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return &Conn{socket, conn, json.NewDecoder(conn)}, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// PID returns the process of the daemon; 0 if it is not visible from here.
func (c *Conn) PID() (pid int) {
	conn, is := c.conn.(syscall.Conn)
	if !is {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// Ask sends a command, and returns the answer. The connection can be used again after an error that is the answer.
func (c *Conn) Ask(ctx context.Context, command string, args ...string) (string, error) {
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	question := map[string]any{"id": 0, "method": command, "params": append([]string{}, args...)}
	if err := json.NewEncoder(c.conn).Encode(question); err != nil {
		return "", fmt.Errorf("ask %s: %w", c.socket, errors.Join(ctx.Err(), err))
	}
	var answer struct {
		Result string `json:"result"`
		Error  any    `json:"error"`
	}
	if err := c.in.Decode(&answer); err != nil {
		return "", fmt.Errorf("wait for %s: %w", c.socket, errors.Join(ctx.Err(), err))
	}
	if answer.Error != nil {
		return "", fmt.Errorf("ask %s for %s: %v", c.socket, command, answer.Error)
	}
	return strings.TrimSpace(answer.Result), nil
}
