package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The hosts' addresses start at firstHost, in a separate network per lab.
var (
	underlayPrefix = netip.MustParsePrefix("172.31.99.0/24")
	firstHost      = netip.MustParseAddr("172.31.99.11")
)

// Central is the address of the central namespace in the underlay: the hosts reach programs in that namespace
// at it.
var Central = netip.MustParseAddr("172.31.99.1")

// maxHosts is the number of addresses from firstHost on.
const maxHosts = 244

const (
	integrationBridge = "br-int" // OVN's
	physicalBridge    = "br-phy" // has the host's link and its address
	hostLink          = "eth0"   // the link of hosts to the underlay, and of pods
)

// Host is a host of a lab: a network namespace with its own switch.
type Host struct {
	Name    string
	Address netip.Addr // in the underlay; the end of its tunnels
	// Dir has the sockets of its switch: the OVS_RUNDIR of programs.
	Dir string

	OVSDB      *Database
	VSwitchd   *Process
	Controller *Process // OVN's; nil in a lab of switches only
}

func (l *Lab) addUnderlay(ctx context.Context) error {
	name := l.Namespace(CentralNamespace)
	if err := l.addNamespace(ctx, name); err != nil {
		return err
	}
	err := withLinks(name, func(h *netlink.Handle) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: underlayBridge}}
		if err := h.LinkAdd(bridge); err != nil {
			return fmt.Errorf("add bridge %s: %w", underlayBridge, err)
		}
		if err := addAddress(h, underlayBridge, netip.PrefixFrom(Central, underlayPrefix.Bits())); err != nil {
			return err
		}
		return setUp(h, underlayBridge)
	})
	if err != nil {
		return err
	}
	return softwareChecksums(ctx, name, underlayBridge)
}

// softwareChecksums lets the kernel compute the checksums of packets that leave through a link. The userspace
// datapath drops TCP packets without a complete checksum.
func softwareChecksums(ctx context.Context, namespace, link string) error {
	_, err := output(ctx, "ip", "netns", "exec", namespace, "ethtool", "--offload", link, "tx", "off")
	return err
}

func (l *Lab) startHost(ctx context.Context, i int, name string) (*Host, error) {
	dir := filepath.Join(l.Dir, name)
	host := &Host{Name: name, Address: nth(firstHost, i), Dir: dir}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := l.addNamespace(ctx, l.Namespace(name)); err != nil {
		return nil, err
	}
	if err := l.joinUnderlay(ctx, i, l.Namespace(name)); err != nil {
		return nil, fmt.Errorf("join the underlay: %w", err)
	}
	if err := l.startSwitch(ctx, host, dir); err != nil {
		return nil, err
	}
	if l.switchesOnly {
		return host, nil
	}
	return host, l.startController(ctx, host, dir)
}

// nth returns the i-th address after first.
func nth(first netip.Addr, i int) netip.Addr {
	for range i {
		first = first.Next()
	}
	return first
}

// underlayLink returns the name of the central end of a host's link.
func underlayLink(i int) string { return "u" + strconv.Itoa(i) }

// joinUnderlay connects a host to the underlay. The kernel of the host must not answer for its addresses on the link, which the
// userspace datapath of the switch reads too: others would take the MAC address of the link for that of the bridge, and the
// switches of other hosts would lead their tunnels there, where nothing takes the packets.
func (l *Lab) joinUnderlay(ctx context.Context, i int, host string) error {
	if err := l.linkToUnderlay(underlayLink(i), host); err != nil {
		return err
	}
	_, err := output(ctx, "ip", "netns", "exec", host, "sysctl", "--quiet", "--write",
		"net.ipv4.conf."+hostLink+".arp_ignore=8", "net.ipv6.conf."+hostLink+".disable_ipv6=1")
	if err != nil {
		return fmt.Errorf("silence link %s: %w", hostLink, err)
	}
	return withLinks(host, func(h *netlink.Handle) error { return setUp(h, hostLink) })
}

// linkToUnderlay creates a link between a namespace and the underlay. Its central end has the name and is up.
func (l *Lab) linkToUnderlay(name, namespace string) error {
	peer, err := netns.GetFromName(namespace)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", namespace, err)
	}
	defer func() { _ = peer.Close() }()
	return withLinks(l.Namespace(CentralNamespace), func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(underlayBridge)
		if err != nil {
			return fmt.Errorf("find bridge %s: %w", underlayBridge, err)
		}
		link := netlink.NewVeth(netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index})
		link.PeerName, link.PeerNamespace = hostLink, netlink.NsFd(peer)
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("add link %s: %w", name, err)
		}
		return setUp(h, name)
	})
}

// managers lets the database of a host connect to the managers in it.
const managers = "--remote=db:Open_vSwitch,Open_vSwitch,manager_options"

func (l *Lab) startSwitch(ctx context.Context, host *Host, dir string) (err error) {
	if host.OVSDB, err = l.startDatabase(ctx, host.Name+"/ovsdb", host.Name, dir, vswitchSchema, managers); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Base(strings.TrimPrefix(host.OVSDB.Remote, "unix:")), filepath.Join(dir, "db.sock")); err != nil {
		return fmt.Errorf("link socket: %w", err)
	}
	settings := []string{"--no-wait", "init", "--", "set", "Open_vSwitch", ".",
		"external_ids:system-id=" + host.Name, "external_ids:hostname=" + host.Name}
	if !l.switchesOnly {
		settings = append(settings,
			`external_ids:ovn-remote="`+l.SB.Remote+`"`, "external_ids:ovn-bridge-datapath-type=netdev",
			"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip="+host.Address.String())
	}
	if _, err := host.VSCtl(ctx, settings...); err != nil {
		return fmt.Errorf("configure switch: %w", err)
	}
	host.VSwitchd = l.newProcess(host.Name+"/vswitchd", l.Namespace(host.Name),
		"ovs-vswitchd", host.OVSDB.Remote, "-vsyslog:off", "--unixctl="+host.control())
	host.VSwitchd.env = runDir(dir)
	host.VSwitchd.ready = func(ctx context.Context) error { // existing bridges get their links a little later
		return Poll(ctx, func(ctx context.Context) error {
			return errors.Join(l.addBridges(ctx, host), host.keepNeighbours(ctx))
		})
	}
	return host.VSwitchd.Start(ctx)
}

// neighbourAge is how many seconds the switch knows the MAC addresses of the other ends of tunnels: the maximum. By default it
// forgets them after fifteen minutes, and the userspace datapath loses packets until it has found them again.
const neighbourAge = "3600"

func (h *Host) keepNeighbours(ctx context.Context) error {
	if _, err := output(ctx, "ovs-appctl", "--target="+h.control(), "tnl/neigh/aging", neighbourAge); err != nil {
		return fmt.Errorf("keep the neighbours of tunnels: %w", err)
	}
	return nil
}

// addBridges creates the host's bridges. The address must be set after each start of the switch, because the
// bridge's link is removed with its process.
func (l *Lab) addBridges(ctx context.Context, host *Host) error {
	_, err := host.VSCtl(ctx,
		"--may-exist", "add-br", integrationBridge, "--", "set", "Bridge", integrationBridge, "datapath_type=netdev", "fail_mode=secure", "--",
		"--may-exist", "add-br", physicalBridge, "--", "set", "Bridge", physicalBridge, "datapath_type=netdev", "--",
		"--may-exist", "add-port", physicalBridge, hostLink)
	if err != nil {
		return fmt.Errorf("add bridges: %w", err)
	}
	err = withLinks(l.Namespace(host.Name), func(h *netlink.Handle) error {
		address := netip.PrefixFrom(host.Address, underlayPrefix.Bits())
		if err := addAddress(h, physicalBridge, address); err != nil {
			return err
		}
		return setUp(h, physicalBridge)
	})
	if err != nil {
		return err
	}
	if err := softwareChecksums(ctx, l.Namespace(host.Name), physicalBridge); err != nil || l.switchesOnly {
		return err
	}
	if err := host.avoidNullNAT(ctx); !errors.Is(err, errNoCapabilities) { // at the first start OVN is not running yet
		return err
	}
	return nil
}

// errNoCapabilities is the error if the switch has not yet reported the capabilities of its datapath.
var errNoCapabilities = errors.New("the switch has not reported the capabilities of its datapath")

// avoidNullNAT keeps OVN from NAT that changes no address. The userspace connection tracking of Open vSwitch
// 3.1 sometimes takes such a connection for its reverse one, and crashes the daemon ("assertion
// conn->conn_type == ..."). It must be called again after a restart of the daemon; connections from
// before are dropped.
func (h *Host) avoidNullNAT(ctx context.Context) error {
	out, err := h.VSCtl(ctx, "--bare", "--columns=_uuid", "find", "Datapath", "capabilities!={}")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) == "" {
		return errNoCapabilities
	}
	if out, err = h.VSCtl(ctx, "--bare", "--columns=_uuid", "find", "Datapath", "capabilities:ct_zero_snat=true"); err != nil {
		return err
	}
	all := strings.Fields(out)
	if len(all) == 0 {
		return nil // ovn-controller has restarted, and the daemon has not
	}
	for _, datapath := range all {
		if _, err := h.VSCtl(ctx, "--no-wait", "set", "Datapath", datapath, "capabilities:ct_zero_snat=false"); err != nil {
			return fmt.Errorf("configure datapath: %w", err)
		}
	}
	if err := Poll(ctx, h.noNullNAT); err != nil {
		return err
	}
	_, err = output(ctx, "ovs-appctl", "--target="+h.control(), "dpctl/flush-conntrack")
	return err
}

// noNullNAT fails unless OVN has removed such NAT from the switch.
func (h *Host) noNullNAT(ctx context.Context) error {
	flows, err := h.Flows(ctx)
	if err == nil && strings.Contains(flows, "nat(src)") {
		err = errors.New("OVN still configures NAT that changes no address")
	}
	return err
}

// Versions returns the versions of OVN and Open vSwitch in PATH.
func Versions(ctx context.Context) (string, error) {
	northd, err := output(ctx, "ovn-northd", "--version")
	if err != nil {
		return "", err
	}
	vswitchd, err := output(ctx, "ovs-vswitchd", "--version")
	first := func(text string) string { return strings.SplitN(text, "\n", 2)[0] }
	return first(northd) + ", " + first(vswitchd), err
}

// HasStaleFlows reports whether the hosts run Open vSwitch 3.1. While packets use a flow of its
// userspace datapath, it can keep the flow although the OpenFlow tables have changed. For example, a
// flow that drops new connections stays as long as somebody tries to connect. Open vSwitch 3.5
// removes such flows.
func (l *Lab) HasStaleFlows(ctx context.Context) (bool, error) {
	for _, h := range l.Hosts {
		version, err := output(ctx, "ovs-appctl", "--target="+h.control(), "version")
		if err != nil || strings.Contains(version, " 3.1.") {
			return true, err
		}
	}
	return false, nil
}

// ForgetFlows removes all datapath flows of the hosts. Packets make them again, from the OpenFlow
// tables. Connections stay.
func (l *Lab) ForgetFlows(ctx context.Context) error {
	for _, h := range l.Hosts {
		if _, err := output(ctx, "ovs-appctl", "--target="+h.control(), "revalidator/purge"); err != nil {
			return fmt.Errorf("remove datapath flows of %s: %w", h.Name, err)
		}
	}
	return nil
}

// ForgetConnections removes all tracked connections of the hosts.
func (l *Lab) ForgetConnections(ctx context.Context) error {
	for _, h := range l.Hosts {
		if _, err := output(ctx, "ovs-appctl", "--target="+h.control(), "dpctl/flush-conntrack"); err != nil {
			return fmt.Errorf("remove tracked connections of %s: %w", h.Name, err)
		}
	}
	return nil
}

// Recompute makes OVN compute all flows of the hosts, not only the changed ones. ovn-controller 23.03 keeps flows of port security for
// a port that has moved to a host, if the port was plugged in there before ovn-controller received the move.
// They match the tunnel keys of the former switch, and drop packets when another port gets these keys.
func (l *Lab) Recompute(ctx context.Context) error {
	for _, h := range l.Hosts {
		pid, err := h.Controller.PID()
		if err == nil {
			_, err = output(ctx, "ovn-appctl", "--target="+filepath.Join(h.Dir, fmt.Sprintf("ovn-controller.%d.ctl", pid)), "inc-engine/recompute")
		}
		if err != nil {
			return fmt.Errorf("compute the flows of %s: %w", h.Name, err)
		}
	}
	return nil
}

// Flows returns the OpenFlow flows of OVN, a line for each.
func (h *Host) Flows(ctx context.Context) (string, error) {
	return output(ctx, "ovs-ofctl", "dump-flows", "unix:"+filepath.Join(h.Dir, integrationBridge+".mgmt"))
}

// control returns the path of the daemon's control socket.
func (h *Host) control() string { return filepath.Join(h.Dir, "ovs-vswitchd.0.ctl") }

func (l *Lab) startController(ctx context.Context, host *Host, dir string) error {
	host.Controller = l.newProcess(host.Name+"/controller", l.Namespace(host.Name),
		"ovn-controller", host.OVSDB.Remote, "-vsyslog:off")
	host.Controller.env = runDir(dir)
	host.Controller.ready = func(ctx context.Context) error {
		if _, err := l.SB.PID(); err == nil { // the hosts follow this database, and none on machines
			if _, err := l.SBCtl(ctx, "wait-until", "Chassis", host.Name); err != nil {
				return err
			}
		}
		return Poll(ctx, host.avoidNullNAT)
	}
	return host.Controller.Start(ctx)
}

// VSCtl runs ovs-vsctl on the host's switch, and returns its output.
func (h *Host) VSCtl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "ovs-vsctl", append([]string{"--db=" + h.OVSDB.Remote}, args...)...)
}

func addAddress(h *netlink.Handle, link string, address netip.Prefix) error {
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	a := &netlink.Addr{IPNet: ipNet(address)}
	if err := h.AddrReplace(l, a); err != nil {
		return fmt.Errorf("add address %s to link %s: %w", address, link, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
