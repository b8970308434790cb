package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// connected waits until the port of a plan carries traffic: the switch has the port, and
// the switch or, with Config.Confirmed, the bridge reports the interface as ready. With
// Config.Flows the switch also has the flows to the port. With OVN
// the switch then also has the flows of the ACLs of all port groups that the port joined in
// the transaction that created it (decision 43).
func (a *Agent) connected(ctx context.Context, p plan) error {
	if err := a.cfg.Switch.Await(ctx, p.port); err != nil {
		return a.explain(ctx, p.at, errors.Join(err, a.cfg.Switch.Managed()))
	}
	if !a.cfg.Confirmed {
		return nil
	}
	is := func(r *uplink.Record) bool { return r.Port == p.port.Name && r.Confirmed }
	if _, err := a.cfg.Uplink.Await(ctx, is); err != nil {
		return a.unconfirmed(ctx, p, "program")
	}
	if a.cfg.Flows == "" {
		return nil
	}
	return a.timed(ctx, "flows", func() error { return a.programmed(ctx, p) })
}

// releasedWithin is how long a new port waits until the bridge reports that the former one was removed. OpenDaylight can notice the addition of a port
// after its removal. Then it keeps the former port until it learns of the new one.
const releasedWithin = 10 * time.Second

// measureFlows measures how long OVN took for the flows of a new port.
func (a *Agent) measureFlows(ctx context.Context, port string, added time.Time) {
	if at, err := a.cfg.Switch.InstalledAt(ctx, port); err == nil && !at.IsZero() {
		a.metrics.flows.Observe(max(0, at.Sub(added).Seconds()))
	}
}

// released waits until the switch has released the former port, and until the bridge no longer
// reports the interface as confirmed while its port is missing. A confirmation of the former
// port must not count for the new one. OpenDaylight also removes flows of a port that returns
// during the removal. Therefore the port also waits until OpenDaylight programs the switch:
// otherwise an ADD that ends at its deadline removes a port that OpenDaylight is about to find,
// and the next ADD returns it during the removal.
//
// If the agent sees the flows to the new port, it waits for the bridge for releasedWithin at most.
func (a *Agent) released(ctx context.Context, p plan) error {
	if err := a.cfg.Switch.AwaitDeletions(ctx); err != nil {
		return err
	}
	if !a.cfg.Confirmed {
		return nil
	}
	if err := a.cfg.Switch.AwaitManaged(ctx); err != nil {
		return a.explain(ctx, p.at, err)
	}
	within, sees := ctx, a.seesFlows(ctx)
	if sees {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, releasedWithin)
		defer cancel()
	}
	is := func(r *uplink.Record) bool { return r.Port == p.port.Name && !r.Confirmed }
	_, err := a.cfg.Uplink.Await(within, is)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || !sees:
		return a.unconfirmed(ctx, p, "remove")
	}
	a.log.Warn("the network has not removed the former port of a pod, and the pod gets a new one all the same", "port", p.port.Name, "interface", p.port.Interface)
	return nil
}

// unconfirmed is the error if the network did not program or remove an interface in time,
// with the reasons that the switch and the bridge give.
func (a *Agent) unconfirmed(ctx context.Context, p plan, what string) error {
	why := []error{ctx.Err(), a.cfg.Switch.Managed()}
	if is := a.cfg.Uplink.Status(); !is.Connected {
		why = append(why, fmt.Errorf("no connection to the bridge: %w", is.Err))
	}
	err := fmt.Errorf("wait for the network to %s interface %s of port %s: %w", what, p.port.Interface, p.port.Name, errors.Join(why...))
	return a.explain(ctx, p.at, err)
}

// isConfirmed fails if the bridge does not report the interface of a port as confirmed.
// It passes while the bridge is not connected: old records prove nothing.
func (a *Agent) isConfirmed(port string) error {
	if !a.cfg.Confirmed || !a.cfg.Uplink.Status().Connected {
		return nil
	}
	if r := a.cfg.Uplink.Find(func(r *uplink.Record) bool { return r.Port == port }); r == nil || !r.Confirmed {
		return fmt.Errorf("the bridge does not report the interface of port %s as confirmed", port)
	}
	return nil
}
