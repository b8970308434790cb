package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/daemons"
)

// The delay after a failed report: at first and at most. A report is repeated after repeatReport. If the bridge knows
// the chassis, that is one read.
const (
	firstReport  = time.Second
	lastReport   = time.Minute
	repeatReport = 5 * time.Minute
)

// chassisReport is a report of the chassis of the node, over the bridge's connection with a number.
type chassisReport struct {
	id         string
	connection int
}

// isDue reports whether the report must be made. done is the last one that was made, at the time reported, and failed the last one
// that was not made since. again is set when time has passed.
func (r chassisReport) isDue(done, failed chassisReport, reported time.Time, again bool) bool {
	switch {
	case r.id == "" || r.connection == 0:
		return false
	case r == done:
		return again && time.Since(reported) >= repeatReport
	}
	return r != failed || again
}

// chassisNames finds the name of the node in OVN.
type chassisNames struct {
	id      string          // the system-id
	changed map[string]bool // former ones, since the start of the agent
}

// find returns the name; empty while it is not known. A former system-id that ovn-controller has recorded says nothing: it does not
// record the name again when the system-id changes.
func (c *chassisNames) find(ctx context.Context, cfg *Config) string {
	settings, err := cfg.Switch.Settings(ctx) // it waits for the switch until ctx is done
	if err != nil {
		return ""
	}
	if id := settings["system-id"]; id != c.id {
		if c.changed == nil {
			c.changed = map[string]bool{}
		}
		c.changed[c.id], c.id = true, id
		delete(c.changed, id)
	}
	recorded, err := cfg.Switch.RecordedChassis(ctx)
	if err != nil {
		return ""
	}
	recorded = slices.DeleteFunc(recorded, func(name string) bool { return c.changed[name] })
	name, known := daemons.ChassisName(ctx, cfg.OVNRunDir, recorded)
	if !known {
		return "" // ovn-controller can be starting
	}
	return cmp.Or(name, c.id)
}

// KeepChassis reports the chassis of the node in OVN to the bridge when it has changed, after each new connection, and again and again,
// until ctx is done. The bridge can have lost it, and deletes it when the node is deleted, which can be created again.
func (a *Agent) KeepChassis(ctx context.Context) {
	rows, stop := a.cfg.Switch.ListenSettings()
	defer stop()
	var (
		done, failed chassisReport
		reported     time.Time // done
		wait         time.Duration
		names        chassisNames
	)
	retry := time.NewTimer(lastReport)
	defer retry.Stop()
	for again := false; ctx.Err() == nil; {
		connection, changed := a.cfg.Uplink.Connections()
		now := chassisReport{names.find(ctx, &a.cfg), connection}
		if now.isDue(done, failed, reported, again) {
			if now != failed {
				wait = firstReport
			}
			if err := a.cfg.Uplink.ReportChassis(ctx, now.id); err == nil {
				done, failed, reported = now, chassisReport{}, time.Now()
			} else if ctx.Err() == nil {
				if now != failed {
					a.log.Warn("could not report the chassis of this node to the bridge; in the layout node of OVN all nodes have more flows until it is known", "chassis", now.id, "err", err)
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
			retry.Reset(lastReport) // ovn-controller can have been started with another name
		case <-ctx.Done():
		}
	}
}
