package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/node"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/files"
)

// agentFlags are the flags of coe-bridge agent.
type agentFlags struct {
	onNode
	healthListen                string
	callDeadline, sweepInterval time.Duration
	managers                    []string
	cleanup                     bool
	cni                         installFlags
	logLevel, logFormat         string
}

func newAgent() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Plug the pods of this node in, at the calls of the CNI plugin coe-cni",
		Long: `agent runs on every node. It learns from the bridge what the interfaces of the node's
pods are to be, and plugs them into Open vSwitch when the container runtime calls
coe-cni, which asks the agent over a unix socket. It needs root, and the node's own
network namespace.

A pod that the bridge has told of is plugged in while the bridge is away, too.
With --install-cni it installs coe-cni and the network configuration list itself.
/healthz, /readyz and /metrics are on --health-listen.

With --backend odl OpenDaylight programs the switch, and no ovn-controller may run. The
agent has the switch connect to --ovs-manager, with the node's address as the end of its
tunnels; without --ovs-manager that is for you to set (manager and
other_config:local_ip). A pod is plugged in when the bridge says that OpenDaylight has
set it up, so bridge and OpenDaylight must be there for that; pods that are plugged in
need neither. What OVN alone does is not there: the node's own place in the network
(coe0: from the node to pods, from pods to nodes and beyond) and cluster IPs of services.`,
		Example: `  # the node 192.168.33.11, of a bridge with two replicas
  coe-bridge agent --bridge https://192.168.33.1:8181,https://192.168.33.2:8181 \
    --node-address 192.168.33.11 --ca-file ca.pem --cert node.pem --key node-key.pem

  # the same node, with its switch programmed by a cluster of OpenDaylight
  coe-bridge agent --bridge https://192.168.33.1:8181 --node-address 192.168.33.11 \
    --ca-file ca.pem --cert node.pem --key node-key.pem \
    --backend odl --ovs-manager tcp:192.168.33.5:6640,tcp:192.168.33.6:6640

  # unplug all pods of this node, and remove all that the agent keeps
  coe-bridge agent --cleanup --bridge https://192.168.33.1:8181 --node-address 192.168.33.11`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	f.register(cmd)
	return cmd
}

func (f *agentFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.onNode.register(cmd)
	flags.StringVar(&f.healthListen, "health-listen", "127.0.0.1:8182", "address of /healthz, /readyz and /metrics; empty: none")
	flags.DurationVar(&f.callDeadline, "call-deadline", 30*time.Second, "how long a call of coe-cni may take")
	flags.DurationVar(&f.sweepInterval, "sweep-interval", time.Minute, "how often leftovers of pods that are gone are looked for")
	flags.StringSliceVar(&f.managers, "ovs-manager", nil, "where OpenDaylight waits for this node's switch: tcp:HOST:PORT or ssl:HOST:PORT, several of a cluster with commas (with --backend odl)")
	flags.BoolVar(&f.cleanup, "cleanup", false, "unplug all pods, remove what the agent has made and keeps, and end")
	f.cni.register(flags)
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	for name, values := range map[string][]string{
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (f *agentFlags) run(ctx context.Context, stderr io.Writer) error {
	log, err := newLog(f.logLevel, f.logFormat, stderr)
	if err != nil {
		return err
	}
	parts, err := f.parts(log)
	if err != nil {
		return err
	}
	defer func() { _ = parts.node.Close() }()
	if f.cleanup {
		return f.cleanUp(ctx, parts, log)
	}
	return f.serve(ctx, parts, log)
}

// agentParts are what an agent is made of.
type agentParts struct {
	node     netns.NsHandle
	uplink   *uplink.Uplink
	ovs      *ovs.Switch
	agent    *agent.Agent
	own      *node.Node
	managed  ovs.Management
	files    *files.Follower
	registry *prometheus.Registry
}

func (f *agentFlags) parts(log *slog.Logger) (p agentParts, err error) {
	if err := f.check(); err != nil {
		return p, err
	}
	if err := os.MkdirAll(f.stateDir, 0o700); err != nil {
		return p, fmt.Errorf("make --state-dir: %w", err)
	}
	p.files = files.New("coe_agent", log)
	if p.uplink, err = f.uplink(f.stateDir, p.files, log); err != nil {
		return p, err
	}
	if p.ovs, err = f.vswitch(log); err != nil {
		return p, err
	}
	if p.managed, err = f.management(); err != nil {
		return p, err
	}
	if p.node, err = netns.Get(); err != nil {
		return p, fmt.Errorf("open the node's network namespace: %w", err)
	}
	p.registry = prometheus.NewRegistry()
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), p.files)
	p.agent, err = agent.New(agent.Config{
		Switch: p.ovs, Uplink: p.uplink, Node: p.node, Settings: links.Settings(f.settings), Dir: f.stateDir, Confirmed: f.backend == ovs.OpenDaylight,
		Deadline: f.callDeadline, Sweep: f.sweepInterval, Log: log, Registry: p.registry,
	})
	if err != nil {
		return p, err
	}
	p.own = node.New(node.Config{
		Switch: p.ovs, Uplink: p.uplink, Netns: p.node, Settings: links.Settings(f.settings), MTU: p.agent.MTU, Apart: f.backend == ovs.OpenDaylight, Log: log, Registry: p.registry,
	})
	return p, nil
}

// check refuses flags that contradict each other, or would be passed over.
func (f *agentFlags) check() error {
	switch {
	case f.callDeadline <= 0:
		return fmt.Errorf("--call-deadline %s: want a time above 0", f.callDeadline)
	case f.sweepInterval <= 0:
		return fmt.Errorf("--sweep-interval %s: want a time above 0", f.sweepInterval)
	}
	if err := f.checkManagers(); err != nil {
		return err
	}
	return f.cni.check()
}

// checkManagers refuses what no switch could connect to.
func (f *agentFlags) checkManagers() error {
	if len(f.managers) > 0 && f.backend != ovs.OpenDaylight {
		return errors.New("--ovs-manager is given without --backend odl: OVN's switches have no manager")
	}
	for _, m := range f.managers {
		kind, at, _ := strings.Cut(m, ":")
		if host, port, err := net.SplitHostPort(at); err != nil || host == "" || port == "" || kind != "tcp" && kind != "ssl" {
			return fmt.Errorf("--ovs-manager %q: want tcp:HOST:PORT or ssl:HOST:PORT", m)
		}
	}
	return nil
}

// management is how the node's switch is managed.
func (f *agentFlags) management() (ovs.Management, error) {
	if len(f.managers) == 0 {
		return ovs.Management{}, nil
	}
	tunnels, err := netip.ParseAddr(f.node)
	if err != nil {
		return ovs.Management{}, fmt.Errorf("--node-address: %w", err)
	}
	return ovs.Management{Managers: f.managers, Tunnels: tunnels}, nil
}
