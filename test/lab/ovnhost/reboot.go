package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rebootTimeout bounds the start of a host.
const rebootTimeout = 2 * time.Minute

// Down kills all processes of a host, and removes its namespace with its links and addresses, like a
// power failure. The database of the host's switch stays on disk.
func (l *Lab) Down(ctx context.Context, name string) error {
	host := l.Host(name)
	if host == nil {
		return fmt.Errorf("take down host %s: no such host", name)
	}
	for _, p := range slices.Backward(host.Processes()) {
		if err := p.Kill(); err != nil {
			return fmt.Errorf("take down host %s: %w", name, err)
		}
	}
	if err := removeNamespace(ctx, l.Namespace(name)); err != nil {
		return fmt.Errorf("take down host %s: %w", name, err)
	}
	return l.leaveUnderlay(slices.Index(l.Hosts, host))
}

// Up starts a host after Down.
func (l *Lab) Up(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, rebootTimeout)
	defer cancel()
	if err := l.up(ctx, l.Host(name)); err != nil {
		return fmt.Errorf("start host %s: %w", name, err)
	}
	return nil
}

func (l *Lab) up(ctx context.Context, host *Host) error {
	namespace := l.Namespace(host.Name)
	if err := l.addNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := l.joinUnderlay(ctx, slices.Index(l.Hosts, host), namespace); err != nil {
		return fmt.Errorf("join the underlay: %w", err)
	}
	for _, p := range host.Processes() {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Processes returns the host's processes in the order of their start.
func (h *Host) Processes() []*Process {
	all := []*Process{h.OVSDB.Process, h.VSwitchd}
	if h.Controller != nil {
		all = append(all, h.Controller)
	}
	return all
}

// leaveUnderlay removes the central end of a host's link, which the kernel removes only some time after the host's namespace.
func (l *Lab) leaveUnderlay(i int) error {
	return withLinks(l.Namespace(CentralNamespace), func(h *netlink.Handle) error {
		link, err := h.LinkByName(underlayLink(i))
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.LinkDel(link); !errors.Is(err, unix.ENODEV) {
			return err
		}
		return nil
	})
}
