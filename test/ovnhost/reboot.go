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

// rebootTimeout bounds how long a host may take to be there again.
const rebootTimeout = time.Minute

// Down ends all that runs on a host and takes its namespace away, links and addresses
// with it, as a loss of power does. What the host's switch keeps on disk stays.
func (l *Lab) Down(ctx context.Context, name string) error {
	host := l.Host(name)
	if host == nil {
		return fmt.Errorf("take down host %s: no such host", name)
	}
	for _, p := range slices.Backward(host.processes()) {
		if err := p.Kill(); err != nil {
			return fmt.Errorf("take down host %s: %w", name, err)
		}
	}
	if err := removeNamespace(ctx, l.Namespace(name)); err != nil {
		return fmt.Errorf("take down host %s: %w", name, err)
	}
	return l.leaveUnderlay(slices.Index(l.Hosts, host))
}

// Up starts a host that was taken down.
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
	if err := l.joinUnderlay(slices.Index(l.Hosts, host), namespace); err != nil {
		return fmt.Errorf("join the underlay: %w", err)
	}
	for _, p := range host.processes() {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// processes are the host's, in the order in which they are started.
func (h *Host) processes() []*Process {
	all := []*Process{h.OVSDB.Process, h.VSwitchd}
	if h.Controller != nil {
		all = append(all, h.Controller)
	}
	return all
}

// leaveUnderlay removes the central end of a host's link: the kernel does so some time
// after the host's namespace is gone.
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
