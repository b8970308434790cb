// Package etcd runs real etcd servers for tests and measurements. They are processes with etcd's
// defaults, on unix sockets or with TLS on loopback, and can be killed, stopped and restarted. The
// program that uses the package is also the server: its main must call Serve first.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/port"
)

const (
	startTimeout = 2 * time.Minute
	callTimeout  = time.Second
)

// The environment variables of a server process.
const (
	memberEnv  = "TEST_ETCD_MEMBER"
	clusterEnv = "TEST_ETCD_CLUSTER"
	clientEnv  = "TEST_ETCD_CLIENTS" // the URL for clients
	tlsEnv     = "TEST_ETCD_TLS"     // the files of TLS, or empty
)

// TLS has the files of a server's TLS. Clients must have a certificate of CA, which the server reads when it
// starts. The server reads its own certificate, which is also a client certificate, for each
// connection.
type TLS struct{ CA, Cert, Key string }

func (f TLS) String() string { return strings.Join([]string{f.CA, f.Cert, f.Key}, ":") }

func (f TLS) client() (*tls.Config, error) {
	info := transport.TLSInfo{TrustedCAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key}
	return info.ClientConfig()
}

// Serve runs a member of a cluster until a signal, if this process was started as one. It reports
// whether it was.
func Serve() (served bool, err error) {
	name := os.Getenv(memberEnv)
	if name == "" {
		return false, nil
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = name, name+".etcd", os.Getenv(clusterEnv)
	at, err := url.Parse(os.Getenv(clientEnv))
	if err != nil {
		return true, err
	}
	if paths := strings.Split(os.Getenv(tlsEnv), ":"); len(paths) == 3 {
		c.SocketOpts.ReusePort = true // the port is reserved
		c.ClientTLSInfo = transport.TLSInfo{TrustedCAFile: paths[0], CertFile: paths[1], KeyFile: paths[2], ClientCertAuth: true}
	}
	client, peer := []url.URL{*at}, []url.URL{peerURL(name)}
	c.ListenClientUrls, c.AdvertiseClientUrls = client, client
	c.ListenPeerUrls, c.AdvertisePeerUrls = peer, peer
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		return true, err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-stop:
		return true, nil
	case err := <-server.Err():
		return true, err
	}
}

func clientURL(name string) url.URL { return url.URL{Scheme: "unix", Host: name + "-client:0"} }
func peerURL(name string) url.URL   { return url.URL{Scheme: "unix", Host: name + "-peer:0"} }

// Cluster is a cluster of servers.
type Cluster struct {
	Members []*Member
	dir     string // in which the sockets and the data are
	tls     *TLS   // nil: unix sockets
}

// Member is one server.
type Member struct {
	cluster *Cluster
	name    string
	clients url.URL
	port    *port.Port     // of clients with TLS; nil for unix sockets
	process *child.Process // nil while it does not run
}

// Run starts a cluster with a number of members, and returns when it answers. The caller must call Close.
func Run(ctx context.Context, members int) (*Cluster, error) { return run(ctx, members, nil) }

// RunTLS is Run with TLS.
func RunTLS(ctx context.Context, members int, files TLS) (*Cluster, error) {
	return run(ctx, members, &files)
}

func run(ctx context.Context, members int, files *TLS) (*Cluster, error) {
	// The path of a unix socket has at most 108 characters.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, fmt.Errorf("make a folder for etcd: %w", err)
	}
	c := &Cluster{dir: dir, tls: files}
	for i := range members {
		m := &Member{cluster: c, name: fmt.Sprintf("m%d", i)}
		m.clients = clientURL(m.name)
		if files != nil {
			if m.port, err = port.Reserve(); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			m.clients = url.URL{Scheme: "https", Host: m.port.String()}
		}
		c.Members = append(c.Members, m)
	}
	for _, m := range c.Members {
		if err := m.Start(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.answers(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close kills the servers and removes their data.
func (c *Cluster) Close() error {
	var errs []error
	for _, m := range c.Members {
		m.Kill()
		if m.port != nil {
			errs = append(errs, m.port.Release())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// Endpoints returns the members' addresses in the form of --etcd-endpoints.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		if c.tls != nil {
			all = append(all, m.clients.String())
			continue
		}
		all = append(all, "unix://"+filepath.Join(c.dir, m.clients.Host))
	}
	return all
}

// Dir returns the folder with the data of the members.
func (c *Cluster) Dir() string { return c.dir }

// Client returns a client of the whole cluster. The caller closes it.
func (c *Cluster) Client() (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()}
	if c.tls != nil {
		var err error
		if cfg.TLS, err = c.tls.client(); err != nil {
			return nil, fmt.Errorf("make a client of etcd: %w", err)
		}
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client of etcd: %w", err)
	}
	return client, nil
}

// answers waits until the cluster has a leader.
func (c *Cluster) answers(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		call, done := context.WithTimeout(ctx, callTimeout)
		_, err := client.Get(call, "x")
		done()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("start etcd: it does not answer: %w", err)
		}
	}
}

// Start starts a stopped member with its data.
func (m *Member) Start() error {
	var cluster []string
	for _, other := range m.cluster.Members {
		peer := peerURL(other.name)
		cluster = append(cluster, other.name+"="+peer.String())
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Dir, cmd.Stderr = m.cluster.dir, os.Stderr
	cmd.Env = append(os.Environ(), memberEnv+"="+m.name, clusterEnv+"="+strings.Join(cluster, ","), clientEnv+"="+m.clients.String())
	if m.cluster.tls != nil {
		cmd.Env = append(cmd.Env, tlsEnv+"="+m.cluster.tls.String())
	}
	m.process, err = child.Start(cmd)
	return err
}

// Signal sends a running member a signal.
func (m *Member) Signal(s syscall.Signal) error { return m.process.Signal(s) }

// PID returns the process ID of a running member.
func (m *Member) PID() int { return m.process.PID() }

// Kill ends a member with SIGKILL if it runs, and waits for it.
func (m *Member) Kill() {
	if m.process != nil {
		m.process.Kill()
		m.process = nil
	}
}
