package links

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// DefaultSettings is where the kernel shows the network settings.
const DefaultSettings Settings = "/proc/sys/net"

// Settings is a directory with the kernel's network settings: DefaultSettings, which the
// empty value also means, or a mount of it. Every mount shows each thread the settings of
// its own network namespace. In an unprivileged container DefaultSettings is read-only,
// but a separate mount can be writable.
type Settings string

// Put writes a setting of a network namespace if it has another value, and reports whether
// it did. name is a path in the directory, such as "ipv4/ip_forward".
func (s Settings) Put(ns netns.NsHandle, name, value string) (changed bool, err error) {
	path := s.path(name)
	err = Inside(ns, func() error {
		is, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(bytes.TrimSpace(is), []byte(value)) {
			changed, err = true, os.WriteFile(path, []byte(value), 0)
		}
		return err
	})
	if errors.Is(err, unix.EROFS) {
		err = fmt.Errorf("%w: mount the node's %s into the container of the agent writable, and name the mount with --net-settings", err, DefaultSettings)
	}
	if err != nil {
		return changed, fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return changed, nil
}

// Get reads a setting of a network namespace. name is that of Put.
func (s Settings) Get(ns netns.NsHandle, name string) (value string, err error) {
	err = Inside(ns, func() error {
		is, err := os.ReadFile(s.path(name))
		value = string(bytes.TrimSpace(is))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

// Writable returns an error if the settings of this thread's network namespace cannot be
// written.
func (s Settings) Writable() error {
	path := s.path("ipv4/ip_forward")
	if err := unix.Access(path, unix.W_OK); err != nil {
		return fmt.Errorf("write to %s: %w", path, err)
	}
	return nil
}

// path returns the file of a setting.
func (s Settings) path(name string) string {
	return filepath.Join(string(cmp.Or(s, DefaultSettings)), name)
}
