package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// config turns flags into the configuration of a bridge. cleanUp removes what is needed for
// this run only. auditOutput is for --audit-log -.
func (f *serveFlags) config(auditOutput io.Writer, log *slog.Logger) (cfg bridge.Config, cleanUp func(), err error) {
	cleanUp = func() {}
	if err := f.check(); err != nil {
		return cfg, cleanUp, err
	}
	follow := files.New("coe_bridge", log)
	cfg = bridge.Config{
		HTTP: bridge.HTTPConfig{
			Listen: f.listen, Access: f.access(auditOutput, follow), BodyLimit: f.bodyLimit, Timeout: f.requestTimeout,
			AgentInterfaces: f.agentInterfaces,
		},
		Reconcile:  reconcile.Config{Resync: f.resync},
		ReuseDelay: f.reuseDelay,
		NodePools:  f.nodePools,
		EgressPort: f.egressPort,
		MTU:        f.podMTU,
		Version:    f.version,
		Log:        log,
	}
	if cfg.Pools, err = f.pools.Parse(); err != nil {
		return cfg, cleanUp, err
	}
	if cfg.Nodes, err = f.nodes.Config(cfg.Pools); err != nil {
		return cfg, cleanUp, err
	}
	if cfg.Kubernetes, err = f.kubernetes.config(f.version, log); err != nil {
		return cfg, cleanUp, err
	}
	if cfg.Kubernetes.EgressLabel != "" {
		if err := flags.CheckEgressPort(f.egressPort, cfg.Nodes); err != nil {
			return cfg, cleanUp, err
		}
	}
	if cfg.HTTP.Access.Tokens, err = f.kubernetes.tokens(cfg.Kubernetes.API); err != nil {
		return cfg, cleanUp, err
	}
	if err := cfg.HTTP.Access.Check(); err != nil {
		return cfg, cleanUp, err
	}
	if cfg.Mapping, err = f.settings.Settings(); err != nil {
		return cfg, cleanUp, err
	}
	if cfg.Mapping.Isolation, err = f.backend.Isolation(f.backends, cfg.Mapping.Isolation); err != nil {
		return cfg, cleanUp, err
	}
	if err := flags.SetPhysical(&cfg.Nodes, cfg.Mapping.Physical, cfg.Pools); err != nil {
		return cfg, cleanUp, err
	}
	if err := f.backend.AttachPhysical(f.backends, cfg.Mapping.Isolation, cfg.Mapping.Physical); err != nil {
		return cfg, cleanUp, err
	}
	if err := dhcppool.Validate(cfg.Pools, !cfg.Mapping.Isolated()); err != nil {
		return cfg, cleanUp, fmt.Errorf("--pool: %w", err)
	}
	backends, err := f.backend.All(f.backends, follow)
	if err != nil {
		return cfg, cleanUp, err
	}
	cfg.Backend, cfg.Filled = backends[0], backends[1:]
	cfg.Datastore, cleanUp, err = f.datastore(follow)
	return cfg, cleanUp, err
}

// check refuses flags that contradict each other, or would have no effect.
func (f *serveFlags) check() error {
	if err := flags.Together(f.tlsCert, f.tlsKey); err != nil {
		return err
	}
	switch {
	case f.dataDir != "" && len(f.etcdEndpoints) > 0:
		return errors.New("two places for data: --data-dir is for the embedded etcd, --etcd-endpoints for an external one; give one of them")
	case f.bodyLimit <= 0:
		return fmt.Errorf("--body-limit %d: want a number of bytes above 0", f.bodyLimit)
	case f.agentInterfaces <= 0:
		return fmt.Errorf("--agent-interfaces %d: want a number above 0", f.agentInterfaces)
	case f.quota <= 0:
		return fmt.Errorf("--quota %d: want a number of bytes above 0", f.quota)
	case f.fixedUsers() && !onLoopback(f.listen):
		return fmt.Errorf("--dev without users is for loopback only: its password is public, and --listen %s can be reached from other machines; "+
			"listen on 127.0.0.1, or give --auth-file (coe-bridge passwd USER)", f.listen)
	}
	for flag, d := range map[string]time.Duration{
		"request-timeout": f.requestTimeout, "address-reuse-delay": f.reuseDelay, "resync-interval": f.resync,
	} {
		if d <= 0 {
			return fmt.Errorf("--%s %s: want a time above 0", flag, d)
		}
	}
	return nil
}

func (f *serveFlags) access(auditOutput io.Writer, follow *files.Follower) access.Config {
	cfg := access.Config{
		UsersFile: f.authFile, CertFile: f.tlsCert.Path, KeyFile: f.tlsKey.Path, ClientCAFile: f.clientCA, ClientRolesFile: f.clientRoles,
		AuditLog: f.auditLog, AuditOutput: auditOutput, Files: follow,
	}
	if f.fixedUsers() {
		cfg.Users = restconf.FixedUsers{"admin": "admin"}
	}
	return cfg
}

// fixedUsers reports whether the user and the password are the public ones.
func (f *serveFlags) fixedUsers() bool { return f.dev && f.authFile == "" && f.clientRoles == "" }

// onLoopback reports whether a host:port is an address that only this machine reaches.
// A host name is not, except localhost: what it resolves to can change.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // Listen reports what is wrong with it
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (f *serveFlags) datastore(follow *files.Follower) (cfg datastore.Config, cleanUp func(), err error) {
	cleanUp = func() {}
	cfg = datastore.Config{Dir: f.dataDir, Quota: f.quota, BodyLimit: f.bodyLimit}
	if len(f.etcdEndpoints) > 0 {
		cfg.Endpoints, cfg.MaxTxnOps = f.etcdEndpoints, f.etcdMaxTxnOps
		cfg.Username, cfg.PasswordFile = f.etcdUser, f.etcdPasswordFile
		if f.etcdTLS.CA.Path != "" || f.etcdTLS.Cert.Path != "" {
			client, err := f.etcdTLS.Client(follow)
			if err != nil {
				return cfg, cleanUp, err
			}
			cfg.TLS = client.Config
		}
		return cfg, cleanUp, nil
	}
	if cfg.Dir != "" {
		return cfg, cleanUp, nil
	}
	if !f.dev {
		return cfg, cleanUp, errors.New("no place for data: name a folder with --data-dir, or an external etcd with --etcd-endpoints")
	}
	if cfg.Dir, err = os.MkdirTemp("", "coe-bridge-dev-"); err != nil {
		return cfg, cleanUp, fmt.Errorf("make a temporary data folder: %w", err)
	}
	return cfg, func() { _ = os.RemoveAll(cfg.Dir) }, nil
}
