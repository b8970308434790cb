package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// serveFlags are the flags of coe-bridge serve.
type serveFlags struct {
	listen, authFile, tlsCert, tlsKey, clientCA string
	clientRoles, auditLog                       string
	dev                                         bool
	bodyLimit                                   int64
	agentInterfaces                             int
	requestTimeout                              time.Duration

	dataDir                                               string
	quota                                                 int64
	etcdEndpoints                                         []string
	etcdCA, etcdCert, etcdKey, etcdUser, etcdPasswordFile string
	etcdMaxTxnOps                                         int
	backends                                              []string
	backend                                               backendFlags
	settings                                              settingsFlags
	kubernetes                                            kubernetesFlags
	pools                                                 poolFlags
	nodePools                                             bool
	nodes                                                 nodeFlags
	podMTU                                                uint16
	reuseDelay, resync                                    time.Duration
	logLevel, logFormat                                   string
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Watch Kubernetes, serve RESTCONF, and make the backend agree with both",
		Long: `serve takes pods, services and nodes from Kubernetes, over RESTCONF, or both, gives
pods addresses of pools, and makes the backend agree. What it is told over RESTCONF
and what it chooses it keeps in etcd (its own, or an external one).

Several replicas share an external etcd: all serve, one of them leads and writes, and
another takes over when that one is gone.

RESTCONF is at /restconf/config and /restconf/operational (draft-02, as OpenDaylight
speaks it) and at /rests/data (RFC 8040).
/healthz, /readyz and /metrics need no credentials.`,
		Example: `  # try it: user admin, password admin, nothing kept
  coe-bridge serve --dev

  # OVN, kept in /var/lib/coe-bridge, users from a file
  install -d -m 0700 /etc/coe-bridge
  coe-bridge passwd admin > /etc/coe-bridge/users
  coe-bridge serve --auth-file /etc/coe-bridge/users --data-dir /var/lib/coe-bridge \
    --backend ovn --ovn-nb unix:/run/ovn/ovnnb_db.sock

  # the pods of a Kubernetes cluster, with addresses of 10.11.0.0/16
  coe-bridge serve --auth-file /etc/coe-bridge/users --data-dir /var/lib/coe-bridge \
    --kubeconfig /etc/coe-bridge/kubeconfig --pool 10.11.0.0/16 \
    --service-network 10.96.0.0/12 --backend ovn --ovn-nb unix:/run/ovn/ovnnb_db.sock

  # an external etcd
  coe-bridge serve --auth-file users --etcd-endpoints https://10.0.0.1:2379 \
    --etcd-ca ca.pem --etcd-cert client.pem --etcd-key client-key.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	return cmd
}

func (f *serveFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8181", "address on which clients are served")
	flags.StringVar(&f.authFile, "auth-file", "", "file with a user:role:hash line for each user (coe-bridge passwd writes them); read again when it changes")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM file of the server's certificate; makes it https (with --tls-key)")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.clientCA, "client-ca", "", "PEM file of the authority of clients' certificates (with --tls-cert); without --client-roles every client must show one, beside user and password")
	flags.StringVar(&f.clientRoles, "client-roles", "", "file with a role:ATTRIBUTE=value line for each client certificate, or group of them, that is enough without a password, the role reader, writer or node (with --client-ca)")
	flags.StringVar(&f.auditLog, "audit-log", "", "file to which a line of JSON is added for each request that is to change something, or - for standard output")
	flags.BoolVar(&f.dev, "dev", false, "for trying out on loopback: user admin, password admin, data in a temporary folder unless --data-dir is given")
	flags.Int64Var(&f.bodyLimit, "body-limit", restconf.DefaultBodyLimit, "largest request body, in bytes")
	flags.IntVar(&f.agentInterfaces, "agent-interfaces", bridge.DefaultAgentInterfaces, "how many interfaces the pods on a node may have for its agent to make further pods; where Kubernetes is watched agents make none")
	flags.DurationVar(&f.requestTimeout, "request-timeout", restconf.DefaultTimeout, "how long a request may take")
	flags.StringVar(&f.dataDir, "data-dir", "", "folder of the embedded etcd")
	flags.Int64Var(&f.quota, "quota", datastore.DefaultQuota, "how large the embedded etcd's database may become, in bytes")
	flags.StringSliceVar(&f.etcdEndpoints, "etcd-endpoints", nil, "URLs of an external etcd, instead of the embedded one")
	flags.StringVar(&f.etcdCA, "etcd-ca", "", "PEM file of the CA of etcd's certificates; read again when it changes")
	flags.StringVar(&f.etcdCert, "etcd-cert", "", "PEM file of a client certificate for etcd (with --etcd-key); read again when it changes")
	flags.StringVar(&f.etcdKey, "etcd-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.etcdUser, "etcd-user", "", "user for etcd (with --etcd-password-file)")
	flags.StringVar(&f.etcdPasswordFile, "etcd-password-file", "", "file whose first line is the user's password")
	flags.IntVar(&f.etcdMaxTxnOps, "etcd-max-txn-ops", 0, "the external etcd's --max-txn-ops, where it is not the default of 128")
	flags.StringSliceVar(&f.backends, "backend", []string{"memory"}, "what realises the model: "+strings.Join(bridge.Backends(), ", ")+
		"; of several with commas the first serves, and the others are kept filled")
	_ = cmd.RegisterFlagCompletionFunc("backend", cobra.FixedCompletions(bridge.Backends(), cobra.ShellCompDirectiveNoFileComp))
	f.backend.register(cmd)
	f.settings.register(cmd)
	f.kubernetes.register(cmd)
	f.pools.register(cmd)
	flags.BoolVar(&f.nodePools, "node-pod-cidrs", false, "make every node's pod-cidrs pools for the pods on it")
	f.nodes.register(cmd)
	flags.Uint16Var(&f.podMTU, "pod-mtu", 0, "MTU of pods' interfaces; 0: what their node finds right")
	flags.DurationVar(&f.reuseDelay, "address-reuse-delay", 30*time.Second, "how long an address waits for its pod to come back before another pod gets it")
	flags.DurationVar(&f.resync, "resync-interval", 5*time.Minute, "how often the backend is read anew, to repair what others changed")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	for name, values := range map[string][]string{
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// logClients has client-go log as we do. It has one log for the whole process.
var logClients sync.Once

func (f *serveFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	log, err := newLog(f.logLevel, f.logFormat, stderr)
	if err != nil {
		return err
	}
	logClients.Do(func() { klog.SetSlogLogger(log.With("component", "client-go")) })
	cfg, cleanUp, err := f.config(stdout, log)
	if err != nil {
		return err
	}
	defer cleanUp()
	f.warnOfCleartext(log)
	b, err := bridge.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	log.Info("serving", "url", b.URL(), "backend", strings.Join(f.backends, ","), "version", version)
	if inClear(b.URL()) {
		log.Warn("passwords and tokens travel in clear: give --tls-cert and --tls-key, or have it listen on 127.0.0.1", "url", b.URL())
	}
	if f.fixedUsers() {
		fmt.Fprintf(stderr, "\n*** development mode: anyone who reaches %s is in with user admin, password admin ***\n\n", b.URL())
	}
	return b.Run(ctx)
}

// newLog writes a log from a level on, in a format, as --log-level and --log-format
// name them.
func newLog(from, format string, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(from)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", from)
	}
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}

// warnOfCleartext logs each connection to another machine that is not encrypted.
func (f *serveFlags) warnOfCleartext(log *slog.Logger) {
	warn := func(flag, value, want string) {
		log.Warn("a connection is not encrypted: other machines can read it, change it and use its credentials; want "+want, "flag", flag, "value", value)
	}
	if slices.ContainsFunc(f.etcdEndpoints, inClear) {
		warn("--etcd-endpoints", strings.Join(f.etcdEndpoints, ","), "https://")
	}
	if slices.Contains(f.backends, "ovn") && slices.ContainsFunc(ovs.Remotes(f.backend.ovnNB), ovs.Remote.Cleartext) {
		warn("--ovn-nb", f.backend.ovnNB, "ssl:")
	}
	if slices.Contains(f.backends, "odl") && slices.ContainsFunc(strings.Split(f.backend.odlURL, ","), inClear) {
		warn("--odl-url", f.backend.odlURL, "https://")
	}
}

// inClear reports whether other machines can read what is sent to a URL. Without a scheme
// the URL is one of etcd, which speaks HTTP then.
func inClear(at string) bool {
	at = strings.TrimSpace(at)
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	u, err := url.Parse(at)
	return err == nil && u.Scheme == "http" && !ovs.Loopback(u.Hostname())
}
