package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// agentFlags are the flags of coe-bridge agent.
type agentFlags struct {
	bridges                       []string
	node                          string
	user, passwordFile, tokenFile string
	caFile, cert, key             string
	socket, stateDir              string
	ovsDB, ovsBridge, ready       string
	healthListen                  string
	callDeadline, sweepInterval   time.Duration
	cleanup                       bool
	logLevel, logFormat           string
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
/healthz, /readyz and /metrics are on --health-listen.`,
		Example: `  # the node 192.168.33.11, of a bridge with two replicas
  coe-bridge agent --bridge https://192.168.33.1:8181,https://192.168.33.2:8181 \
    --node-address 192.168.33.11 --ca-file ca.pem --cert node.pem --key node-key.pem

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
	flags.StringSliceVar(&f.bridges, "bridge", nil, "URLs of the bridge's replicas, any of which will do")
	flags.StringVar(&f.node, "node-address", "", "address of this node, as the bridge knows it")
	flags.StringVarP(&f.user, "user", "u", "", "user for the bridge (with --password-file)")
	flags.StringVar(&f.passwordFile, "password-file", "", "file whose first line is the user's password; read again at each request")
	flags.StringVar(&f.tokenFile, "token-file", "", "file whose first line is a bearer token, as that of a service account; read again at each request")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM file of the authority that signed the bridge's certificate")
	flags.StringVar(&f.cert, "cert", "", "PEM file of a client certificate (with --key)")
	flags.StringVar(&f.key, "key", "", "PEM file of the client certificate's key")
	flags.StringVar(&f.socket, "socket", call.DefaultSocket, "unix socket on which coe-cni is answered")
	flags.StringVar(&f.stateDir, "state-dir", "/var/lib/coe-bridge/agent", "folder in which is kept what the bridge has told")
	flags.StringVar(&f.ovsDB, "ovs-db", "unix:/run/openvswitch/db.sock", "database of this node's Open vSwitch: unix:PATH or tcp:HOST:PORT")
	flags.StringVar(&f.ovsBridge, "ovs-bridge", "br-int", "bridge that pods are plugged into")
	flags.StringVar(&f.ready, "pod-ready", string(ovs.OVNInstalled), "when a pod is connected: ovn-installed, as OVN says, or link-up, where another controller is in charge")
	flags.StringVar(&f.healthListen, "health-listen", "127.0.0.1:8182", "address of /healthz, /readyz and /metrics; empty: none")
	flags.DurationVar(&f.callDeadline, "call-deadline", 30*time.Second, "how long a call of coe-cni may take")
	flags.DurationVar(&f.sweepInterval, "sweep-interval", time.Minute, "how often leftovers of pods that are gone are looked for")
	flags.BoolVar(&f.cleanup, "cleanup", false, "unplug all pods, remove what the agent has made and keeps, and end")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	for name, values := range map[string][]string{
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
		"pod-ready": {string(ovs.OVNInstalled), string(ovs.LinkUp)},
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
		return f.cleanUp(ctx, parts)
	}
	return f.serve(ctx, parts, log)
}

// agentParts are what an agent is made of.
type agentParts struct {
	node     netns.NsHandle
	uplink   *uplink.Uplink
	ovs      *ovs.Switch
	agent    *agent.Agent
	registry *prometheus.Registry
}

func (f *agentFlags) parts(log *slog.Logger) (p agentParts, err error) {
	if err := os.MkdirAll(f.stateDir, 0o700); err != nil {
		return p, fmt.Errorf("make --state-dir: %w", err)
	}
	if p.uplink, err = f.uplink(log); err != nil {
		return p, err
	}
	p.ovs, err = ovs.New(ovs.Config{Endpoint: f.ovsDB, Bridge: f.ovsBridge, Ready: ovs.Readiness(f.ready), Log: log})
	if err != nil {
		return p, fmt.Errorf("--pod-ready: %w", err)
	}
	if p.node, err = netns.Get(); err != nil {
		return p, fmt.Errorf("open the node's network namespace: %w", err)
	}
	p.registry = prometheus.NewRegistry()
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.agent, err = agent.New(agent.Config{
		Switch: p.ovs, Uplink: p.uplink, Node: p.node, Dir: f.stateDir,
		Deadline: f.callDeadline, Sweep: f.sweepInterval, Log: log, Registry: p.registry,
	})
	return p, err
}

func (f *agentFlags) uplink(log *slog.Logger) (*uplink.Uplink, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	node, err := netip.ParseAddr(f.node)
	if err != nil {
		return nil, fmt.Errorf("--node-address: %w", err)
	}
	cfg := uplink.Config{
		URLs: f.bridges, Node: node, User: f.user, PasswordFile: f.passwordFile, TokenFile: f.tokenFile, Dir: f.stateDir, Log: log,
	}
	if cfg.TLS, err = clientTLS(fileFlag{"--ca-file", f.caFile}, fileFlag{"--cert", f.cert}, fileFlag{"--key", f.key}); err != nil {
		return nil, err
	}
	if f.cert != "" { // read at each connection: it may be renewed
		cfg.TLS.Certificates = nil
		cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}
	}
	up, err := uplink.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--bridge: %w", err)
	}
	return up, nil
}

// check refuses flags that contradict each other, or would be passed over.
func (f *agentFlags) check() error {
	switch {
	case len(f.bridges) == 0:
		return errors.New("no bridge to learn from: name its URLs with --bridge")
	case f.passwordFile != "" && f.tokenFile != "":
		return errors.New("two ways to say who the agent is: --password-file and --token-file; give one of them")
	case (f.user == "") != (f.passwordFile == ""):
		return errors.New("--user and --password-file belong together")
	case f.callDeadline <= 0:
		return fmt.Errorf("--call-deadline %s: want a time above 0", f.callDeadline)
	case f.sweepInterval <= 0:
		return fmt.Errorf("--sweep-interval %s: want a time above 0", f.sweepInterval)
	}
	return nil
}
