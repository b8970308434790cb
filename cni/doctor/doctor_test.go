package doctor_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/doctor"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Time limits for a check on a busy machine, and until a repair takes effect.
const (
	patience = 2 * time.Minute
	silence  = 15 * time.Second // for a check that gets no answer
	converge = 2 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// node is a node that has everything it needs.
type node struct {
	t      *testing.T
	lab    *ovnhost.Lab
	host   *ovnhost.Host
	bridge *bridgetest.Bridge
	ns     netns.NsHandle
	dir    string
	quiet  *slog.Logger
}

func newNode(t *testing.T) *node {
	n := &node{t: t, lab: ovnhost.ForTest(t, "n1"), dir: t.TempDir(), quiet: slog.New(slog.DiscardHandler)}
	n.host, n.bridge = n.lab.Host("n1"), bridgetest.Start(t, func(cfg *bridge.Config) {
		cfg.Nodes = ranges.NodesConfig{Network: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}}
	})
	var err error
	n.ns, err = netns.GetFromName(n.lab.Namespace("n1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.ns.Close()) })
	n.write("password", bridgetest.Password)
	n.write("net.d/10-coe.conflist", fmt.Sprintf(`{"name":"coe","cniVersion":"1.1.0","plugins":[{"type":"coe-cni","socket":%q}]}`, n.path("cni.sock")))
	n.build()
	status, answer := n.bridge.Do(http.MethodPut, "/rests/data/k8s-node:k8s-nodes-info/k8s-nodes=c0e00000-c0e0-4000-8000-000000000001", fmt.Sprintf(
		`{"k8s-node:k8s-nodes":[{"uid":"c0e00000-c0e0-4000-8000-000000000001","host-name":"n1","internal-ip-address":%q}]}`, n.host.Address))
	require.Equal(t, 2, status/100, "%d %s", status, answer)
	n.startAgent()
	n.putAddress("100.96.0.2/32")
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, text string) {
	n.t.Helper()
	require.NoError(n.t, os.MkdirAll(filepath.Dir(n.path(name)), 0o755))
	require.NoError(n.t, os.WriteFile(n.path(name), []byte(text), 0o600))
}

func (n *node) build() {
	n.t.Helper()
	build := exec.CommandContext(n.t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", n.path("bin/coe-cni"), "github.com/coe-bridge/coe-bridge/cmd/coe-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(n.t, err, "%s", out)
}

func (n *node) uplink(url string, change ...func(*uplink.Config)) *uplink.Uplink {
	n.t.Helper()
	cfg := uplink.Config{URLs: []string{url}, Node: n.host.Address, User: bridgetest.User, PasswordFile: n.path("password"), Dir: n.path("state"), Log: n.quiet}
	for _, c := range change {
		c(&cfg)
	}
	u, err := uplink.New(cfg)
	require.NoError(n.t, err)
	return u
}

func (n *node) vswitch(endpoint string) *ovs.Switch {
	n.t.Helper()
	s, err := ovs.New(ovs.Config{Endpoint: endpoint, Log: n.quiet})
	require.NoError(n.t, err)
	return s
}

// putAddress gives the node an address in the pod network, as an agent with a management port does.
func (n *node) putAddress(address string) {
	n.t.Helper()
	require.NoError(n.t, links.At(n.ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.AddrReplace(lo, &netlink.Addr{IPNet: links.IPNet(netip.MustParsePrefix(address))})
	}))
}

// startAgent runs an agent in the test's process until the test ends.
func (n *node) startAgent() {
	n.t.Helper()
	s, u := n.vswitch(n.host.OVSDB.Remote), n.uplink(n.bridge.URL())
	a, err := agent.New(agent.Config{Switch: s, Uplink: u, Node: n.ns, Dir: n.path("state"), Log: n.quiet, Registry: prometheus.NewRegistry()})
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	l, err := call.Listen(ctx, n.path("cni.sock"))
	require.NoError(n.t, err)
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	running.Go(func() { u.Run(ctx) })
	running.Go(func() { _ = call.Serve(ctx, l, n.quiet, a.Answer) })
	n.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	require.Eventually(n.t, func() bool { return s.Ready() == nil && u.Status().Synced }, converge, 10*time.Millisecond)
}

// config returns a configuration without findings.
func (n *node) config() doctor.Config {
	s := n.vswitch(n.host.OVSDB.Remote)
	return doctor.Config{
		Switch: s, NICs: nic.New(nic.Config{Switch: s, Netns: n.ns, Dir: n.path("nics"), Log: n.quiet}), Uplink: n.uplink(n.bridge.URL()), Bridges: []string{n.bridge.URL()}, OVN: true, Node: n.ns,
		Socket: n.path("cni.sock"), StateDir: n.path("state"), OVSRunDir: n.host.Dir, OVNRunDir: n.host.Dir,
		CNIBinDir: n.path("bin"), CNIConfDir: n.path("net.d"), Timeout: patience,
	}
}

// ill returns the findings that are not ok, by check. Checks of a bridge are listed by kind.
func ill(findings []doctor.Finding) map[string]doctor.Finding {
	found := map[string]doctor.Finding{}
	for _, f := range findings {
		kind, of, _ := strings.Cut(f.Check, " ")
		if !strings.HasPrefix(of, "http") {
			kind = f.Check
		}
		if f.Level != doctor.OK {
			found[kind] = f
		}
	}
	return found
}

// find examines the node, and fails unless exactly these checks are not ok.
func (n *node) find(cfg doctor.Config, want map[string]doctor.Level) map[string]doctor.Finding {
	n.t.Helper()
	found := ill(doctor.Examine(n.t.Context(), cfg))
	levels := map[string]doctor.Level{}
	for name, f := range found {
		levels[name] = f.Level
		require.Equal(n.t, f.Level != doctor.Unknown, f.Mend != "", "%+v", f)
	}
	require.Equal(n.t, want, levels, "%+v", found)
	return found
}

// well waits until all checks are ok.
func (n *node) well() {
	n.t.Helper()
	require.EventuallyWithT(n.t, func(c *assert.CollectT) {
		assert.Empty(c, ill(doctor.Examine(n.t.Context(), n.config())))
	}, converge, 100*time.Millisecond)
}

func (n *node) vsctl(args ...string) {
	n.t.Helper()
	_, err := n.host.VSCtl(n.t.Context(), args...)
	require.NoError(n.t, err)
}

type levels = map[string]doctor.Level

// TestExamine breaks one part of a healthy node after the other. Each failure is found, and no
// other failure is reported, except checks that depend on the part.
func TestExamine(t *testing.T) {
	n := newNode(t)
	n.well()
	for name, f := range map[string]func(*node){
		"switch": brokenSwitch, "datapath": brokenDatapath, "null NAT": brokenNullNAT, "NIC": brokenNIC, "gateway": brokenGateway, "physical": brokenPhysical, "pod network": brokenPodNetwork, "controller": brokenController, "cleartext": brokenSouthbound, "managers": openManagers, "tunnels": brokenTunnels, "mtu": brokenMTU,
		"OpenDaylight": brokenOpenDaylight,
		"bridge":       brokenBridge, "clock": brokenClock, "agent": brokenAgent, "plugin": brokenPlugin, "list": brokenList,
	} {
		t.Run(name, func(t *testing.T) {
			one := *n
			one.t = t
			f(&one)
			one.well()
		})
	}
}

func brokenSwitch(n *node) {
	cfg := n.config()
	cfg.Timeout = silence
	cfg.Switch = n.vswitch("unix:" + n.path("none.sock"))
	found := n.find(cfg, levels{
		"Open vSwitch": doctor.Failed, "datapath": doctor.Unknown, "gateway": doctor.Unknown, "southbound database": doctor.Unknown, "tunnels": doctor.Unknown, "mtu": doctor.Unknown,
	})
	require.Contains(n.t, found["Open vSwitch"].Found, "none.sock")

	cfg = n.config()
	var err error
	cfg.Switch, err = ovs.New(ovs.Config{Endpoint: n.host.OVSDB.Remote, Bridge: "br-none", Log: n.quiet})
	require.NoError(n.t, err)
	n.find(cfg, levels{"Open vSwitch": doctor.Failed, "datapath": doctor.Unknown})

	// A check that hangs is stopped.
	require.NoError(n.t, n.host.OVSDB.Stop())
	cfg = n.config()
	cfg.Timeout = 500 * time.Millisecond
	begun := time.Now()
	found = ill(doctor.Examine(n.t.Context(), cfg))
	require.Less(n.t, time.Since(begun), converge/2)
	require.NoError(n.t, n.host.OVSDB.Cont())
	require.Equal(n.t, doctor.Failed, found["Open vSwitch"].Level)

	require.NoError(n.t, n.host.VSwitchd.Stop())
	cfg = n.config()
	cfg.Timeout = silence
	found = n.find(cfg, levels{"ovs-vswitchd": doctor.Failed})
	require.Contains(n.t, found["ovs-vswitchd"].Found, "deadline")
	require.NoError(n.t, n.host.VSwitchd.Cont())
	cfg = n.config()
	cfg.OVSRunDir = n.dir
	found = n.find(cfg, levels{"ovs-vswitchd": doctor.Failed})
	require.Contains(n.t, found["ovs-vswitchd"].Found, "no control socket")
}

// If the kernel has the module, the kernel datapath is ok.
func brokenDatapath(n *node) {
	require.NoError(n.t, n.host.Controller.Kill()) // it would restore the setting
	n.vsctl("--no-wait", "set", "Bridge", "br-int", "datapath_type=system")
	_, missing := netlink.GenlFamilyGet("ovs_datapath")
	cfg := n.config()
	cfg.Timeout = silence
	found := ill(doctor.Examine(n.t.Context(), cfg))
	require.Equal(n.t, missing != nil, found["datapath"].Level == doctor.Failed, "%+v", found)
	n.vsctl("--no-wait", "set", "Bridge", "br-int", "datapath_type=netdev")
	require.NoError(n.t, n.host.Controller.Restart(n.t.Context()))
}

// The userspace datapath of Open vSwitch 3.1 must not get ct_zero_snat; later releases may. It can also
// apply policies late, which the finding says.
func brokenNullNAT(n *node) {
	version, err := exec.CommandContext(n.t.Context(), "ovs-vswitchd", "--version").Output()
	require.NoError(n.t, err)
	set := func(value string) {
		n.vsctl("--no-wait", "set", "Datapath", n.datapath(), "capabilities:ct_zero_snat="+value)
	}
	set("true")
	want := levels{}
	if strings.Contains(string(version), "(Open vSwitch) 3.1.") {
		want["datapath"] = doctor.Warning
	}
	found := n.find(n.config(), want)
	require.Equal(n.t, len(want) > 0, strings.Contains(found["datapath"].Mend, "ct_zero_snat=false"))
	set("false")
	all := doctor.Examine(n.t.Context(), n.config())
	datapath := all[slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == "datapath" })]
	require.Equal(n.t, doctor.OK, datapath.Level)
	require.Equal(n.t, len(want) > 0, strings.Contains(datapath.Found, "revalidator/purge"))
}

func brokenPodNetwork(n *node) {
	const name = "pod network"
	require.NoError(n.t, links.At(n.ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.AddrDel(lo, &netlink.Addr{IPNet: links.IPNet(netip.MustParsePrefix("100.96.0.2/32"))})
	}))
	found := n.find(n.config(), levels{name: doctor.Warning})
	require.Contains(n.t, found[name].Found, "the node has no management port")
	n.putAddress("100.96.0.2/32")
	cfg := n.config()
	cfg.StateDir = n.path("none")
	found = n.find(cfg, levels{name: doctor.Warning})
	require.Contains(n.t, found[name].Found, "no place in the pod network")
	n.write("isolated/interfaces.json", `{"place":{"node":"172.31.99.11","isolated":true,"name":"x","mac-address":"0a:58:ac:1f:63:0b","address":"172.31.99.11"}}`)
	cfg.StateDir = n.path("isolated")
	n.find(cfg, levels{})
	n.write("dual/interfaces.json", `{"place":{"node":"172.31.99.11","name":"x","mac-address":"0a:58:ac:1f:63:0b","address":"100.96.0.2","prefix-length":16,`+
		`"ipv6":{"address":"fd00:96::2","prefix-length":64}}}`)
	cfg.StateDir = n.path("dual")
	var settings links.Settings
	forward := func(value string) {
		_, err := settings.Put(n.ns, "ipv6/conf/all/forwarding", value)
		require.NoError(n.t, err)
	}
	forward("0")
	found = n.find(cfg, levels{"IPv6": doctor.Warning})
	require.Contains(n.t, found["IPv6"].Found, "does not forward IPv6 packets")
	forward("1")
	found = n.find(cfg, levels{"IPv6": doctor.Warning})
	require.Contains(n.t, found["IPv6"].Found, "no table ip6 coe-bridge")
	forward("0")
}

// A node is prepared for a gateway, and OVN has none on its chassis.
func brokenGateway(n *node) {
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=coe-gateway:br-phy")
	found := n.find(n.config(), levels{"gateway": doctor.Failed})
	require.Contains(n.t, found["gateway"].Found, "OVN has not connected the gateway of this node to br-phy")
	n.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
}

func brokenPhysical(n *node) {
	const name = "physical networks"
	by := func(bridge string) doctor.Config {
		cfg := n.config()
		cfg.Physical = ovs.Physical{Node: n.host.Address, Bridges: map[string]string{"plant": bridge}}
		return cfg
	}
	found := n.find(by("br-none"), levels{name: doctor.Failed})
	require.Contains(n.t, found[name].Found, "the switch has no bridge br-none")
	found = n.find(by("br-phy"), levels{name: doctor.Failed})
	require.Contains(n.t, found[name].Found, "ovn-bridge-mappings has no coe-plant@"+n.host.Address.String())
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=coe-plant@"+n.host.Address.String()+":br-phy")
	n.find(by("br-phy"), levels{})
	n.vsctl("add-br", "br-empty")
	found = n.find(by("br-empty"), levels{name: doctor.Warning})
	require.Contains(n.t, found[name].Found, "bridge br-empty of physical network plant has no NIC")
	n.vsctl("del-br", "br-empty")
	n.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
}

func brokenNIC(n *node) {
	const name = "NICs in bridges"
	dir := n.path("nics")
	require.NoError(n.t, os.Mkdir(dir, 0o700))
	record := func(nic, text string) {
		require.NoError(n.t, os.WriteFile(filepath.Join(dir, nic+".json"), []byte(text), 0o600))
	}
	record("gone", `{"nic":"gone","bridge":"brgone"}`)
	found := n.find(n.config(), levels{name: doctor.Failed})
	require.Contains(n.t, found[name].Found, "NIC gone of bridge brgone: the node has no such link")
	record("gone", "{")
	found = n.find(n.config(), levels{name: doctor.Failed})
	require.Contains(n.t, found[name].Found, "read the record of NIC gone")
	require.NoError(n.t, os.Remove(filepath.Join(dir, "gone.json")))

	require.NoError(n.t, links.At(n.ns, func(h *netlink.Handle) error {
		link := netlink.NewVeth(netlink.LinkAttrs{Name: "eth7", Flags: net.FlagUp})
		link.PeerName = "eth7-peer"
		return h.LinkAdd(link)
	}))
	record("eth7", `{"nic":"eth7","bridge":"breth7"}`)
	found = n.find(n.config(), levels{name: doctor.Warning})
	require.Contains(n.t, found[name].Found, "a move of eth7 in breth7 is not finished: record eth7 joins bridge breth7")
	require.NoError(n.t, os.RemoveAll(dir))
}

// datapath is the row of the userspace datapath.
func (n *node) datapath() string {
	n.t.Helper()
	out, err := n.host.VSCtl(n.t.Context(), "--bare", "--columns=_uuid", "list", "Datapath")
	require.NoError(n.t, err)
	return strings.TrimSpace(out)
}

func brokenController(n *node) {
	cfg := n.config()
	require.NoError(n.t, n.host.Controller.Kill())
	cfg.Timeout = silence
	n.find(cfg, levels{"ovn-controller": doctor.Failed})
	require.NoError(n.t, n.host.Controller.Restart(n.t.Context()))
	require.NoError(n.t, n.lab.SB.Kill())
	require.Eventually(n.t, func() bool {
		f := ill(doctor.Examine(n.t.Context(), n.config()))["ovn-controller"]
		return strings.Contains(f.Found, "not connected")
	}, converge, 100*time.Millisecond)
	require.NoError(n.t, n.lab.SB.Restart(n.t.Context()))
}

func brokenTunnels(n *node) {
	set := func(value string) {
		n.vsctl("--no-wait", "set", "Open_vSwitch", ".", "external_ids:ovn-encap-ip="+value)
	}
	for value, says := range map[string]string{`""`: "no external_ids:ovn-encap-ip", "192.0.2.99": "not an address of this node", "here": "here"} {
		set(value)
		found := n.find(n.config(), levels{"tunnels": doctor.Failed, "mtu": doctor.Unknown})
		require.Contains(n.t, found["tunnels"].Found, says)
	}
	set(n.host.Address.String())
}

// An unencrypted southbound database on another machine is a warning, and so is an ovn-controller that leaves a silent database soon.
// The failed connection of ovn-controller has its own finding.
func brokenSouthbound(n *node) {
	set := func(remote string) {
		n.vsctl("--no-wait", "set", "Open_vSwitch", ".", `external_ids:ovn-remote="`+remote+`"`)
	}
	const key = "external_ids:ovn-remote-probe-interval"
	set("ssl:192.0.2.1:6642")
	for _, interval := range []string{`""`, "0", "5000", "soon", "29999"} {
		n.vsctl("--no-wait", "set", "Open_vSwitch", ".", key+"="+interval)
		found := ill(doctor.Examine(n.t.Context(), n.config()))["southbound database"]
		require.Equal(n.t, doctor.Warning, found.Level, "%s: %+v", interval, found)
		require.Contains(n.t, found.Found, key+" is \""+strings.Trim(interval, `"`)+`"`)
		require.Contains(n.t, found.Mend, key+"=30000")
	}
	set("ssl:192.0.2.1:6642,ssl:192.0.2.2:6642") // ovn-controller has others to go to
	for interval, want := range map[string]doctor.Level{"9999": doctor.Warning, "10000": ""} {
		n.vsctl("--no-wait", "set", "Open_vSwitch", ".", key+"="+interval)
		require.Equal(n.t, want, ill(doctor.Examine(n.t.Context(), n.config()))["southbound database"].Level, interval)
	}
	n.vsctl("--no-wait", "set", "Open_vSwitch", ".", key+"=30000")
	defer n.vsctl("--no-wait", "remove", "Open_vSwitch", ".", "external_ids", "ovn-remote-probe-interval")
	for remote, want := range map[string]doctor.Level{
		"tcp:192.0.2.1:6642": doctor.Warning, "ssl:192.0.2.1:6642,tcp:[2001:db8::1]:6642": doctor.Warning,
		"ssl:192.0.2.1:6642": "", "tcp:127.0.0.1:6642": "",
	} {
		set(remote)
		found := ill(doctor.Examine(n.t.Context(), n.config()))["southbound database"]
		require.Equal(n.t, want, found.Level, "%s: %+v", remote, found)
		require.Equal(n.t, want != "", strings.Contains(found.Mend, "pssl: with role=ovn-controller"), remote)
	}
	set(n.lab.SB.Remote)
}

// A database of the switch that accepts unencrypted connections from other machines is a warning.
func openManagers(n *node) {
	for manager, want := range map[string]doctor.Level{"ptcp:16640": doctor.Warning, "ptcp:16640:127.0.0.1": "", "ptcp:16641:" + n.host.Address.String(): doctor.Warning} {
		n.vsctl("set-manager", manager)
		found := ill(doctor.Examine(n.t.Context(), n.config()))["Open vSwitch"]
		require.Equal(n.t, want, found.Level, "%s: %+v", manager, found)
		require.Equal(n.t, want != "", strings.Contains(found.Found, manager), "%+v", found)
	}
	n.vsctl("del-manager")
}

func brokenMTU(n *node) {
	h, err := netlink.NewHandleAt(n.ns)
	require.NoError(n.t, err)
	defer h.Close()
	under, err := h.LinkByName("br-phy")
	require.NoError(n.t, err)
	for mtu, level := range map[int]doctor.Level{1300: doctor.Failed, 1400: doctor.Warning} {
		n.vsctl("set", "Interface", "br-phy", fmt.Sprint("mtu_request=", mtu))
		require.NoError(n.t, h.LinkSetMTU(under, mtu))
		found := n.find(n.config(), levels{"mtu": level})
		require.Contains(n.t, found["mtu"].Found, fmt.Sprint("an MTU of ", mtu-58))
	}
	n.vsctl("set", "Interface", "br-phy", "mtu_request=1500")
	require.NoError(n.t, h.LinkSetMTU(under, 1500))
}

func brokenBridge(n *node) {
	cfg := n.config()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(n.t, err)
	require.NoError(n.t, l.Close())
	nobody := "http://" + l.Addr().String()
	cfg.Bridges = []string{nobody, n.bridge.URL()}
	found := n.find(cfg, levels{"bridge": doctor.Failed, "credentials": doctor.Unknown})
	require.Contains(n.t, found["bridge"].Found, "connection refused")

	// A server that never answers times out.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, silent.Close()) }()
	cfg = n.config()
	cfg.Bridges, cfg.Timeout = []string{"http://" + silent.Addr().String()}, silence
	n.find(cfg, levels{"bridge": doctor.Failed, "credentials": doctor.Unknown, "clock": doctor.Unknown})

	strange := httptest.NewUnstartedServer(http.NotFoundHandler())
	strange.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	strange.StartTLS()
	defer strange.Close()
	cfg = n.config()
	cfg.Bridges = []string{strange.URL}
	found = n.find(cfg, levels{"bridge": doctor.Failed, "credentials": doctor.Unknown, "clock": doctor.Unknown})
	require.Contains(n.t, found["bridge"].Mend, "--ca-file")
	cfg = n.config()
	cfg.Bridges = []string{strange.URL}
	cfg.Uplink = n.uplink(strange.URL, func(c *uplink.Config) { c.TLS = func() *tls.Config { return &tls.Config{RootCAs: trusting(strange)} } })
	found = n.find(cfg, levels{"bridge": doctor.Failed, "credentials": doctor.Unknown, "clock": doctor.Unknown})
	require.Contains(n.t, found["bridge"].Found, "404", "it is not a bridge")

	waits := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok\nwarning: no new pod gets an interface\n")
	}))
	defer waits.Close()
	cfg = n.config()
	cfg.Bridges = []string{waits.URL}
	found = n.find(cfg, levels{"bridge": doctor.Failed})
	require.Equal(n.t, "no new pod gets an interface", found["bridge"].Found)
	require.Contains(n.t, found["bridge"].Mend, "coe-bridge status")

	n.write("wrong", "not the password")
	cfg = n.config()
	cfg.Uplink = n.uplink(n.bridge.URL(), func(c *uplink.Config) { c.PasswordFile = n.path("wrong") })
	found = n.find(cfg, levels{"credentials": doctor.Failed})
	require.Contains(n.t, found["credentials"].Mend, "renew the certificate, token or password")
	cfg = n.config()
	cfg.Uplink = n.uplink(n.bridge.URL(), func(c *uplink.Config) { c.PasswordFile = n.path("none") })
	n.find(cfg, levels{"credentials": doctor.Failed})
	cfg = n.config()
	cfg.Anonymous = true
	cfg.Uplink = n.uplink(n.bridge.URL(), func(c *uplink.Config) { c.User, c.PasswordFile = "", "" })
	found = n.find(cfg, levels{"credentials": doctor.Failed})
	require.Contains(n.t, found["credentials"].Mend, "give the agent credentials")
	require.NotContains(n.t, found["credentials"].Found, "{", "the message alone")
}

// brokenClock is a bridge with another time.
func brokenClock(n *node) {
	for off, level := range map[time.Duration]doctor.Level{time.Minute: doctor.Failed, -time.Hour: doctor.Failed, 10 * time.Second: doctor.Warning} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
		}))
		cfg := n.config()
		cfg.Bridges = []string{server.URL}
		found := n.find(cfg, levels{"clock": level})
		require.Contains(n.t, found["clock"].Mend, "NTP")
		server.Close()
	}
}

func brokenAgent(n *node) {
	cfg := n.config()
	cfg.Socket = n.path("none.sock")
	found := n.find(cfg, levels{"agent": doctor.Failed, "network configuration list": doctor.Failed})
	require.Contains(n.t, found["network configuration list"].Found, "names the socket")

	// An agent that hangs, and an agent without its switch.
	silent, err := net.Listen("unix", n.path("silent.sock"))
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, silent.Close()) }()
	cfg.Socket, cfg.Timeout = n.path("silent.sock"), silence
	found = n.find(cfg, levels{"agent": doctor.Failed, "network configuration list": doctor.Failed})
	require.Contains(n.t, found["agent"].Found, "deadline")

	require.NoError(n.t, n.host.OVSDB.Kill())
	require.Eventually(n.t, func() bool {
		cfg := n.config()
		cfg.Timeout = 5 * time.Second
		return strings.Contains(ill(doctor.Examine(n.t.Context(), cfg))["agent"].Found, "cannot attach pods")
	}, converge, 100*time.Millisecond)
	require.NoError(n.t, n.host.OVSDB.Restart(n.t.Context()))
}

func brokenPlugin(n *node) {
	cfg := n.config()
	cfg.CNIBinDir = n.path("none")
	n.find(cfg, levels{"plugin": doctor.Failed})
	n.write("unable/coe-cni", "#!/bin/sh\n")
	cfg = n.config()
	cfg.CNIBinDir = n.path("unable")
	found := n.find(cfg, levels{"plugin": doctor.Failed})
	require.Contains(n.t, found["plugin"].Found, "permission denied")
	require.NoError(n.t, os.Chmod(n.path("unable/coe-cni"), 0o755))
	cfg = n.config()
	cfg.CNIBinDir = n.path("unable")
	found = n.find(cfg, levels{"plugin": doctor.Failed})
	require.Contains(n.t, found["plugin"].Found, "is not a CNI plugin")
}

func brokenList(n *node) {
	lists := func(files map[string]string) doctor.Config {
		dir := n.t.TempDir()
		for name, text := range files {
			require.NoError(n.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		cfg := n.config()
		cfg.CNIConfDir = dir
		return cfg
	}
	ours := fmt.Sprintf(`{"type":"coe-cni","socket":%q}`, n.path("cni.sock"))
	for _, c := range []struct {
		level doctor.Level
		says  string
		files map[string]string
	}{
		{doctor.Failed, "no network in", nil},
		{doctor.Failed, "no network in", map[string]string{"10-other.conflist": `{"plugins":[{"type":"bridge"}]}`, "20-coe.conflist.off": ours}},
		{doctor.Failed, "names the socket /run/coe-bridge/cni.sock", map[string]string{"10-coe.conf": `{"type":"coe-cni"}`}},
		{doctor.Failed, "read ", map[string]string{"10-coe.conf": `{`}},
		{doctor.Warning, "the runtime takes 00-multus.conf", map[string]string{"00-multus.conf": `{"type":"multus"}`, "10-coe.conf": ours}},
	} {
		found := n.find(lists(c.files), levels{"network configuration list": c.level})
		require.Contains(n.t, found["network configuration list"].Found, c.says)
	}
	cfg := n.config()
	cfg.CNIConfDir = n.path("none")
	n.find(cfg, levels{"network configuration list": doctor.Failed})
}

// Without root the program reports an error, also with its exit status.
func TestPermissions(t *testing.T) {
	if testing.Short() {
		t.Skip("needs root, to be somebody else: run without -short")
	}
	require.Zero(t, os.Geteuid(), "run as root")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "coe-bridge")
	text, err := os.ReadFile(bridgetest.Program(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	doctorAs := func(attributes *syscall.SysProcAttr, args ...string) []doctor.Finding {
		cmd := exec.CommandContext(t.Context(), program, append(args, "--bridge", "http://127.0.0.1:1", "--node-address", "127.0.0.1", "--timeout", "1s", "-o", "json")...)
		cmd.SysProcAttr = attributes
		out, err := cmd.Output()
		require.ErrorContains(t, err, "exit status 1")
		var findings []doctor.Finding
		require.NoError(t, json.Unmarshal(out, &findings), "%s", out)
		return findings
	}
	found := ill(doctorAs(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "doctor"))
	require.Contains(t, found["permissions"].Found, "the process runs as user 65534")
	require.NotEmpty(t, found["permissions"].Mend)
	require.NotContains(t, ill(doctorAs(nil, "doctor", "--state-dir", dir)), "permissions")
	found = ill(doctorAs(nil, "doctor", "--net-settings", dir))
	require.Contains(t, found["permissions"].Found, "write to "+dir)
	require.Contains(t, found["permissions"].Mend, "--net-settings")

	out, err := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-net_admin", program, "doctor",
		"--bridge", "http://127.0.0.1:1", "--node-address", "127.0.0.1", "--timeout", "1s").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "root without capability CAP_NET_ADMIN")
	require.Contains(t, string(out), "=> add it to securityContext.capabilities")
	require.NotContains(t, string(out), "\x1b", "nothing is coloured")
}

func trusting(server *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}
