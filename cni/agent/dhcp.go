package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/dhcp"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// firstDHCP is the delay after a pass that could not serve all pods. It doubles up to Config.Sweep.
const firstDHCP = time.Second

// KeepDHCP answers the DHCP requests of running pods that ask for DHCP, until ctx is done: after a start of the agent, and when
// what the bridge reports of them changes. It is for OpenDaylight; OVN answers itself (decision 96).
func (a *Agent) KeepDHCP(ctx context.Context) {
	defer a.dhcp.Close()
	var (
		done   = map[string]served{} // by port
		logged string
		wait   = firstDHCP
	)
	for ctx.Err() == nil {
		_, _, changed := a.cfg.Uplink.Place() // changed also when a record changes
		whole, err := a.keepDHCP(ctx, done)
		again := time.NewTimer(wait)
		if wait = min(2*wait, a.cfg.Sweep); whole && err == nil {
			again.Reset(a.cfg.Sweep)
			wait, logged = firstDHCP, ""
		} else if err != nil && err.Error() != logged && ctx.Err() == nil {
			logged = err.Error()
			a.log.Warn("could not answer the DHCP requests of some pods; trying again", "err", err)
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// served is what the lease of a port is made of.
type served struct {
	record     *uplink.Record
	place      *uplink.Place
	attachment vif.Attachment
}

// keepDHCP serves the pods whose data is not that of done, and stops with those that do not ask any more. It is not whole if a call
// about a pod is in progress.
func (a *Agent) keepDHCP(ctx context.Context, done map[string]served) (whole bool, err error) {
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return false, err
	}
	answered := a.dhcp.Links()
	want := a.wantedDHCP(ports, answered)
	maps.DeleteFunc(done, func(name string, _ served) bool { return want[name].record == nil })
	whole = true
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(want)) {
		now := want[name]
		_, answers := slices.BinarySearch(answered, name)
		if !answers && now.record == nil || answers && done[name] == now {
			continue
		}
		tried, err := a.followDHCP(ctx, name, now.record)
		if err != nil {
			errs = append(errs, fmt.Errorf("port %s: %w", name, err))
		}
		if whole = whole && tried; tried && err == nil {
			done[name] = now
		}
	}
	return whole, errors.Join(errs...)
}

// wantedDHCP returns what the leases of ports and of answered links are made of now. It has no record of a pod that does not ask.
func (a *Agent) wantedDHCP(ports []vif.Port, answered []string) map[string]served {
	place, _, _ := a.cfg.Uplink.Place()
	want := map[string]served{}
	for _, p := range ports {
		want[p.Name] = served{place: place, attachment: p.Attachment}
	}
	for _, name := range answered {
		if _, has := want[name]; !has { // the port is gone, or newer than the list
			want[name] = served{place: place}
		}
	}
	for _, r := range a.cfg.Uplink.Records() {
		if now, has := want[r.Port]; has && r.DHCP != nil {
			now.record = r
			want[r.Port] = now
		}
	}
	return want
}

// followDHCP serves the pod of a port with the data of a record, or stops without one. It does not try while a call about the port
// is in progress, because the call does it.
func (a *Agent) followDHCP(ctx context.Context, name string, r *uplink.Record) (tried bool, err error) {
	release, _ := a.ports.try(name)
	if release == nil {
		return false, nil
	}
	defer release()
	port, found, err := a.cfg.Switch.Port(ctx, name)
	if err != nil {
		return true, err
	}
	if r == nil || !found || isGone(port.Attachment) {
		a.dhcp.Stop(name)
		return true, nil
	}
	return true, a.serveDHCP(port, r)
}

// serveDHCP answers the DHCP requests of the pod of a port, if its record asks for it. Nothing is done with OVN, or without an IPv4
// address. The caller holds the lock of the port.
func (a *Agent) serveDHCP(p vif.Port, r *uplink.Record) error {
	n := slices.IndexFunc(r.Addresses, func(has uplink.Address) bool { return has.IP.Is4() })
	if !a.cfg.Confirmed || r.DHCP == nil || n < 0 {
		a.dhcp.Stop(p.Name)
		return nil
	}
	mac, err := r.HardwareAddr()
	if err != nil {
		return err
	}
	end, err := links.Glance(a.cfg.Node, p.Name)
	if err != nil {
		return err
	}
	place, _, _ := a.cfg.Uplink.Place()
	l := &dhcp.Lease{
		MAC: mac, Address: r.Addresses[n].Prefix(), Gateway: r.Addresses[n].Gateway, DNS: r.DHCP.DNS,
		MTU: end.MTU, Time: time.Duration(r.DHCP.LeaseTime) * time.Second,
	}
	l.Routes, _ = a.routes(p, r, place)
	return a.dhcp.Serve(p.Name, l)
}
