package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Namespace returns the name of a network namespace of the lab for "ip netns": of a host, a pod
// ("namespace:pod"; names of hosts have no colon) or the central part.
func (l *Lab) Namespace(hostOrPod string) string { return l.prefix + "-" + hostOrPod }

func namespacePath(name string) string { return filepath.Join("/run/netns", name) }

// addNamespace creates a network namespace, with the loopback link up.
func (l *Lab) addNamespace(ctx context.Context, name string) error {
	if err := l.journal.addNamespace(name); err != nil {
		return err
	}
	if _, err := output(ctx, "ip", "netns", "add", name); err != nil {
		return err
	}
	return withLinks(name, func(h *netlink.Handle) error { return setUp(h, "lo") })
}

// removeNamespace ends the processes of a network namespace and removes it. It is not an error if the
// namespace does not exist.
func removeNamespace(ctx context.Context, name string) error {
	if _, err := os.Stat(namespacePath(name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := Poll(ctx, func(context.Context) error { return emptyNamespace(name) })
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	_, err = output(ctx, "ip", "netns", "del", name)
	return err
}

// emptyNamespace ends a namespace's processes. It returns nil when it found none: until then, killed
// processes may have had unseen children.
func emptyNamespace(name string) error {
	list, err := members(name)
	if err != nil {
		return err
	}
	for _, p := range list {
		if err := p.kill(); err != nil {
			return err
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("%d processes in it", len(list))
	}
	return nil
}

// withLinks calls f with a netlink handle in a network namespace.
func withLinks(name string, f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink in namespace %s: %w", name, err)
	}
	defer h.Close()
	if err := f(h); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// inNamespace calls f on a thread in a network namespace. Sockets that f creates stay in the namespace,
// regardless of the thread that uses them later.
func inNamespace(name string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(name, f) }()
	return <-result
}

func onThread(name string, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	away, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer func() { _ = away.Close() }()
	if err := netns.Set(away); err != nil {
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	err = f()
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	} // otherwise the thread ends with its goroutine and is not used again
	return err
}

func setUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}
