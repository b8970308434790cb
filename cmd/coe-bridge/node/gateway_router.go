package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// routerFlags has the flags of the commands that make this node a gateway of OVN.
type routerFlags struct {
	gatewayFlags
	bridge flags.Bridge
	node   string

	nic, onBridge               string
	addresses, nextHops, pinned []string
	services                    bool
}

func newGatewayInit() *cobra.Command {
	var f routerFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this node a gateway of OVN, by which pods leave the network",
		Long: `init makes this node a gateway of OVN: a router with an address of its own on a NIC of the node.
The pods of this node leave by it with the gateway's address, and so do the pods of
--rampout-ip-subnets on all nodes. With --services, clients outside reach services by it.

A NIC that serves nothing else is named with --physical-interface. It joins a bridge of Open
vSwitch, as with nics-to-bridge. A NIC that the node uses too joins its bridge first
(coe-bridge gateway nics-to-bridge), and --bridge-interface names the bridge. In both cases
--physical-ip is an address that no machine has, in the network of the NIC. With an IPv6 address
and an IPv6 router beside the IPv4 ones, pods leave by IPv6 too.

Run it on the node, as root. It changes this node first, and then configures the gateway at the
bridge, which needs a user with the role writer. Running it again changes only what differs. If
it is killed, run it again. The bridge checks the gateway before the first change, and init fails
if the gateway does not work afterwards.`,
		Example: `  coe-bridge gateway init --node-address 10.33.74.10 --physical-interface eth1 --physical-ip 10.33.75.138/24 --default-gw 10.33.75.253 --dry-run
  coe-bridge gateway init --node-address 10.33.74.10 --bridge-interface breth0 --physical-ip 10.33.74.138/24 --default-gw 10.33.74.253
  coe-bridge gateway init --node-address 10.33.74.10 --bridge-interface breth0 --physical-ip 10.33.74.138/24 --default-gw 10.33.74.253 --services
  coe-bridge gateway init --node-address 10.33.74.10 --bridge-interface breth0 --physical-ip 10.33.74.138/24,2001:db8:74::138/64 --default-gw 10.33.74.253,fe80::1
  coe-bridge gateway init --node-address 10.33.74.10 --bridge-interface breth0 --physical-ip 10.33.74.138/24 --default-gw 10.33.74.253 --rampout-ip-subnets 10.42.1.0/24,10.42.2.0/24`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := f.wanted()
			if err != nil {
				return err
			}
			return f.withRouter(cmd, func(r *gatewayRouter) ([]string, error) { return r.init(cmd.Context(), want) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.nic, "physical-interface", "", "NIC of this node that serves the gateway alone")
	cmd.Flags().StringVar(&f.onBridge, "bridge-interface", "", "bridge of Open vSwitch with a NIC that this node uses too")
	cmd.Flags().StringSliceVar(&f.addresses, "physical-ip", nil, "IPv4 address of the gateway with the length of its network, such as 10.33.74.138/24; an IPv6 address after it is optional")
	cmd.Flags().StringSliceVar(&f.nextHops, "default-gw", nil, "router of that network, for each address of --physical-ip")
	cmd.Flags().StringSliceVar(&f.pinned, "rampout-ip-subnets", nil, "ranges of pods that leave by this gateway although they are on other nodes")
	cmd.Flags().BoolVar(&f.services, "services", false, "clients outside reach services by this gateway: node ports at --physical-ip, and external addresses that are routed to it")
	return cmd
}

func newGatewayRemove() *cobra.Command {
	var f routerFlags
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Undo init: the pods of this node leave by the node again",
		Long: `remove undoes init: it deletes the gateway at the bridge, and then what init changed on this
node. A NIC that init was given with --physical-interface leaves its bridge, which is removed.
Other bridges stay: see bridge-to-nics. If it is killed, run it again.`,
		Example: `  coe-bridge gateway remove --node-address 10.33.74.10 --dry-run
  coe-bridge gateway remove --node-address 10.33.74.10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withRouter(cmd, func(r *gatewayRouter) ([]string, error) { return r.remove(cmd.Context()) })
		},
	}
	f.register(cmd)
	return cmd
}

func (f *routerFlags) register(cmd *cobra.Command) {
	f.gatewayFlags.register(cmd)
	f.bridge.Register(cmd)
	cmd.Flags().StringVar(&f.node, "node-address", "", "address of this node in the bridge")
}

// gatewayRouter changes this node, and the gateway at the bridge.
type gatewayRouter struct {
	flags   *routerFlags
	node    netip.Addr
	central *client.Client
	switchOfNode
}

// withRouter calls do, and prints the steps that it returns.
func (f *routerFlags) withRouter(cmd *cobra.Command, do func(*gatewayRouter) ([]string, error)) error {
	node, err := nodeAddress(f.node)
	if err != nil {
		return err
	}
	central, err := f.bridge.Client()
	if err != nil {
		return err
	}
	return f.withSwitch(cmd.Context(), func(s switchOfNode) error {
		own, err := links.HasAddress(s.netns, node)
		if err == nil && !own {
			err = fmt.Errorf("--node-address: no link of this machine has the address %s: run the command on the node", node)
		}
		if err != nil {
			return err
		}
		steps, err := do(&gatewayRouter{flags: f, node: node, central: central, switchOfNode: s})
		if err != nil && len(steps) == 0 {
			return err
		}
		return errors.Join(printSteps(cmd.OutOrStdout(), "gateway of node "+f.node, f.dryRun, steps), err)
	})
}

// printSteps prints steps that were taken, or that a dry run would take.
func printSteps(stdout io.Writer, title string, dry bool, steps []string) error {
	switch {
	case len(steps) == 0:
		title += ": nothing to do"
	case dry:
		title += ": would be changed"
	default:
		title += ": changed"
	}
	_, err := fmt.Fprintln(stdout, strings.Join(append([]string{title}, steps...), "\n  "))
	return err
}

// init makes the node a gateway, and returns the steps. The bridge checks the gateway before the node
// changes, and has it afterwards.
func (r *gatewayRouter) init(ctx context.Context, want gatewayEntry) (steps []string, err error) {
	settings, err := r.vswitch.Settings(ctx)
	if err != nil {
		return nil, err
	}
	want.Node, want.Chassis = r.node, settings["system-id"]
	if want.Chassis == "" {
		return nil, errors.New("external_ids:system-id of Open vSwitch is not set: set it, and check the node with coe-bridge doctor")
	}
	if err := r.checkAddress(want.Address); err != nil {
		return nil, err
	}
	if want.IPv6.IsValid() {
		if err := r.checkAddress(want.IPv6); err != nil {
			return nil, err
		}
	}
	has, err := r.configured(ctx)
	if err != nil {
		return nil, err
	}
	same := has != nil && reflect.DeepEqual(*has, want)
	if !same {
		if err := r.configure(ctx, has, &want, true); err != nil {
			return nil, err
		}
	}
	steps, err = r.attach(ctx)
	if err != nil {
		return steps, err
	}
	if !same {
		if !r.flags.dryRun {
			if err := r.configure(ctx, has, &want, false); err != nil {
				return steps, err
			}
		}
		steps = append(steps, fmt.Sprintf("configure gateway at %s: %s", r.central.URL, want))
	}
	if r.flags.dryRun {
		return steps, nil
	}
	return steps, r.works(ctx, want)
}

// worksTimeout bounds the wait until OVN has the gateway, which is looked for every worksInterval: nothing follows
// what a backend has confirmed.
const (
	worksTimeout  = 15 * time.Second
	worksInterval = 200 * time.Millisecond
)

// works waits until OVN has the gateway and has connected it on this node, and fails if the gateway has a problem.
func (r *gatewayRouter) works(ctx context.Context, want gatewayEntry) error {
	deadline, cancel := context.WithTimeout(ctx, worksTimeout)
	defer cancel()
	for {
		there, err := r.confirmed(ctx, want)
		if err != nil {
			return err
		}
		connected, err := r.vswitch.GatewayConnected(ctx)
		if err != nil {
			return err
		}
		if there && connected {
			return r.problem(ctx)
		}
		select {
		case <-time.After(worksInterval):
		case <-deadline.Done():
			err := errors.New("the gateway is configured, and OVN does not have it yet: see coe-bridge status")
			if there {
				err = errors.New("the gateway is configured, and OVN has not connected it on this node: check that ovn-controller runs, with the system-id of Open vSwitch")
			}
			return cmp.Or(r.problem(ctx), err)
		}
	}
}

// confirmed reports whether OVN has the gateway.
func (r *gatewayRouter) confirmed(ctx context.Context, want gatewayEntry) (bool, error) {
	var has struct {
		Gateways []gatewayEntry `json:"gateway"`
	}
	if err := r.central.Get(ctx, client.Confirmed, "coe-netvirt:gateways", &has); err != nil {
		return false, err
	}
	return slices.ContainsFunc(has.Gateways, func(g gatewayEntry) bool {
		slices.SortFunc(g.Pinned, netip.Prefix.Compare)
		return reflect.DeepEqual(g, want)
	}), nil
}

// problem returns the problems of the node's gateway.
func (r *gatewayRouter) problem(ctx context.Context) (all error) {
	var status struct {
		Problems []struct{ Kind, UID, Message string } `json:"problem"`
	}
	if err := r.central.Get(ctx, client.Confirmed, "coe-status:status", &status); err != nil {
		return err
	}
	for _, p := range status.Problems {
		if p.Kind == "gateway" && p.UID == r.node.String() {
			all = errors.Join(all, fmt.Errorf("the gateway is configured, and has a problem: %s", p.Message))
		}
	}
	return all
}

// checkAddress fails if the node itself has the address: its kernel and OVN would both answer.
func (r *gatewayRouter) checkAddress(address netip.Addr) error {
	has, err := links.HasAddress(r.netns, address)
	if err == nil && has {
		err = fmt.Errorf("--physical-ip: this node has the address %s itself: choose another address of the same network, which no machine has", address)
	}
	return err
}

// attach lets the NIC join its bridge, and gives the network of gateways the bridge.
func (r *gatewayRouter) attach(ctx context.Context) (steps []string, err error) {
	bridge := r.flags.onBridge
	if r.flags.nic != "" {
		bridge = nic.BridgeOf(r.flags.nic)
	}
	mapped, err := r.vswitch.BridgeOf(ctx, ovs.GatewayNetwork)
	if err != nil {
		return nil, err
	}
	reserved, err := r.vswitch.GatewayNIC(ctx)
	if err != nil {
		return nil, err
	}
	if mapped != "" && mapped != bridge || reserved != "" && reserved != r.flags.nic {
		return nil, fmt.Errorf("the gateway of this node has another NIC or bridge (%s): run coe-bridge gateway remove first", cmp.Or(reserved, mapped))
	}
	if r.flags.nic != "" {
		steps, err = r.reserve(ctx, reserved == r.flags.nic)
	} else {
		err = r.checkBridge(ctx)
	}
	if err != nil || mapped == bridge {
		return steps, err
	}
	return r.mapNetwork(ctx, steps, bridge)
}

// reserve lets a NIC that serves the gateway alone join its bridge. It is recorded as such before.
func (r *gatewayRouter) reserve(ctx context.Context, reserved bool) (steps []string, err error) {
	name := r.flags.nic
	if !reserved {
		if err := r.checkNIC(ctx); err != nil {
			return nil, err
		}
		if _, err := r.mover.JoinAlone(ctx, name, true); err != nil {
			return nil, err
		}
		if !r.flags.dryRun {
			if err := r.vswitch.SetGatewayNIC(ctx, name); err != nil {
				return nil, err
			}
		}
		steps = append(steps, fmt.Sprintf("reserve NIC %s for the gateway", name))
	}
	joined, err := r.mover.JoinAlone(ctx, name, r.flags.dryRun)
	return append(steps, texts(joined)...), err
}

// checkNIC fails if the node needs an address of the NIC.
func (r *gatewayRouter) checkNIC(ctx context.Context) error {
	var ports struct {
		List []managementPort `json:"management-port"`
	}
	if err := r.central.Get(ctx, client.Confirmed, "coe-netvirt:management-ports", &ports); err != nil {
		return err
	}
	internal, own := []netip.Addr{r.node}, []netip.Addr(nil)
	for _, p := range ports.List {
		if p.Node == r.node {
			internal, own = append(internal, p.Second), append(own, p.IPv6, p.ServiceIPv6, p.EdgeIPv6)
		}
	}
	name := r.flags.nic
	why, err := r.mover.Needed(name, internal, own)
	if err != nil || why == "" {
		return err
	}
	return fmt.Errorf("--physical-interface: %s, so it does not serve the gateway alone: remove its addresses (those from routers: set net.ipv6.conf.%s.disable_ipv6 to 1), or share the NIC (coe-bridge gateway nics-to-bridge %s, and --bridge-interface %s)",
		why, name, name, nic.BridgeOf(name))
}

func texts(steps []nic.Step) (all []string) {
	for _, step := range steps {
		all = append(all, step.String())
	}
	return all
}

// checkBridge fails unless the bridge exists and can have a network outside.
func (r *gatewayRouter) checkBridge(ctx context.Context) error {
	bridges, err := r.vswitch.Bridges(ctx)
	if err != nil {
		return err
	}
	name := r.flags.onBridge
	is, exists := bridges[name]
	switch {
	case !exists:
		return fmt.Errorf("--bridge-interface: the switch has no bridge %s: coe-bridge gateway nics-to-bridge creates one for a NIC", name)
	case name == r.flags.ovsBridge:
		return fmt.Errorf("--bridge-interface: %s is the bridge of pods: name a bridge with a NIC", name)
	case len(is.Interfaces) < 2:
		return fmt.Errorf("--bridge-interface: bridge %s has no NIC", name)
	}
	return nil
}

// mapNetwork gives the network of gateways a bridge; empty for none.
func (r *gatewayRouter) mapNetwork(ctx context.Context, steps []string, bridge string) ([]string, error) {
	if !r.flags.dryRun {
		if err := r.vswitch.Map(ctx, ovs.GatewayNetwork, bridge); err != nil {
			return steps, err
		}
	}
	text := fmt.Sprintf("map network %s to bridge %s", ovs.GatewayNetwork, bridge)
	if bridge == "" {
		text = "unmap network " + ovs.GatewayNetwork
	}
	return append(steps, text), nil
}

// remove undoes init, and returns the steps.
func (r *gatewayRouter) remove(ctx context.Context) (steps []string, err error) {
	has, err := r.configured(ctx)
	if err != nil {
		return nil, err
	}
	if has != nil {
		if err := r.configure(ctx, has, nil, r.flags.dryRun); err != nil {
			return nil, err
		}
		steps = append(steps, "delete the gateway at "+r.central.URL)
	}
	mapped, err := r.vswitch.BridgeOf(ctx, ovs.GatewayNetwork)
	if err == nil && mapped != "" {
		steps, err = r.mapNetwork(ctx, steps, "")
	}
	if err != nil {
		return steps, err
	}
	reserved, err := r.vswitch.GatewayNIC(ctx)
	if err != nil || reserved == "" {
		return steps, err
	}
	bridge := nic.BridgeOf(reserved)
	if !r.flags.dryRun {
		if err := r.vswitch.Disconnect(ctx, bridge); err != nil {
			return steps, err
		}
		left, err := r.release(ctx, reserved)
		steps = append(steps, texts(left)...)
		if err == nil {
			err = r.vswitch.SetGatewayNIC(ctx, "")
		}
		if err != nil {
			return steps, err
		}
		return append(steps, fmt.Sprintf("release NIC %s", reserved)), nil
	}
	return append(steps, fmt.Sprintf("release NIC %s, with bridge %s", reserved, bridge)), nil
}

// release lets a NIC leave its bridge. If the node has lost the NIC, release removes the bridge alone.
func (r *gatewayRouter) release(ctx context.Context, name string) ([]nic.Step, error) {
	if _, err := links.Look(r.netns, name); errors.Is(err, links.ErrNotFound) {
		return r.mover.Abandon(ctx, name, false)
	}
	return r.mover.Leave(ctx, nic.BridgeOf(name), false)
}

// gatewaysPath is the path of the gateways below the datastore, and gatewayMember the member of an answer with
// one of them.
const (
	gatewaysPath  = "/coe-gateways:gateways"
	gatewayMember = "coe-gateways:gateway"
)

func (r *gatewayRouter) path() string {
	return gatewaysPath + "/gateway=" + url.PathEscape(r.node.String())
}

// configured returns the node's gateway at the bridge; nil if there is none.
func (r *gatewayRouter) configured(ctx context.Context) (*gatewayEntry, error) {
	text, err := r.central.Data(ctx, r.path())
	if err != nil || text == nil {
		return nil, err
	}
	var body map[string][]gatewayEntry
	err = json.Unmarshal(text, &body)
	if err == nil && len(body[gatewayMember]) != 1 {
		err = errors.New("the answer has no gateway")
	}
	if err != nil {
		return nil, fmt.Errorf("read the gateway of node %s at %s: %w", r.node, r.central.URL, err)
	}
	e := body[gatewayMember][0]
	slices.SortFunc(e.Pinned, netip.Prefix.Compare)
	return &e, nil
}

// configure writes the node's gateway at the bridge, or deletes it. A dry run lets the bridge check it.
func (r *gatewayRouter) configure(ctx context.Context, has, want *gatewayEntry, dry bool) error {
	edit := client.Edit{ID: "gateway", Operation: "create", Target: r.path()}
	switch {
	case want == nil:
		edit.Operation = "delete"
	case has != nil:
		edit.Operation = "replace"
	}
	if want != nil {
		value, err := json.Marshal(map[string][]gatewayEntry{gatewayMember: {*want}})
		if err != nil {
			return err
		}
		edit.Value = value
	}
	if err := r.central.Patch(ctx, "", "", dry, []client.Edit{edit}); err != nil {
		return fmt.Errorf("%s the gateway of node %s at %s: %w", edit.Operation, r.node, r.central.URL, err)
	}
	return nil
}
