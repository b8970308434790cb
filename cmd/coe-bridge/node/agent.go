// Package node has the commands that run on a node: agent, doctor and gateway.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/daemons"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/node"
	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/files"
)

// agentFlags has the flags of coe-bridge agent.
type agentFlags struct {
	onNode
	runDirs                     runDirs
	healthListen                string
	callDeadline, sweepInterval time.Duration
	managers                    []string
	cleanup                     bool
	cni                         installFlags
	log                         flags.Log
	version                     string
}

// NewAgent returns the command agent of a program of this version.
func NewAgent(version string) *cobra.Command {
	f := agentFlags{version: version}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Attach the pods of this node to the network, when the CNI plugin coe-cni asks",
		Long: `agent runs on every node. It receives the interfaces of the node's pods from the bridge,
and attaches them to Open vSwitch when the container runtime calls coe-cni, which asks
the agent over a unix socket. It needs root, and the node's network namespace.

The agent can attach the pods that it knows while the bridge is unreachable.
With --install-cni it installs coe-cni and the network configuration list itself.
The node answers on the host ports of pods that the bridge allows (--host-ports there).
/healthz, /readyz and /metrics are on --health-listen. The metrics include those of Open vSwitch
and OVN on this node.

With --backend odl, OpenDaylight programs the switch, and ovn-controller must not run.
The agent connects the switch to --ovs-manager, with the node's address as the end of its
tunnels. Without --ovs-manager, set manager and other_config:local_ip yourself. A pod is
attached when the bridge reports that OpenDaylight has programmed it, so both must be
reachable then; attached pods need neither. Nodes reach pods, and lead pods to services, by
IPv4 alone there. EgressIPs and gateways need OVN.`,
		Example: `  # the node 192.168.33.11, of a bridge with two replicas
  coe-bridge agent --bridge https://192.168.33.1:8181,https://192.168.33.2:8181 \
    --node-address 192.168.33.11 --ca-file ca.pem --cert node.pem --key node-key.pem

  # the same node, with its switch programmed by a cluster of OpenDaylight
  coe-bridge agent --bridge https://192.168.33.1:8181 --node-address 192.168.33.11 \
    --ca-file ca.pem --cert node.pem --key node-key.pem \
    --backend odl --ovs-manager tcp:192.168.33.5:6640,tcp:192.168.33.6:6640

  # detach all pods of this node, and remove all that the agent has created
  coe-bridge agent --cleanup --bridge https://192.168.33.1:8181 --node-address 192.168.33.11`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	f.register(cmd)
	return cmd
}

func (f *agentFlags) register(cmd *cobra.Command) {
	set := cmd.Flags()
	f.onNode.register(cmd)
	f.runDirs.register(set)
	set.StringVar(&f.healthListen, "health-listen", "127.0.0.1:8182", "address of /healthz, /readyz and /metrics; empty for none")
	set.DurationVar(&f.callDeadline, "call-deadline", 30*time.Second, "timeout of a call of coe-cni")
	set.DurationVar(&f.sweepInterval, "sweep-interval", time.Minute, "interval of the search for leftovers of deleted pods")
	set.StringSliceVar(&f.managers, "ovs-manager", nil, "OpenDaylight's address for this node's switch: tcp:HOST:PORT or ssl:HOST:PORT, several of a cluster with commas (with --backend odl)")
	set.BoolVar(&f.cleanup, "cleanup", false, "detach all pods, remove all that the agent has created, and end")
	f.cni.register(set)
	f.log.Register(cmd)
}

func (f *agentFlags) run(ctx context.Context, stderr io.Writer) error {
	log, err := f.log.Open(stderr)
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

// agentParts are the parts of an agent.
type agentParts struct {
	node     netns.NsHandle
	uplink   *uplink.Uplink
	ovs      *ovs.Switch
	agent    *agent.Agent
	own      *node.Node
	nics     *nic.Mover
	managed  ovs.Management
	physical ovs.Physical
	files    *files.Follower
	registry *prometheus.Registry
}

func (f *agentFlags) parts(log *slog.Logger) (p agentParts, err error) {
	if err := f.check(); err != nil {
		return p, err
	}
	p.files = files.New("coe_agent", log)
	if p.uplink, err = f.uplink(f.stateDir, p.files, log); err != nil {
		return p, err
	}
	if p.ovs, err = f.vswitch(true, log); err != nil {
		return p, err
	}
	if p.managed, err = f.management(); err != nil {
		return p, err
	}
	if p.physical, err = f.physicalBridges(); err != nil {
		return p, err
	}
	if err := os.MkdirAll(f.stateDir, 0o700); err != nil {
		return p, fmt.Errorf("create --state-dir: %w", err)
	}
	if p.node, err = netns.Get(); err != nil {
		return p, fmt.Errorf("open the node's network namespace: %w", err)
	}
	p.registry = prometheus.NewRegistry()
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), p.files,
		daemons.New(daemons.Config{OVSRunDir: f.runDirs.ovs, OVNRunDir: f.runDirs.ovn, OVN: f.backend == ovs.OVN}))
	p.own = node.New(node.Config{
		Switch: p.ovs, Uplink: p.uplink, Netns: p.node, Settings: links.Settings(f.settings), OpenDaylight: f.backend == ovs.OpenDaylight,
		Managers: f.managers, Log: log, Registry: p.registry,
		Programmed: f.programmed(),
		MTU:        func(ctx context.Context) (int, error) { return agent.MTU(ctx, p.ovs, p.node) },
	})
	p.agent, err = agent.New(agent.Config{
		Switch: p.ovs, Uplink: p.uplink, Node: p.node, HostPorts: p.own.Services(), Services: p.own.Services(), Physical: p.physical, OVNRunDir: f.runDirs.ovn, Settings: links.Settings(f.settings), Dir: f.stateDir, Confirmed: f.backend == ovs.OpenDaylight,
		Flows: f.flows(), Deadline: f.callDeadline, Sweep: f.sweepInterval, Log: log, Registry: p.registry,
	})
	if err != nil {
		return p, err
	}
	p.nics = f.mover(p.ovs, p.node, log)
	return p, nil
}

// check refuses flags that contradict each other, or would have no effect.
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

// checkManagers refuses addresses that no switch can connect to.
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

// flows returns the management socket of the bridge.
func (f *agentFlags) flows() string { return filepath.Join(f.runDirs.ovs, f.ovsBridge+".mgmt") }

// programmed returns how the agent finds out which ports OpenDaylight has programmed; nil with OVN.
func (f *agentFlags) programmed() func(context.Context, openflow.Addresses) (map[uint32]openflow.Stage, error) {
	if f.backend != ovs.OpenDaylight {
		return nil
	}
	return func(ctx context.Context, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
		return agent.Programmed(ctx, f.flows(), addresses)
	}
}

// management returns how the node's switch is managed.
func (f *agentFlags) management() (ovs.Management, error) {
	if len(f.managers) == 0 {
		return ovs.Management{}, nil
	}
	tunnels, err := nodeAddress(f.node)
	if err != nil {
		return ovs.Management{}, err
	}
	settled := func(ctx context.Context) bool { return agent.Settled(ctx, f.flows()) }
	empty := func(ctx context.Context) bool { return agent.Empty(ctx, f.flows()) }
	keepARP := func(ctx context.Context) error { return agent.KeepARP(ctx, f.flows()) }
	return ovs.Management{Managers: f.managers, Tunnels: tunnels, Settled: settled, Empty: empty, KeepARP: keepARP}, nil
}
