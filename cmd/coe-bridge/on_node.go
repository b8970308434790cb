package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/files"
)

// onNode are the flags of what runs on a node: which node that is, who asks the bridge,
// and where the node's parts are.
type onNode struct {
	bridges                       []string
	node                          string
	user, passwordFile, tokenFile string
	caFile, cert, key             string
	socket, stateDir              string
	ovsDB, ovsBridge              string
	settings                      string
	backend                       ovs.Controller
}

func (f *onNode) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.bridges, "bridge", nil, "URLs of the bridge's replicas, any of which will do")
	flags.StringVar(&f.node, "node-address", "", "address of this node, as the bridge knows it")
	flags.StringVarP(&f.user, "user", "u", "", "user for the bridge (with --password-file)")
	flags.StringVar(&f.passwordFile, "password-file", "", "file whose first line is the user's password; read again at each request")
	flags.StringVar(&f.tokenFile, "token-file", "", "file whose first line is a bearer token, as that of a service account; read again at each request")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM file of the CA of the bridge's certificate; default: the system's CAs; read again when it changes")
	flags.StringVar(&f.cert, "cert", "", "PEM file of a client certificate (with --key); read again when it changes")
	flags.StringVar(&f.key, "key", "", "PEM file of the client certificate's key")
	flags.StringVar(&f.socket, "socket", call.DefaultSocket, "unix socket on which coe-cni is answered")
	flags.StringVar(&f.stateDir, "state-dir", "/var/lib/coe-bridge/agent", "folder in which is kept what the bridge has told")
	flags.StringVar(&f.ovsDB, "ovs-db", "unix:/run/openvswitch/db.sock", "database of this node's Open vSwitch: unix:PATH or tcp:HOST:PORT")
	flags.StringVar(&f.ovsBridge, "ovs-bridge", "br-int", "bridge that pods are plugged into")
	flags.StringVar(&f.settings, "net-settings", string(links.DefaultSettings), "folder of the kernel's network settings; in a container that is not privileged, a mount of the node's /proc/sys/net")
	f.backend = ovs.OVN
	choice[ovs.Controller]{&f.backend, []ovs.Controller{ovs.OVN, ovs.OpenDaylight}}.register(cmd, "backend", "",
		"who programs this node's switch: ovn, or odl, that is OpenDaylight; the backend of the bridge that serves")
}

// uplink is the connection to the bridge. It keeps what it learns in dir; "" is for one
// that learns nothing. The files of its TLS are followed.
func (f *onNode) uplink(dir string, follow *files.Follower, log *slog.Logger) (*uplink.Uplink, error) {
	switch {
	case len(f.bridges) == 0:
		return nil, errors.New("no bridge to learn from: name its URLs with --bridge")
	case f.passwordFile != "" && f.tokenFile != "":
		return nil, errors.New("two ways to say who the agent is: --password-file and --token-file; give one of them")
	case (f.user == "") != (f.passwordFile == ""):
		return nil, errors.New("--user and --password-file belong together")
	}
	node, err := netip.ParseAddr(f.node)
	if err != nil {
		return nil, fmt.Errorf("--node-address: %w", err)
	}
	cfg := uplink.Config{
		URLs: f.bridges, Node: node, User: f.user, PasswordFile: f.passwordFile, TokenFile: f.tokenFile, Dir: dir, Log: log,
	}
	client, err := clientTLS(follow, fileFlag{"--ca-file", f.caFile}, fileFlag{"--cert", f.cert}, fileFlag{"--key", f.key})
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

// vswitch is the node's switch.
func (f *onNode) vswitch(log *slog.Logger) (*ovs.Switch, error) {
	return ovs.New(ovs.Config{Endpoint: f.ovsDB, Bridge: f.ovsBridge, Controller: f.backend, Log: log})
}
