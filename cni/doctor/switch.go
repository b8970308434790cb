package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// capabilities are those without which the agent can plug no pod in.
var capabilities = map[string]int{"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN}

// permissions looks whether this process may do what the agent has to.
func (c *Config) permissions(context.Context) (string, error) {
	if id := os.Geteuid(); id != 0 {
		return "", failed(fmt.Errorf("this runs as user %d", id), "run agent and doctor as root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return "", fmt.Errorf("read capabilities: %w", err)
	}
	for name, bit := range capabilities {
		if has[bit/32].Effective&(1<<(bit%32)) == 0 {
			return "", failed(fmt.Errorf("root without %s", name),
				"add it to securityContext.capabilities of the agent's container, as in deploy/kubernetes/agent, or to CapabilityBoundingSet of its unit")
		}
	}
	if err := unix.Access(c.StateDir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
		return "", failed(fmt.Errorf("write to %s: %w", c.StateDir, err), "make the folder of --state-dir writable")
	}
	if err := c.Settings.Writable(); err != nil {
		return "", failed(err, "mount the node's /proc/sys/net into the agent's container and name the mount with --net-settings, as in deploy/kubernetes/agent")
	}
	return "root, with the capabilities that it takes", nil
}

// database looks whether the switch's database answers, has the bridge, and does not listen
// to other machines: a writer to it controls the network of the node's pods.
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
			"ovs-vsctl del-manager, or have it listen on 127.0.0.1 or pssl:")
	}
	return "its database answers, and has the bridge", nil
}

func (c *Config) bridgeMaker() string {
	if c.OVN {
		return "have ovn-controller make the bridge"
	}
	return "have the switch connect to OpenDaylight (coe-bridge agent --ovs-manager), which makes the bridge"
}

func (c *Config) vswitchd(ctx context.Context) (string, error) {
	version, err := ask(ctx, c.OVSRunDir, "ovs-vswitchd", "version")
	if err != nil {
		return "", failed(err, "start ovs-vswitchd, or name the folder of its sockets with --ovs-run-dir")
	}
	first, _, _ := strings.Cut(version, "\n")
	return first, nil
}

// datapath looks whether there is what carries the packets: the kernel's module, or
// ovs-vswitchd itself.
func (c *Config) datapath(ctx context.Context) (string, error) {
	inUserspace, err := c.Switch.Userspace(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	if inUserspace {
		return c.userspace(ctx)
	}
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return "", failed(fmt.Errorf("the bridge wants the kernel's datapath, which is not there: %w", err),
			"modprobe openvswitch, or set datapath_type=netdev for one in user space")
	}
	return "in the kernel", nil
}

// nullNATFails is in the version of the Open vSwitch whose connection tracking in user
// space ends ovs-vswitchd at connections that are translated to what they are.
const nullNATFails = "(Open vSwitch) 3.1."

// userspace looks whether OVN asks the datapath in user space for what that fails at.
func (c *Config) userspace(ctx context.Context) (string, error) {
	version, _ := ask(ctx, c.OVSRunDir, "ovs-vswitchd", "version") // where it does not answer, that has its own finding
	if c.OVN && strings.Contains(version, nullNATFails) {
		asks, err := c.Switch.NullNAT(ctx)
		if err != nil {
			return "", unknown(errNoSwitch)
		}
		if asks {
			return "", warning(errors.New("connection tracking in user space of Open vSwitch 3.1 ends ovs-vswitchd now and then where OVN uses ct_zero_snat"),
				"after each start of ovs-vswitchd: ovs-vsctl --no-wait set Datapath $(ovs-vsctl --bare --columns=_uuid list Datapath) capabilities:ct_zero_snat=false")
		}
	}
	return "in user space, by ovs-vswitchd", nil
}

// controller looks whether ovn-controller runs and has its database.
func (c *Config) controller(ctx context.Context) (string, error) {
	says, err := ask(ctx, c.OVNRunDir, "ovn-controller", "connection-status")
	if err != nil {
		return "", failed(err, "start ovn-controller (systemctl start ovn-controller), or name the folder of its socket with --ovn-run-dir")
	}
	if says != "connected" {
		return "", failed(fmt.Errorf("ovn-controller is %s to the southbound database", says),
			"see that external_ids:ovn-remote of the switch names it, and that it is reached from here")
	}
	return "connected to the southbound database", nil
}

// southbound looks whether the traffic with the southbound database is encrypted.
// Whoever changes that traffic, or writes to the database, controls the network of all
// pods.
func (c *Config) southbound(ctx context.Context) (string, error) {
	settings, err := c.Switch.Settings(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	for _, r := range ovs.SouthboundRemotes(settings) {
		if r.Cleartext() {
			return "", warning(fmt.Errorf("external_ids:ovn-remote: the connection to tcp:%s is not encrypted, and the server cannot know this node", net.JoinHostPort(r.Host, fmt.Sprint(r.Port))),
				"have the database listen on pssl: with role=ovn-controller, give this node a certificate, and write ssl: in external_ids:ovn-remote (docs/operations.md)")
		}
	}
	return "no cleartext beyond this node", nil
}

// tunnels looks whether the switch knows how to reach other nodes.
func (c *Config) tunnels(ctx context.Context) (string, error) {
	says, err := c.Switch.Settings(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	for _, key := range []string{"system-id", "ovn-remote", "ovn-encap-type", "ovn-encap-ip"} {
		if says[key] == "" {
			return "", failed(fmt.Errorf("the switch has no external_ids:%s", key), "ovs-vsctl set Open_vSwitch . external_ids:"+key+"=…")
		}
	}
	const mend = "ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip=…, an address of this node"
	for text := range strings.SplitSeq(says["ovn-encap-ip"], ",") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return "", failed(fmt.Errorf("external_ids:ovn-encap-ip: %w", err), mend)
		}
		if _, err := links.MTUOf(c.Node, address); err != nil {
			return "", failed(fmt.Errorf("tunnels begin at an address that this node does not have: %w", err), mend)
		}
	}
	return says["ovn-encap-type"] + " from " + says["ovn-encap-ip"], nil
}

const (
	// leastMTU is what IPv6 needs; usualMTU what tunnels leave of the usual one.
	leastMTU = 1280
	usualMTU = 1400
)

// mtu looks what tunnels leave to pods.
func (c *Config) mtu(ctx context.Context) (string, error) {
	tunnels, err := c.Switch.Tunnels(ctx)
	if err != nil {
		return "", unknown(errNoSwitch)
	}
	left, err := agent.TunnelMTU(c.Node, tunnels)
	switch {
	case err != nil:
		return "", unknown(errors.New("the address at which tunnels begin has to be right first"))
	case left < leastMTU:
		return "", failed(fmt.Errorf("tunnels leave pods an MTU of %d, and IPv6 needs %d", left, leastMTU), "raise the MTU of the link that has "+tunnels.From)
	case left < usualMTU:
		return "", warning(fmt.Errorf("tunnels leave pods an MTU of %d", left), "raise the MTU of the link that has "+tunnels.From)
	}
	return fmt.Sprintf("tunnels leave pods an MTU of %d", left), nil
}
