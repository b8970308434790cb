// Package doctor checks that a node has what its agent needs to attach pods, and says how to
// fix what is missing. It changes nothing.
//
// The checks run concurrently and independently, each with a deadline, so that one that
// hangs does not hide another. They examine the real system: processes over their sockets,
// the kernel, and the bridge.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Level is the result of a check.
type Level string

// The levels. Unknown means that another failure, which has its own finding, prevents the
// check.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Failed  Level = "failed"
	Unknown Level = "unknown"
)

// Finding is the finding of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	// Mend says how to fix the problem; empty if there is none.
	Mend string `json:"mend,omitempty"`
}

// Config has the settings of the node's agent, and the locations of the node's parts.
type Config struct {
	Switch *ovs.Switch
	Uplink *uplink.Uplink
	// NICs knows the NICs of the node that have joined a bridge.
	NICs *nic.Mover
	// Anonymous is true if the agent has no credentials.
	Anonymous bool
	// Bridges are the URLs of the bridge's replicas.
	Bridges []string
	// OVN is true if OVN programs the switch, false if OpenDaylight does.
	OVN bool
	// Physical are the physical networks that the node is connected to.
	Physical ovs.Physical
	// Node is the node's network namespace.
	Node netns.NsHandle
	// Settings is the directory of the kernel's network settings that the agent writes; empty
	// means the default.
	Settings links.Settings
	// Socket is the agent's socket, StateDir its state directory.
	Socket, StateDir string
	// OVSRunDir and OVNRunDir hold the sockets of ovs-vswitchd and ovn-controller.
	OVSRunDir, OVNRunDir string
	// CNIBinDir and CNIConfDir are the container runtime's directories of plugins and
	// network configurations.
	CNIBinDir, CNIConfDir string
	// Timeout bounds each check.
	Timeout time.Duration
}

// check is one check. Its error is a *trouble or any other error.
type check struct {
	name string
	look func(context.Context) (found string, err error)
}

// trouble is an error with its level and its fix.
type trouble struct {
	level Level
	err   error
	mend  string
}

// Error implements error.
func (t *trouble) Error() string { return t.err.Error() }

// Unwrap returns the error for errors.Is and errors.As.
func (t *trouble) Unwrap() error { return t.err }

func failed(err error, mend string) error { return &trouble{Failed, err, mend} }

func warning(err error, mend string) error { return &trouble{Warning, err, mend} }

// unknown is the error of a check that another failure prevents.
func unknown(err error) error { return &trouble{Unknown, err, ""} }

// errNoSwitch is the reason of checks that need the switch's database.
var errNoSwitch = errors.New("the Open vSwitch database must answer first")

// Examine runs all checks. The findings are in the order in which to fix them.
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
		{"NICs in bridges", c.nics},
	}
	if c.OVN {
		checks = append(checks, check{"ovn-controller", c.controller}, check{"gateway", c.gateway}, check{"physical networks", c.physical}, check{"southbound database", c.southbound}, check{"tunnels", c.tunnels}, check{"mtu", c.mtu})
	} else {
		checks = append(checks, check{"OpenDaylight", c.managed}, check{"ovn-controller", c.noController}, check{"tunnels", c.netvirtTunnels}, check{"mtu", c.mtu})
	}
	for _, url := range c.Bridges {
		checks = append(checks,
			check{"bridge " + url, func(ctx context.Context) (string, error) { return c.bridge(ctx, url) }},
			check{"credentials " + url, func(ctx context.Context) (string, error) { return c.credentials(ctx, url) }})
		if !c.OVN {
			checks = append(checks, check{"backends " + url, func(ctx context.Context) (string, error) { return c.backends(ctx, url) }})
		}
	}
	checks = append(checks,
		check{"clock", c.clock}, check{"agent", c.agent}, check{"state directory", c.state}, check{"plugin", c.plugin}, check{"network configuration list", c.networkList})
	if c.OVN {
		checks = append(checks, check{"pod network", c.podNetwork}, check{"IPv6", c.ipv6})
	}
	return checks
}

// run runs a check, and waits for it at most timeout and grace.
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
	case f := <-done: // it has noticed the deadline
		return f
	case <-time.After(grace):
		return c.finding("", failed(fmt.Errorf("no answer within %s", timeout), "check whether the kernel or a disk hangs"))
	}
}

// grace is the time for a check to return its error after the deadline.
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
