package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// connected waits until the port of what was planned carries traffic: the switch has it,
// and says so of the network, or, where it can't, the bridge does.
func (a *Agent) connected(ctx context.Context, p plan) error {
	if err := a.cfg.Switch.Await(ctx, p.port); err != nil {
		return errors.Join(err, a.cfg.Switch.Managed())
	}
	if !a.cfg.Confirmed {
		return nil
	}
	is := func(r *uplink.Record) bool { return r.Port == p.port.Name && r.Confirmed }
	if _, err := a.cfg.Uplink.Await(ctx, is); err != nil {
		return a.waited(ctx, p, "have")
	}
	return nil
}

// released waits until the bridge says no more that the network has the interface of a port
// that is not there. What it says of the former port is not to be taken for the new one; and
// OpenDaylight takes from a port that comes back while it still removes the former one.
func (a *Agent) released(ctx context.Context, p plan) error {
	if !a.cfg.Confirmed {
		return nil
	}
	is := func(r *uplink.Record) bool { return r.Port == p.port.Name && !r.Confirmed }
	if _, err := a.cfg.Uplink.Await(ctx, is); err != nil {
		return a.waited(ctx, p, "let go of")
	}
	return nil
}

// waited is why it is not known that the network does what is waited for with an interface,
// as far as switch and bridge can tell.
func (a *Agent) waited(ctx context.Context, p plan, what string) error {
	why := []error{ctx.Err(), a.cfg.Switch.Managed()}
	if is := a.cfg.Uplink.Standing(); !is.Connected {
		why = append(why, fmt.Errorf("there is no connection to the bridge, which would know: %w", is.Err))
	}
	err := fmt.Errorf("wait for the network to %s interface %s by port %s: %w", what, p.port.Interface, p.port.Name, errors.Join(why...))
	return a.explain(ctx, p.at, err)
}

// isConfirmed fails where the bridge says that the network does not have the interface of
// a port. What it said before it went away says nothing of now.
func (a *Agent) isConfirmed(port string) error {
	if !a.cfg.Confirmed || !a.cfg.Uplink.Standing().Connected {
		return nil
	}
	if r := a.cfg.Uplink.Find(func(r *uplink.Record) bool { return r.Port == port }); r == nil || !r.Confirmed {
		return fmt.Errorf("the bridge does not say that the network has the interface of port %s", port)
	}
	return nil
}
