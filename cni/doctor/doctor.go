// Package doctor looks whether a node has what its agent needs to plug pods in, and
// says of what is missing how to mend it. It changes nothing.
//
// Its checks run side by side, each with a deadline, and know nothing of each other: so
// one that hangs hides no other. It looks at the real things: it asks the processes
// over their sockets, the kernel, and the bridge.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Level is how a check has ended.
type Level string

// The levels. Unknown is what could not be looked at because something else is wrong,
// which has a finding of its own.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Failed  Level = "failed"
	Unknown Level = "unknown"
)

// Finding is what a check has found.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	// Mend says what to do; empty where nothing is to be done.
	Mend string `json:"mend,omitempty"`
}

// Config says what the agent of the node is told, and where the parts of the node are.
type Config struct {
	Switch *ovs.Switch
	Uplink *uplink.Uplink
	// Bridges are the URLs of the bridge's replicas.
	Bridges []string
	// OVN tells whether OVN programs the switch, and not OpenDaylight.
	OVN bool
	// Node is the node's network namespace.
	Node netns.NsHandle
	// Settings are the kernel's network settings that the agent writes; empty for the
	// default.
	Settings links.Settings
	// Socket is the agent's, StateDir its folder.
	Socket, StateDir string
	// OVSRunDir and OVNRunDir hold the sockets of ovs-vswitchd and ovn-controller.
	OVSRunDir, OVNRunDir string
	// CNIBinDir and CNIConfDir are where the container runtime looks for plugins and
	// networks.
	CNIBinDir, CNIConfDir string
	// Timeout bounds each check.
	Timeout time.Duration
}

// check is one of the checks. It fails with a *trouble, or any error.
type check struct {
	name string
	look func(context.Context) (found string, err error)
}

// trouble is an error with its level and its cure.
type trouble struct {
	level Level
	err   error
	mend  string
}

// Error implements error.
func (t *trouble) Error() string { return t.err.Error() }

// Unwrap serves errors.Is and As.
func (t *trouble) Unwrap() error { return t.err }

func failed(err error, mend string) error { return &trouble{Failed, err, mend} }

func warning(err error, mend string) error { return &trouble{Warning, err, mend} }

// unknown is what can't be looked at, because of something that has its own finding.
func unknown(err error) error { return &trouble{Unknown, err, ""} }

// errNoSwitch is why nothing can be said of what the switch's database would tell.
var errNoSwitch = errors.New("the database of Open vSwitch has to answer first")

// Examine runs all checks. Findings are in the order in which they are best mended.
func Examine(ctx context.Context, cfg Config) []Finding {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { cfg.Switch.Run(ctx) })
	checks := cfg.checks()
	findings := make([]Finding, len(checks))
	var looking sync.WaitGroup
	for i, c := range checks {
		looking.Go(func() { findings[i] = c.run(ctx, cfg.Timeout) })
	}
	looking.Wait()
	return findings
}

func (c *Config) checks() []check {
	checks := []check{
		{"permissions", c.permissions},
		{"Open vSwitch", c.database},
		{"ovs-vswitchd", c.vswitchd},
		{"datapath", c.datapath},
	}
	if c.OVN {
		checks = append(checks, check{"ovn-controller", c.controller}, check{"southbound database", c.southbound}, check{"tunnels", c.tunnels}, check{"mtu", c.mtu})
	} else {
		checks = append(checks, check{"OpenDaylight", c.managed}, check{"ovn-controller", c.noController}, check{"tunnels", c.netvirtTunnels}, check{"mtu", c.mtu})
	}
	for _, url := range c.Bridges {
		checks = append(checks,
			check{"bridge " + url, func(ctx context.Context) (string, error) { return c.bridge(ctx, url) }},
			check{"credentials " + url, func(ctx context.Context) (string, error) { return c.credentials(ctx, url) }})
	}
	return append(checks,
		check{"clock", c.clock}, check{"agent", c.agent}, check{"state directory", c.state}, check{"plugin", c.plugin}, check{"network configuration list", c.networkList})
}

// run runs a check, and waits for it no longer than that.
func (c check) run(ctx context.Context, timeout time.Duration) Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan Finding, 1)
	go func() {
		found, err := c.look(ctx)
		done <- c.finding(found, err)
	}()
	select {
	case f := <-done:
		return f
	case <-ctx.Done():
	}
	select {
	case f := <-done: // it has heard of the deadline, too
		return f
	case <-time.After(grace):
		return c.finding("", failed(fmt.Errorf("no answer for %s", timeout), "see what hangs: the kernel, or a disk"))
	}
}

// grace is how long a check has to say what it was waiting for.
const grace = time.Second

func (c check) finding(found string, err error) Finding {
	if err == nil {
		return Finding{c.name, OK, found, ""}
	}
	var t *trouble
	if !errors.As(err, &t) {
		t = &trouble{Failed, err, ""}
	}
	return Finding{c.name, t.level, err.Error(), t.mend}
}
