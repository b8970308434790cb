package links

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// setIPv6 lets the pod's end ignore router advertisements: pods and machines on its switch can send them. If the pair has
// an IPv6 address, it also enables IPv6, because some runtimes disable it.
func (p Pair) setIPv6() error {
	settings := map[string]string{"accept_ra": "0"}
	ipv6 := slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if ipv6 {
		settings["disable_ipv6"] = "0"
	}
	for name, value := range settings {
		_, err := p.Settings.Put(p.Pod, filepath.Join("ipv6/conf", p.Name, name), value)
		if err != nil && (ipv6 || !errors.Is(err, fs.ErrNotExist)) { // else the kernel has no IPv6 on the link
			return fmt.Errorf("configure IPv6: %w", err)
		}
	}
	return nil
}

// ethtoolValue is the kernel's struct ethtool_value.
type ethtoolValue struct{ command, data uint32 }

// deviceRequest is the kernel's struct ifreq with a pointer.
type deviceRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// turnOffloadOff lets the pod's kernel compute checksums, if SoftwareChecksums asks for it.
func (p Pair) turnOffloadOff() error {
	if !p.SoftwareChecksums {
		return nil
	}
	return SoftwareChecksums(p.Pod, p.Name)
}

// SoftwareChecksums lets the kernel compute the checksums of the packets that leave through a link. The
// userspace datapath of Open vSwitch drops TCP packets without a complete checksum.
func SoftwareChecksums(ns netns.NsHandle, link string) error {
	return Inside(ns, func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("disable checksum offload: open a socket: %w", err)
		}
		defer func() { _ = unix.Close(socket) }()
		request := deviceRequest{data: unsafe.Pointer(&ethtoolValue{command: unix.ETHTOOL_STXCSUM})}
		copy(request.name[:unix.IFNAMSIZ-1], link)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("disable checksum offload: %w", errno)
		}
		return nil
	})
}

// Inside calls f on a thread in a network namespace, and waits for it.
func Inside(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(ns, f) }()
	return <-result
}

func onThread(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the agent's own namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	err = f()
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	} // otherwise the locked thread ends with its goroutine
	return err
}
