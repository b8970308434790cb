package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// firstDirect is the delay after a failed try to change the routes of running pods. It doubles up to Config.Sweep.
const firstDirect = time.Second

// KeepDirect gives running pods the routes to the subnet of the physical network that their namespace gets, and removes them when it
// has none any more, until ctx is done. Pods have these routes from their start if the namespace has the network then.
//
// A pod gets the route when OVN has connected its node to the network: without that, it would reach the pods of its namespace on
// other nodes no more.
func (a *Agent) KeepDirect(ctx context.Context) {
	var (
		done   map[string]string // the routes by port; nil before the first pass
		logged string
		wait   = firstDirect
	)
	for ctx.Err() == nil {
		_, known, changed := a.cfg.Uplink.Place() // changed also when a record changes
		var err error
		if known || a.cfg.Uplink.Count() > 0 {
			done, err = a.directly(ctx, done)
		}
		again := time.NewTimer(wait)
		if wait = min(2*wait, a.cfg.Sweep); err == nil {
			again.Stop()
			wait, logged = firstDirect, ""
		} else if text := err.Error(); text != logged && ctx.Err() == nil {
			logged = text
			a.log.Warn("could not change the routes of running pods to the physical network of their namespace; trying again", "err", err)
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// directly changes the routes of the pods whose directly connected subnets are others than done has. It returns what is done then.
func (a *Agent) directly(ctx context.Context, done map[string]string) (map[string]string, error) {
	var errs []error
	now := map[string]string{}
	for _, r := range a.cfg.Uplink.Records() {
		want := ""
		if r.Physical != "" {
			want = fmt.Sprint(direct(r))
		}
		had, seen := done[r.Port]
		if !seen || had != want {
			runs, err := a.direct(ctx, r)
			if err != nil {
				errs = append(errs, fmt.Errorf("pod %s/%s: %w", r.Namespace, r.Pod, err))
			}
			if err != nil || !runs {
				if want = had; !seen {
					continue
				}
			}
		}
		now[r.Port] = want
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return now, errors.Join(errs...)
}

// direct gives the pod of a record, if it runs, the directly connected routes of the record. An ADD in progress can have the record of
// before.
func (a *Agent) direct(ctx context.Context, r *uplink.Record) (runs bool, err error) {
	release, err := a.ports.take(ctx, r.Port)
	if err != nil {
		return false, err
	}
	defer release()
	port, found, err := a.cfg.Switch.Port(ctx, r.Port)
	if err != nil || !found || isGone(port.Attachment) {
		return false, err
	}
	if err := a.connects(ctx, r); err != nil {
		return true, err
	}
	inPod, err := netns.GetFromPath(port.Attachment.Netns)
	if err != nil {
		return true, noNamespace(port.Attachment.Netns, err)
	}
	defer func() { _ = inPod.Close() }()
	return true, a.kernel.do(func() error { return links.PutDirect(inPod, port.Attachment.IfName, direct(r)) })
}

// connects returns an error if OVN does not connect the node to the physical network of a record, or does not yet.
func (a *Agent) connects(ctx context.Context, r *uplink.Record) error {
	if r.Physical == "" {
		return nil
	}
	if err := a.reaches(ctx, r); err != nil {
		return err
	}
	connected, err := a.cfg.Switch.PhysicalConnected(ctx, a.cfg.Physical.Bridges[r.Physical], r.Node+":"+r.Namespace)
	if err == nil && !connected {
		err = fmt.Errorf("OVN has not connected the namespace to physical network %s on this node yet", r.Physical)
	}
	return err
}

// direct returns the directly connected routes of a record.
func direct(r *uplink.Record) (all []netip.Prefix) {
	for _, route := range r.Routes {
		if !route.NextHop.IsValid() {
			all = append(all, route.Destination)
		}
	}
	return all
}
