package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/files"
)

// onNode has the flags of commands on a node: which node it is, its credentials, and where
// the parts of the node are.
type onNode struct {
	bridges                       []string
	node                          string
	user, passwordFile, tokenFile string
	tls                           flags.TLS
	socket                        string
	physical                      map[string]string // bridges of physical networks
	onSwitch
	backend ovs.Controller
}

// onSwitch has the flags of commands that change this node's switch: where it is, and where the state of
// the node is.
type onSwitch struct{ stateDir, ovsDB, ovsBridge, settings string }

func (f *onSwitch) register(set *pflag.FlagSet) {
	set.StringVar(&f.stateDir, "state-dir", "/var/lib/coe-bridge/agent", "folder of the agent's state")
	set.StringVar(&f.ovsDB, "ovs-db", "unix:/run/openvswitch/db.sock", "database of this node's Open vSwitch: unix:PATH or tcp:HOST:PORT")
	set.StringVar(&f.ovsBridge, "ovs-bridge", "br-int", "Open vSwitch bridge to which pods are attached")
	set.StringVar(&f.settings, "net-settings", string(links.DefaultSettings), "folder of the kernel's network settings; in an unprivileged container, a mount of the node's /proc/sys/net")
}

// runDirs has the flags of the control sockets of daemons.
type runDirs struct{ ovs, ovn string }

func (f *runDirs) register(set *pflag.FlagSet) {
	set.StringVar(&f.ovs, "ovs-run-dir", "/run/openvswitch", "folder with the control sockets of Open vSwitch")
	set.StringVar(&f.ovn, "ovn-run-dir", "/run/ovn", "folder with the control sockets of OVN")
}

// nicDir is the folder of the records of NICs in bridges.
func (f *onSwitch) nicDir() string { return filepath.Join(f.stateDir, "nics") }

func (f *onNode) register(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringSliceVar(&f.bridges, "bridge", nil, "URLs of the bridge's replicas; any of them is used")
	set.StringVar(&f.node, "node-address", "", "address of this node in the bridge")
	set.StringVarP(&f.user, "user", "u", "", "user for the bridge (with --password-file)")
	set.StringVar(&f.passwordFile, "password-file", "", "file whose first line is the user's password; read again at each request")
	set.StringVar(&f.tokenFile, "token-file", "", "file whose first line is a bearer token, such as a service account's; read again at each request")
	flags.FileVar(set, &f.tls.CA, "ca-file", "PEM file of the CA of the bridge's certificate; default: the system's CAs; read again when it changes")
	flags.FileVar(set, &f.tls.Cert, "cert", "PEM file of a client certificate (with --key); read again when it changes")
	flags.FileVar(set, &f.tls.Key, "key", "PEM file of the client certificate's key")
	set.StringVar(&f.socket, "socket", call.DefaultSocket, "unix socket for the calls of coe-cni")
	set.StringToStringVar(&f.physical, "physical-bridge", nil,
		"bridges of Open vSwitch that connect this node to physical networks, NETWORK=BRIDGE, several with commas; the bridge names the networks with --physical-network")
	f.onSwitch.register(set)
	f.backend = ovs.OVN
	flags.Choice[ovs.Controller]{Value: &f.backend, Words: []ovs.Controller{ovs.OVN, ovs.OpenDaylight}}.Register(cmd, "backend", "",
		"backend that programs this node's switch, as in coe-bridge serve: ovn or odl (OpenDaylight)")
}

// nodeAddress returns the address of --node-address.
func nodeAddress(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, errors.New("name the address of this node in the bridge with --node-address, such as 10.33.74.10 (coe-bridge get nodes lists them)")
	}
	node, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("--node-address %q: want an IPv4 or IPv6 address, such as 10.33.74.10", text)
	}
	return node, nil
}

// uplink returns the connection to the bridge. It keeps its state in dir; "" is for a
// connection without state. The files of its TLS are followed.
func (f *onNode) uplink(dir string, follow *files.Follower, log *slog.Logger) (*uplink.Uplink, error) {
	switch {
	case len(f.bridges) == 0:
		return nil, errors.New("no bridge is given: name its URLs with --bridge")
	case f.passwordFile != "" && f.tokenFile != "":
		return nil, errors.New("two kinds of credentials: --password-file and --token-file; give one of them")
	case (f.user == "") != (f.passwordFile == ""):
		return nil, errors.New("--user and --password-file belong together")
	}
	node, err := nodeAddress(f.node)
	if err != nil {
		return nil, err
	}
	cfg := uplink.Config{
		URLs: f.bridges, Node: node, User: f.user, PasswordFile: f.passwordFile, TokenFile: f.tokenFile,
		OpenDaylight: f.backend == ovs.OpenDaylight, Dir: dir, Log: log,
	}
	client, err := f.tls.Client(follow)
	if err != nil {
		return nil, err
	}
	cfg.TLS = client.Config
	up, err := uplink.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--bridge: %w", err)
	}
	return up, nil
}

// physicalBridges returns the physical networks that the node is connected to.
func (f *onNode) physicalBridges() (p ovs.Physical, err error) {
	if p.Node, err = nodeAddress(f.node); err != nil {
		return p, err
	}
	if len(f.physical) > 0 && f.backend != ovs.OVN {
		return p, errors.New("--physical-bridge is given with --backend odl: only OVN has physical networks")
	}
	p.Bridges = f.physical
	networks := map[string]string{}
	for network, bridge := range f.physical {
		other, twice := networks[bridge]
		networks[bridge] = network
		switch {
		case twice:
			return p, fmt.Errorf("--physical-bridge: networks %s and %s have one bridge, %s: give it one name, because equal VLANs of both would be one network", min(network, other), max(network, other), bridge)
		case network == "" || bridge == "" || strings.ContainsAny(network+bridge, ":,@"):
			return p, fmt.Errorf("--physical-bridge %s=%s: want NETWORK=BRIDGE, without colons, commas and at signs", network, bridge)
		case bridge == f.ovsBridge:
			return p, fmt.Errorf("--physical-bridge %s=%s: %s is the bridge of the pods: name the one with the NIC to the network", network, bridge, bridge)
		}
	}
	return p, nil
}

// vswitch returns the node's switch. agent is set for the agent.
func (f *onNode) vswitch(agent bool, log *slog.Logger) (*ovs.Switch, error) {
	return ovs.New(ovs.Config{Endpoint: f.ovsDB, Bridge: f.ovsBridge, Controller: f.backend, GivesBack: agent, Log: log})
}
