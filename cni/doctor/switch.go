package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/daemons"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/remotes"
	"github.com/coe-bridge/coe-bridge/cni/unixctl"
)

// capabilities are the capabilities that the agent needs to attach pods.
var capabilities = map[string]int{"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN}

// permissions checks that this process may do what the agent must do.
func (c *Config) permissions(context.Context) (string, error) {
	if id := os.Geteuid(); id != 0 {
		return "", failed(fmt.Errorf("the process runs as user %d", id), "run agent and doctor as root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return "", fmt.Errorf("read capabilities: %w", err)
	}
	for name, bit := range capabilities {
		if has[bit/32].Effective&(1<<(bit%32)) == 0 {
			return "", failed(fmt.Errorf("root without capability %s", name),
				"add it to securityContext.capabilities of the agent's container, as in deploy/kubernetes/agent, or to CapabilityBoundingSet of its systemd unit")
		}
	}
	if err := unix.Access(c.StateDir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
		return "", failed(fmt.Errorf("write to %s: %w", c.StateDir, err), "make the directory of --state-dir writable")
	}
	if err := c.Settings.Writable(); err != nil {
		return "", failed(err, "mount the node's /proc/sys/net into the agent's container and name the mount with --net-settings, as in deploy/kubernetes/agent")
	}
	return "root with the required capabilities", nil
}

// database checks that the switch's database answers, has the bridge, and accepts no
// connections from other machines: a writer controls the network of the node's pods.
func (c *Config) database(ctx context.Context) (string, error) {
	if _, err := c.Switch.Settings(ctx); err != nil {
		return "", failed(err, "start Open vSwitch (systemctl start openvswitch-switch), or name its database with --ovs-db")
	}
	if err := c.Switch.Ready(); err != nil {
		return "", failed(err, c.bridgeMaker()+", or name it with --ovs-bridge")
	}
	open, err := c.Switch.OpenListeners()
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	if len(open) > 0 {
		return "", warning(fmt.Errorf("its database listens without encryption or credentials: manager %s", strings.Join(open, ", ")),
			"run ovs-vsctl del-manager, or let it listen on 127.0.0.1 or pssl:")
	}
	return "its database answers and has the bridge", nil
}

func (c *Config) bridgeMaker() string {
	if c.OVN {
		return "let ovn-controller create the bridge"
	}
	return "let the switch connect to OpenDaylight (coe-bridge agent --ovs-manager), which creates the bridge"
}

func (c *Config) vswitchd(ctx context.Context) (string, error) {
	version, err := unixctl.Ask(ctx, c.OVSRunDir, "ovs-vswitchd", "version")
	if err != nil {
		return "", failed(err, "start ovs-vswitchd, or name the directory of its sockets with --ovs-run-dir")
	}
	first, _, _ := strings.Cut(version, "\n")
	return first, nil
}

// datapath checks that the bridge has a datapath: the kernel module, or the userspace
// datapath of ovs-vswitchd.
func (c *Config) datapath(ctx context.Context) (string, error) {
	inUserspace, err := c.Switch.Userspace(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	if inUserspace {
		return c.userspace(ctx)
	}
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return "", failed(fmt.Errorf("the bridge uses the kernel datapath, which is not available: %w", err),
			"run modprobe openvswitch, or set datapath_type=netdev for the userspace datapath")
	}
	return "kernel", nil
}

// nics checks that the NICs that have joined a bridge are in it, with their addresses on the bridge.
func (c *Config) nics(ctx context.Context) (string, error) {
	joined, err := c.NICs.Joined(ctx)
	if err != nil {
		if _, err := c.Switch.Settings(ctx); err != nil {
			return "", unknown(errNoSwitch)
		}
		return "", failed(err, "see docs/gateways.md")
	}
	names := make([]string, len(joined))
	for i, one := range joined {
		names[i] = one.NIC + " in " + one.Bridge
		if len(one.Pending) > 0 {
			return "", warning(fmt.Errorf("a move of %s is not finished: %s", names[i], one.Pending[0]),
				"start the agent, which finishes it, or run coe-bridge gateway nics-to-bridge "+one.NIC)
		}
	}
	switch {
	case len(names) == 0:
		return "none", nil
	case !c.NICs.ReleasedAtBoot():
		return "", warning(fmt.Errorf("%s: %s is not enabled, so the node is possibly not reachable by these NICs after a boot", strings.Join(names, ", "), nic.ReleaseUnit),
			"enable the service on the node (docs/gateways.md); doctor does not see it from inside a container")
	}
	return strings.Join(names, ", "), nil
}

// gateway checks that the gateway of this node at the bridge is on this chassis.
func (c *Config) gateway(ctx context.Context) (string, error) {
	bridge, err := c.Switch.BridgeOf(ctx, ovs.GatewayNetwork)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	if bridge == "" {
		return "none", nil
	}
	connected, err := c.Switch.GatewayConnected(ctx)
	switch {
	case err != nil:
		return "", unknown(errNoSwitch)
	case !connected:
		return "", failed(fmt.Errorf("OVN has not connected the gateway of this node to %s: it has the system-id of another chassis, or coe-bridge has no gateway for this node", bridge),
			"run coe-bridge gateway init again (docs/gateways.md)")
	}
	return "connected to " + bridge, nil
}

// faultyUserspace is the Open vSwitch release with two faults of the userspace datapath. NAT that
// changes no address can crash ovs-vswitchd. A datapath flow can stay while packets use it, although the
// tables have changed.
const faultyUserspace = "(Open vSwitch) 3.1."

// userspace checks that OVN does not ask a faulty userspace datapath for such NAT.
func (c *Config) userspace(ctx context.Context) (string, error) {
	version, _ := unixctl.Ask(ctx, c.OVSRunDir, "ovs-vswitchd", "version") // no answer has its own finding
	if c.OVN && strings.Contains(version, faultyUserspace) {
		asks, err := c.Switch.NullNAT(ctx)
		if err != nil {
			return "", unknown(errNoSwitch)
		}
		if asks {
			return "", warning(errors.New("userspace connection tracking of Open vSwitch 3.1 sometimes crashes ovs-vswitchd when OVN uses ct_zero_snat"),
				"after each start of ovs-vswitchd, run: ovs-vsctl --no-wait set Datapath $(ovs-vsctl --bare --columns=_uuid list Datapath) capabilities:ct_zero_snat=false")
		}
		return "userspace, in ovs-vswitchd 3.1: if it applies a changed network policy late, run ovs-appctl revalidator/purge", nil
	}
	return "userspace, in ovs-vswitchd", nil
}

// controller checks that ovn-controller runs and is connected to its database.
func (c *Config) controller(ctx context.Context) (string, error) {
	status, err := unixctl.Ask(ctx, c.OVNRunDir, "ovn-controller", "connection-status")
	if err != nil {
		return "", failed(err, "start ovn-controller (systemctl start ovn-controller), or name the directory of its socket with --ovn-run-dir")
	}
	if status != "connected" {
		return "", failed(fmt.Errorf("ovn-controller's connection to the southbound database: %s", status),
			"check that external_ids:ovn-remote of the switch names it, and that this node can connect to it")
	}
	return "connected to the southbound database", nil
}

// leastProbe is the minimum for external_ids:ovn-remote-probe-interval, in milliseconds. Busy machines are silent for some seconds.
// After a reconnection, ovn-controller installs all flows again. With several remotes it is leastProbeOfMany, because a member that
// is away must be left.
const (
	leastProbe       = 30000
	leastProbeOfMany = 10000
)

// southbound checks that traffic with the southbound database is encrypted, and that ovn-controller is patient with it. Anyone who
// can change that traffic, or write to the database, controls the network of all pods.
func (c *Config) southbound(ctx context.Context) (string, error) {
	settings, err := c.Switch.Settings(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	servers := remotes.Southbound(settings)
	for _, r := range servers {
		if r.Cleartext() {
			return "", warning(fmt.Errorf("external_ids:ovn-remote: the connection to tcp:%s is not encrypted, and the server cannot authenticate this node", net.JoinHostPort(r.Host, fmt.Sprint(r.Port))),
				"let the database listen on pssl: with role=ovn-controller, give this node a certificate, and use ssl: in external_ids:ovn-remote (docs/certificates.md)")
		}
	}
	const key = "ovn-remote-probe-interval"
	least := leastProbe
	if len(servers) > 1 {
		least = leastProbeOfMany
	}
	if interval, err := strconv.Atoi(settings[key]); (err != nil || interval < least) && len(servers) > 0 {
		return "", warning(fmt.Errorf("external_ids:%s is %q: ovn-controller leaves a database that is silent for twice as many milliseconds (5000 if nothing is set), and pods lose packets when it returns", key, settings[key]),
			fmt.Sprintf("run ovs-vsctl set Open_vSwitch . external_ids:%s=%d", key, least))
	}
	return "no unencrypted traffic leaves this node", nil
}

// tunnels checks that the switch has the settings to reach other nodes.
func (c *Config) tunnels(ctx context.Context) (string, error) {
	settings, err := c.Switch.Settings(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	for _, key := range []string{"system-id", "ovn-remote", "ovn-encap-type", "ovn-encap-ip"} {
		if settings[key] == "" {
			return "", failed(fmt.Errorf("the switch has no external_ids:%s", key), "run ovs-vsctl set Open_vSwitch . external_ids:"+key+"=…")
		}
	}
	recorded, err := c.Switch.RecordedChassis(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	if name, _ := daemons.ChassisName(ctx, c.OVNRunDir, recorded); name != "" && name != settings["system-id"] {
		return "", warning(fmt.Errorf("ovn-controller has this node by the name %s (its option -n, or the file system-id-override), and not by external_ids:system-id", name),
			"give both the same name; the agent reports the name of ovn-controller, and coe-bridge gateway takes the system-id")
	}
	if len(recorded) > 1 {
		return "", warning(fmt.Errorf("ovn-controller has recorded several names of this node: %s", strings.Join(recorded, ", ")),
			"for all that ovn-sbctl does not list as a chassis with this host name, run ovs-vsctl remove Open_vSwitch . other_config ovn-chassis-idx-NAME; an agent in a container takes the last one")
	}
	const mend = "run ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip=… with an address of this node"
	for text := range strings.SplitSeq(settings["ovn-encap-ip"], ",") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return "", failed(fmt.Errorf("external_ids:ovn-encap-ip: %w", err), mend)
		}
		if _, err := links.MTUOf(c.Node, address); err != nil {
			return "", failed(fmt.Errorf("the tunnel address is not an address of this node: %w", err), mend)
		}
	}
	return settings["ovn-encap-type"] + " from " + settings["ovn-encap-ip"], nil
}

const (
	// leastMTU is the minimum MTU of IPv6. usualMTU is what tunnels leave of a usual link.
	leastMTU = 1280
	usualMTU = 1400
)

// mtu checks the MTU that tunnels leave to pods.
func (c *Config) mtu(ctx context.Context) (string, error) {
	tunnels, err := c.Switch.Tunnels(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	left, err := agent.TunnelMTU(c.Node, tunnels)
	switch {
	case err != nil:
		return "", unknown(errors.New("the tunnel address must be set first"))
	case left < leastMTU:
		return "", failed(fmt.Errorf("tunnels leave pods an MTU of %d, but IPv6 needs %d", left, leastMTU), "raise the MTU of the link with address "+tunnels.From)
	case left < usualMTU:
		return "", warning(fmt.Errorf("tunnels leave pods an MTU of %d", left), "raise the MTU of the link with address "+tunnels.From)
	}
	return fmt.Sprintf("tunnels leave pods an MTU of %d", left), nil
}
