// Package serve has the command that runs a bridge.
package serve

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
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cni/ovs/remotes"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// serveFlags are the flags of coe-bridge serve.
type serveFlags struct {
	listen, authFile, clientCA string
	tlsCert, tlsKey            files.File
	clientRoles, auditLog      string
	dev                        bool
	bodyLimit                  int64
	agentInterfaces            int
	requestTimeout             time.Duration

	dataDir                    string
	quota                      int64
	etcdEndpoints              []string
	etcdTLS                    flags.TLS
	etcdUser, etcdPasswordFile string
	etcdMaxTxnOps              int
	backends                   []string
	backend                    flags.Backends
	settings                   flags.Mapping
	kubernetes                 kubernetesFlags
	pools                      flags.Pools
	nodePools                  bool
	nodes                      flags.Nodes
	podMTU, egressPort         uint16
	reuseDelay, resync         time.Duration
	log                        flags.Log
	version                    string
}

// New returns the command serve of a program of this version.
func New(version string) *cobra.Command {
	f := serveFlags{version: version}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the bridge: watch Kubernetes, serve RESTCONF, program the backend",
		Long: `serve takes pods, services and nodes from Kubernetes, over RESTCONF, or both. It gives
pods addresses from pools, and programs the backend. Data from RESTCONF clients and
chosen addresses are stored in etcd, embedded or external.

Several replicas share an external etcd. All of them serve, and one leads and programs
the backend. A standby takes over when the leader is gone.

RESTCONF is at /restconf/config and /restconf/operational (draft-02, as in OpenDaylight)
and at /rests/data (RFC 8040).
/healthz, /readyz and /metrics need no credentials.`,
		Example: `  # try it: user admin, password admin, no data is kept
  coe-bridge serve --dev

  # OVN, data in /var/lib/coe-bridge, users from a file
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
	set := cmd.Flags()
	set.StringVar(&f.listen, "listen", "127.0.0.1:8181", "address that clients connect to")
	set.StringVar(&f.authFile, "auth-file", "", "file with a line user:role:hash for each user (see coe-bridge passwd); read again when it changes")
	flags.FileVar(set, &f.tlsCert, "tls-cert", "PEM file of the server's certificate; makes it https (with --tls-key)")
	flags.FileVar(set, &f.tlsKey, "tls-key", "PEM file of the certificate's key")
	set.StringVar(&f.clientCA, "client-ca", "", "PEM file with the CA of client certificates (with --tls-cert); without --client-roles each client needs a certificate and a password")
	set.StringVar(&f.clientRoles, "client-roles", "", "file with a line role:ATTRIBUTE=value for each client certificate, or group of them, that needs no password; the role is reader, writer or node (with --client-ca)")
	set.StringVar(&f.auditLog, "audit-log", "", "file to which each request for a change is appended as a line of JSON; - for standard output")
	set.BoolVar(&f.dev, "dev", false, "development mode, on loopback only: user admin, password admin; data in a temporary folder unless --data-dir is given")
	set.Int64Var(&f.bodyLimit, "body-limit", restconf.DefaultBodyLimit, "largest request body, in bytes")
	set.IntVar(&f.agentInterfaces, "agent-interfaces", bridge.DefaultAgentInterfaces, "limit of the interfaces on a node, for pods that its agent creates; with Kubernetes, agents create none")
	set.DurationVar(&f.requestTimeout, "request-timeout", restconf.DefaultTimeout, "timeout of a request")
	set.StringVar(&f.dataDir, "data-dir", "", "folder of the embedded etcd")
	set.Int64Var(&f.quota, "quota", datastore.DefaultQuota, "size limit of the embedded etcd's database, in bytes")
	set.StringSliceVar(&f.etcdEndpoints, "etcd-endpoints", nil, "URLs of an external etcd, instead of the embedded one")
	flags.FileVar(set, &f.etcdTLS.CA, "etcd-ca", "PEM file of the CA of etcd's certificates; read again when it changes")
	flags.FileVar(set, &f.etcdTLS.Cert, "etcd-cert", "PEM file of a client certificate for etcd (with --etcd-key); read again when it changes")
	flags.FileVar(set, &f.etcdTLS.Key, "etcd-key", "PEM file of the certificate's key")
	set.StringVar(&f.etcdUser, "etcd-user", "", "user for etcd (with --etcd-password-file)")
	set.StringVar(&f.etcdPasswordFile, "etcd-password-file", "", "file whose first line is the user's password")
	set.IntVar(&f.etcdMaxTxnOps, "etcd-max-txn-ops", 0, "--max-txn-ops of the external etcd; 0 for etcd's default of 128")
	set.StringSliceVar(&f.backends, "backend", []string{"memory"}, "backends that get the model: "+strings.Join(bridge.Backends(), ", ")+
		"; of several with commas the first serves, and the others are kept filled")
	_ = cmd.RegisterFlagCompletionFunc("backend", cobra.FixedCompletions(bridge.Backends(), cobra.ShellCompDirectiveNoFileComp))
	f.backend.Register(cmd)
	f.backend.RegisterSouthbound(cmd)
	f.settings.Register(cmd)
	f.kubernetes.register(cmd)
	f.pools.Register(cmd)
	set.BoolVar(&f.nodePools, "node-pod-cidrs", false, "use every node's pod-cidrs as pools for the pods on it")
	f.nodes.Register(cmd)
	set.Uint16Var(&f.egressPort, "egress-port", 9177, "TCP port on which the agents of nodes that may hold egress addresses answer the bridge")
	set.Uint16Var(&f.podMTU, "pod-mtu", 0, "MTU of pod interfaces; 0 lets the node decide")
	set.DurationVar(&f.reuseDelay, "address-reuse-delay", 30*time.Second, "how long an address stays reserved after its pod is gone")
	set.DurationVar(&f.resync, "resync-interval", 5*time.Minute, "interval at which the backend is read again, to repair external changes")
	f.log.Register(cmd)
}

// logClients sets the log of client-go, which is one for the whole process.
var logClients sync.Once

func (f *serveFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	log, err := f.log.Open(stderr)
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
	log.Info("serving", "url", b.URL(), "backend", strings.Join(f.backends, ","), "version", f.version)
	if inClear(b.URL()) {
		log.Warn("passwords and tokens are sent in cleartext: give --tls-cert and --tls-key, or listen on 127.0.0.1", "url", b.URL())
	}
	if f.fixedUsers() {
		fmt.Fprintf(stderr, "\n*** development mode: anyone who can connect to %s can log in with user admin, password admin ***\n\n", b.URL())
	}
	return b.Run(ctx)
}

// warnOfCleartext logs each connection to another machine that is not encrypted.
func (f *serveFlags) warnOfCleartext(log *slog.Logger) {
	warn := func(flag, value, want string) {
		log.Warn("a connection is not encrypted: other machines can read it, change it and use its credentials; want "+want, "flag", flag, "value", value)
	}
	if slices.ContainsFunc(f.etcdEndpoints, inClear) {
		warn("--etcd-endpoints", strings.Join(f.etcdEndpoints, ","), "https://")
	}
	if slices.Contains(f.backends, "ovn") && slices.ContainsFunc(remotes.Parse(f.backend.OVNNB), remotes.Remote.Cleartext) {
		warn("--ovn-nb", f.backend.OVNNB, "ssl:")
	}
	if slices.Contains(f.backends, "odl") && slices.ContainsFunc(strings.Split(f.backend.ODLURL, ","), inClear) {
		warn("--odl-url", f.backend.ODLURL, "https://")
	}
}

// inClear reports whether other machines can read what is sent to a URL. A URL without a
// scheme is an address of etcd, which uses HTTP then.
func inClear(at string) bool {
	at = strings.TrimSpace(at)
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	u, err := url.Parse(at)
	return err == nil && u.Scheme == "http" && !remotes.Loopback(u.Hostname())
}
