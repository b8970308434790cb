package agent

import (
	"context"
	"time"
)

// The delay after a failed report: at first and at most.
const (
	firstReport = time.Second
	lastReport  = time.Minute
)

// chassisReport is a report of the chassis of the node, over the bridge's connection with a number.
type chassisReport struct {
	id         string
	connection int
}

// KeepChassis reports the chassis of the node in OVN to the bridge when it has changed, and after each new connection, until ctx is
// done. The bridge can have lost it.
func (a *Agent) KeepChassis(ctx context.Context) {
	rows, stop := a.cfg.Switch.ListenSettings()
	defer stop()
	var (
		done, failed chassisReport
		wait         time.Duration
	)
	retry := time.NewTimer(lastReport)
	defer retry.Stop()
	for again := false; ctx.Err() == nil; {
		connection, changed := a.cfg.Uplink.Connections()
		settings, _ := a.cfg.Switch.Settings(ctx) // it waits for the switch until ctx is done
		now := chassisReport{settings["system-id"], connection}
		if now.id != "" && connection > 0 && now != done && (now != failed || again) {
			if now != failed {
				wait = firstReport
			}
			if err := a.cfg.Uplink.ReportChassis(ctx, now.id); err == nil {
				done, failed = now, chassisReport{}
			} else if ctx.Err() == nil {
				if now != failed {
					a.log.Warn("could not report the chassis of this node to the bridge; with --ovn-layout node all nodes have more flows until it is known", "chassis", now.id, "err", err)
				}
				failed = now
				retry.Reset(wait)
				wait = min(2*wait, lastReport)
			}
		}
		again = false
		select {
		case <-rows:
		case <-changed:
		case <-retry.C:
			again = true
		case <-ctx.Done():
		}
	}
}
