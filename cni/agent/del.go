package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// del removes an attachment, or what exists of it, after it has cancelled an ADD of the
// same attachment. A port that now belongs to another attachment stays.
func (a *Agent) del(ctx context.Context, at *attachment) error {
	a.running.interrupt(key(at.Attachment))
	release, err := a.attachments.take(ctx, key(at.Attachment))
	if err != nil {
		return err
	}
	defer release()
	if err := a.unplugAttachment(ctx, at.Attachment); err != nil {
		return err
	}
	if at.pod.external {
		a.withdrawSoon(ctx, at.pod.uid)
	}
	return nil
}

// unplugAttachment removes an attachment's port and links. The caller holds its lock.
func (a *Agent) unplugAttachment(ctx context.Context, of vif.Attachment) error {
	port, found, err := a.cfg.Switch.Find(ctx, of)
	if err != nil {
		return err
	}
	name := port.Name
	if !found {
		if name, err = a.linkOf(of); name == "" || err != nil {
			return err
		}
	}
	release, err := a.ports.take(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	return a.unplug(ctx, name, &of)
}

// linkOf returns the link whose alias names of as the owner; empty if there is none.
func (a *Agent) linkOf(of vif.Attachment) (string, error) {
	owned, err := links.Owned(a.cfg.Node)
	for name, alias := range owned {
		if alias == owner(of) {
			return name, nil
		}
	}
	return "", err
}

// unplug removes the port and the link called name. If only is not nil, it leaves a port
// of another attachment. The caller holds the lock of name.
func (a *Agent) unplug(ctx context.Context, name string, only *vif.Attachment) error {
	port, found, err := a.cfg.Switch.Port(ctx, name)
	switch {
	case err != nil:
		return err
	case found && only != nil && !port.Attachment.Same(*only):
		return nil
	case found:
		if err := a.timed(ctx, "unplug", func() error { return a.cfg.Switch.Delete(ctx, name, port.Attachment) }); err != nil {
			return err
		}
	}
	a.dhcp.Stop(name)
	return a.timed(ctx, "unlink", func() error { return a.deleteLink(name) })
}

func (a *Agent) deleteLink(name string) error {
	return a.kernel.do(func() error { return links.Delete(a.cfg.Node, name) })
}

// collect removes the ports of a network that the runtime does not list as valid. It fails
// and removes nothing if there is no list.
func (a *Agent) collect(ctx context.Context, n *network) error {
	valid, err := n.valid()
	if err != nil {
		return err
	}
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.Attachment.Network != n.Name || slices.ContainsFunc(valid, p.Attachment.Same) {
			continue
		}
		if err := a.discard(ctx, p.Attachment); err != nil {
			return fmt.Errorf("collect port %s of container %s: %w", p.Name, p.Attachment.Container, err)
		}
	}
	return a.sweep(ctx)
}

// discard removes an attachment, unless a call about it is in progress.
func (a *Agent) discard(ctx context.Context, of vif.Attachment) error {
	release, _ := a.attachments.try(key(of))
	if release == nil {
		return nil
	}
	defer release()
	a.log.Info("removing a leftover port", "container", of.Container, "ifname", of.IfName, "netns", of.Netns)
	a.metrics.swept.Inc()
	return a.unplugAttachment(ctx, of)
}
