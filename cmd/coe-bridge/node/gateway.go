package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// NewGateway returns the command gateway.
func NewGateway() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Make this node a gateway of the pod network, and prepare its NICs",
		Example: `  coe-bridge gateway init --node-address 10.33.74.10 --physical-interface eth1 --physical-ip 10.33.75.138/24 --default-gw 10.33.75.253
  coe-bridge gateway nics-to-bridge eth0
  coe-bridge gateway bridge-to-nics breth0`,
		DisableFlagsInUseLine: true,
		FParseErrWhitelist:    cobra.FParseErrWhitelist{UnknownFlags: true}, // a misspelt command is the error, not its flags
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("gateway %s: unknown; want init, remove, nics-to-bridge, bridge-to-nics or release-nics (coe-bridge gateway --help)", args[0])
		},
	}
	cmd.AddCommand(newGatewayInit(), newGatewayRemove(), newNICsToBridge(), newBridgeToNICs(), newReleaseNICs())
	return cmd
}

// gatewayFlags has the flags of the commands that move NICs.
type gatewayFlags struct {
	onSwitch
	dryRun bool
}

func newNICsToBridge() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "nics-to-bridge NIC...",
		Short: "Let NICs join bridges of Open vSwitch, with their addresses, routes and open connections",
		Long: `nics-to-bridge creates a bridge of Open vSwitch for each NIC, with the name brNIC, and makes
the NIC a port of it. The addresses, routes and permanent neighbours of the NIC move to the
bridge, as do its MTU, its MAC address and its settings in /proc/sys/net. Open connections
continue. Run it on the node, as root. Running it again changes nothing, or moves what was
added to the NIC since then.

Enable coe-bridge-nics.service first: without it the node is possibly not reachable by the NIC
after a boot.

If a step fails, the NIC leaves the bridge again. If the command is killed, the next call or
the agent finishes the move. A running agent with the same --state-dir also moves the NIC
after a boot, and addresses that a network manager adds to the NIC later. Rules of firewalls
and policy routing that name the NIC stay as they are.`,
		Example: `  coe-bridge gateway nics-to-bridge eth0 --dry-run   # print the steps
  coe-bridge gateway nics-to-bridge eth0             # eth0 is now a port of breth0`,
		Args: names("nics-to-bridge: name the NICs, as in coe-bridge gateway nics-to-bridge eth0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.run(cmd.Context(), cmd.OutOrStdout(), args, (*nic.Mover).Join)
			if err == nil && !nic.New(nic.Config{}).ReleasedAtBoot() {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is not enabled on this machine; without it the node is possibly not reachable by the NIC after a boot (docs/gateways.md)\n", nic.ReleaseUnit)
			}
			return err
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nics(), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// nics returns the names of the links of this machine except loopback.
func nics() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

func newBridgeToNICs() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "bridge-to-nics BRIDGE...",
		Short: "Let the NICs of bridges leave them, with addresses, routes and open connections",
		Long: `bridge-to-nics undoes nics-to-bridge: the addresses, routes and permanent neighbours of each
bridge move to its NIC, and the bridge is removed. Open connections continue. Run it on the
node, as root. A bridge that nics-to-bridge has not created, that has other ports, or that OVN
uses stays as it is.`,
		Example: `  coe-bridge gateway bridge-to-nics breth0 --dry-run   # print the steps
  coe-bridge gateway bridge-to-nics breth0             # eth0 has its addresses again`,
		Args: names("bridge-to-nics: name the bridges, as in coe-bridge gateway bridge-to-nics breth0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), args, (*nic.Mover).Leave)
		},
	}
	f.register(cmd)
	return cmd
}

// names requires an argument at least; want says which.
func names(want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New(want)
		}
		return nil
	}
}

func (f *gatewayFlags) register(cmd *cobra.Command) {
	f.onSwitch.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the steps and change nothing")
}

func newReleaseNICs() *cobra.Command {
	var f onSwitch
	cmd := &cobra.Command{
		Use:   "release-nics",
		Short: "Take NICs out of their bridges at a boot, before Open vSwitch forwards packets",
		Long: `release-nics takes the NICs that joined a bridge before this boot out of it. At a boot the
kernel loses the addresses of bridges, and a network manager can only configure a NIC that is
not in a bridge. The service coe-bridge-nics.service runs the command before ovs-vswitchd
starts. Later the agent, or nics-to-bridge, lets the NICs join again. NICs that have joined
since the boot stay where they are.`,
		Example: `  coe-bridge gateway release-nics`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withMover(cmd.Context(), func(mover *nic.Mover) error {
				nics, err := mover.Release(cmd.Context())
				for _, name := range nics {
					_, failed := fmt.Fprintf(cmd.OutOrStdout(), "%s: released\n", name)
					err = errors.Join(err, failed)
				}
				return err
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// run moves the NIC or the bridge with each name. A failure does not stop the others, and the end of ctx does.
func (f *gatewayFlags) run(ctx context.Context, stdout io.Writer, names []string, move func(*nic.Mover, context.Context, string, bool) ([]nic.Step, error)) error {
	return f.withMover(ctx, func(mover *nic.Mover) (err error) {
		for _, name := range names {
			steps, failed := move(mover, ctx, name, f.dryRun)
			err = errors.Join(err, failed)
			if failed == nil {
				err = errors.Join(err, f.print(stdout, name, steps))
			}
		}
		return err
	})
}

// switchOfNode is this node's switch, and what moves NICs there.
type switchOfNode struct {
	vswitch *ovs.Switch
	mover   *nic.Mover
	netns   netns.NsHandle
}

// withMover calls do with a connection to the switch, which does not end with ctx.
func (f *onSwitch) withMover(ctx context.Context, do func(*nic.Mover) error) error {
	return f.withSwitch(ctx, func(s switchOfNode) error { return do(s.mover) })
}

// withSwitch calls do with a connection to the switch, which does not end with ctx. A lost terminal ends nothing: it is possibly
// reached by a NIC that moves.
func (f *onSwitch) withSwitch(ctx context.Context, do func(switchOfNode) error) error {
	signal.Ignore(syscall.SIGHUP)
	quiet := slog.New(slog.DiscardHandler) // errors are returned
	vswitch, err := ovs.New(ovs.Config{Endpoint: f.ovsDB, Bridge: f.ovsBridge, Log: quiet})
	if err != nil {
		return err
	}
	node, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the node's network namespace: %w", err)
	}
	defer func() { _ = node.Close() }()
	var running sync.WaitGroup
	defer running.Wait()
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	running.Go(func() { vswitch.Run(connected) })
	if err := f.reached(ctx, vswitch); err != nil {
		return err
	}
	return do(switchOfNode{vswitch, f.mover(vswitch, node, quiet), node})
}

// connectTimeout bounds the wait for the switch's database.
const connectTimeout = 5 * time.Second

// reached fails unless the switch's database answers.
func (f *onSwitch) reached(ctx context.Context, vswitch *ovs.Switch) error {
	if f.isForbidden(ctx) {
		return fmt.Errorf("connect to the switch at %s: permission denied: run the command as root", f.ovsDB)
	}
	deadline, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := vswitch.Settings(deadline)
	if why := vswitch.Ready(); err != nil && ctx.Err() == nil && why != nil {
		err = why // without the deadline
	}
	if err != nil {
		return fmt.Errorf("%w: start Open vSwitch, or name its database with --ovs-db", err)
	}
	return nil
}

// isForbidden reports whether this user has no permission to connect to the database of the switch. Another try is useless then.
func (f *onSwitch) isForbidden(ctx context.Context) bool {
	path, isFile := strings.CutPrefix(f.ovsDB, "unix:")
	if !isFile {
		return false
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, os.ErrPermission)
}

// print prints the steps of a move.
func (f *gatewayFlags) print(stdout io.Writer, name string, steps []nic.Step) error {
	title := "moved"
	switch {
	case len(steps) == 0:
		title = "nothing to do"
	case f.dryRun:
		title = "would be moved"
	}
	_, err := fmt.Fprintf(stdout, "%s: %s\n", name, title)
	for _, step := range steps {
		if err == nil {
			_, err = fmt.Fprintf(stdout, "  %s\n", step)
		}
	}
	return err
}

// mover returns what moves the NICs of this node.
func (f *onSwitch) mover(vswitch *ovs.Switch, node netns.NsHandle, log *slog.Logger) *nic.Mover {
	return nic.New(nic.Config{Switch: vswitch, Netns: node, Dir: f.nicDir(), Settings: links.Settings(f.settings), Log: log})
}
