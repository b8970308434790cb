package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// sweepRetry is the delay before a failed sweep is repeated.
const sweepRetry = 5 * time.Second

// Run sweeps at once and then at intervals, until ctx is done.
func (a *Agent) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := a.cfg.Sweep
		if err := a.boundedSweep(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("some leftovers could not be removed", "err", err)
			wait = min(wait, sweepRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (a *Agent) boundedSweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	return a.sweep(ctx)
}

// sweep removes leftovers, unless a call about them is in progress: ports whose pod
// namespace or link is gone, links without a port, and pods that the agent created and
// that have no port.
//
// A failed removal does not stop the others.
func (a *Agent) sweep(ctx context.Context) error {
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	owned, err := links.Owned(a.cfg.Node) // after the ports: a link exists before its port
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var errs []error
	for _, p := range ports {
		if _, linked := owned[p.Name]; linked && !isGone(p.Attachment) {
			continue
		}
		if err := a.discard(ctx, p.Attachment); err != nil {
			errs = append(errs, fmt.Errorf("sweep port %s: %w", p.Name, err))
		}
	}
	for name := range owned {
		if err := a.sweepLink(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("sweep link %s: %w", name, err))
		}
	}
	return errors.Join(append(errs, a.sweepPods(ctx))...)
}

// sweepLink removes a link that has no port.
func (a *Agent) sweepLink(ctx context.Context, name string) error {
	release, _ := a.ports.try(name)
	if release == nil {
		return nil
	}
	defer release()
	if _, found, err := a.cfg.Switch.Port(ctx, name); found || err != nil {
		return err
	}
	a.log.Info("removing a leftover link", "link", name)
	a.metrics.swept.Inc()
	return a.deleteLink(name)
}

// sweepPods removes the pods that were created for attachments that no longer exist.
func (a *Agent) sweepPods(ctx context.Context) error {
	noted, unreadable, err := a.notes.all()
	if err != nil {
		return fmt.Errorf("sweep pods: %w", err)
	}
	a.report(unreadable)
	var errs []error
	for uid, of := range noted {
		if err := a.sweepPod(ctx, uid, of); err != nil {
			errs = append(errs, fmt.Errorf("sweep pod %s: %w", uid, err))
		}
	}
	for uid := range unreadable {
		if err := a.sweepUnreadable(ctx, uid); err != nil {
			errs = append(errs, fmt.Errorf("sweep pod %s, whose note cannot be read: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}

// report logs each unreadable note once, and counts them in the metrics.
func (a *Agent) report(unreadable map[string]error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reported := map[string]bool{}
	for uid, err := range unreadable {
		if !a.reported[uid] {
			a.log.Error("a note cannot be read; searching the switch for the pod", "uid", uid, "err", err)
		}
		reported[uid] = true
	}
	a.reported = reported
	a.metrics.unreadable.Set(float64(len(unreadable)))
}

// sweepUnreadable handles a pod whose note cannot be read. If the switch has a port of the
// pod, the port names the attachment, and sweepUnreadable rewrites the note. Otherwise the
// pod is not attached, and sweepUnreadable removes it.
func (a *Agent) sweepUnreadable(ctx context.Context, uid string) error {
	release, _ := a.pods.try(uid)
	if release == nil {
		return nil // an ADD is writing the note
	}
	defer release()
	if _, err := a.notes.read(uid); err == nil {
		return nil // an ADD has written it
	}
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.PodUID == uid {
			return a.notes.write(uid, p.Attachment)
		}
	}
	a.metrics.swept.Inc()
	return a.withdraw(ctx, uid)
}

func (a *Agent) sweepPod(ctx context.Context, uid string, of vif.Attachment) error {
	release, _ := a.attachments.try(key(of))
	if release == nil {
		return nil
	}
	defer release()
	if _, found, err := a.cfg.Switch.Find(ctx, of); found || err != nil {
		return err
	}
	a.metrics.swept.Inc()
	return a.withdraw(ctx, uid)
}

// Cleanup removes everything that the agent created on the node, and the pods that it
// created on the bridge.
func (a *Agent) Cleanup(ctx context.Context) error {
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	var errs []error
	for _, p := range ports {
		if err := a.discard(ctx, p.Attachment); err != nil {
			errs = append(errs, fmt.Errorf("clean up port %s: %w", p.Name, err))
		}
	}
	return errors.Join(append(errs, a.sweep(ctx))...)
}
