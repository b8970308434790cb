// Package odlpods runs coe-bridge with a real OpenDaylight, for tests and the demo: a bridge beside the controller, an agent on each
// host, and pods that the CNI plugin attaches. It uses the bridge only through its command line.
package odlpods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Config configures a Lab.
type Config struct {
	// Controller manages the hosts of its lab once their agents connect the switches.
	Controller *odl.Controller
	// Others are the other members of the controller's cluster.
	Others []*odl.Controller
	// Reach returns the URL at which the bridge reaches a member; nil: its Inside.
	Reach func(*odl.Controller) string
	// Bin is the directory with coe-bridge and coe-cni.
	Bin string
	// CallDeadline is the deadline of the agents' calls.
	CallDeadline time.Duration
}

// Lab is a bridge with agents. Its processes end with the controller's lab.
type Lab struct {
	*ovnhost.Lab
	Controller *odl.Controller
	// Bridge is the process of the bridge, Agents are the processes of the agents by host.
	Bridge *ovnhost.Process
	Agents map[string]*ovnhost.Process

	// members are the controller and the other members of its cluster.
	members  []*odl.Controller
	url      func(*odl.Controller) string // at which the bridge reaches a member
	bin      string
	deadline time.Duration
	users    users
}

// Start starts a bridge, applies the hosts and a pool, and starts an agent on each host. It returns when OpenDaylight programs all
// switches, and tunnels connect them.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	l, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return l.StartBridge(ctx, "none") }, l.ApplyNodes, l.StartAgents, l.AwaitNetwork,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// New returns a Lab without running processes.
func New(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{
		Lab: cfg.Controller.Lab, Controller: cfg.Controller, Agents: map[string]*ovnhost.Process{}, deadline: cfg.CallDeadline,
		members: append([]*odl.Controller{cfg.Controller}, cfg.Others...), url: cfg.Reach,
	}
	if l.url == nil {
		l.url = func(c *odl.Controller) string { return c.Inside }
	}
	var err error
	if l.bin, err = filepath.Abs(cfg.Bin); err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	for _, program := range []string{"coe-bridge", "coe-cni"} {
		if _, err := os.Stat(filepath.Join(l.bin, program)); err != nil {
			return nil, fmt.Errorf("find the programs: %w: make build makes them", err)
		}
	}
	l.users = users{filepath.Join(l.Dir, "bridge")}
	return l, l.users.write(ctx, l.program())
}

// ofMembers joins what f returns for each member of the cluster.
func (l *Lab) ofMembers(f func(*odl.Controller) string) string {
	all := make([]string, len(l.members))
	for i, c := range l.members {
		all[i] = f(c)
	}
	return strings.Join(all, ",")
}

func (l *Lab) program() string { return filepath.Join(l.bin, "coe-bridge") }

// patience bounds the time in which a controller and its switches apply a change on a busy machine.
const patience = 4 * time.Minute

// Await calls f until it returns nil.
func Await(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
