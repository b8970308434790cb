package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/coe-bridge/coe-bridge/cni/call"
)

// socketOf returns the socket that a configuration names; "" names the default. It fails if
// the sockets file does not list the socket.
func socketOf(asked, file string) (string, error) {
	if asked == "" || asked == call.DefaultSocket {
		return call.DefaultSocket, nil
	}
	allowed, err := readSockets(file)
	if err != nil {
		return "", fmt.Errorf("socket %q: %w", asked, err)
	}
	if slices.Contains(allowed, asked) {
		return asked, nil
	}
	return "", fmt.Errorf("socket %q is not the agent's: %s does not list it", asked, file)
}

// fallback returns the socket for removals whose configuration names a socket that is not
// allowed: the only one of the sockets file, or the default.
func fallback(file string) string {
	if allowed, err := readSockets(file); err == nil && len(allowed) == 1 {
		return allowed[0]
	}
	return call.DefaultSocket
}

// readSockets reads the sockets file. It fails if the file is writable by others than root.
func readSockets(file string) ([]string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if owner, ok := is.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 || is.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s must belong to root and be writable by root alone", file)
	}
	var sockets []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := lines.Text(); filepath.IsAbs(line) {
			sockets = append(sockets, line)
		}
	}
	return sockets, lines.Err()
}
