// Package etcd runs real etcd servers for tests and measurements: processes with
// etcd's defaults, on unix sockets, which can be killed, halted and started again. The
// program that uses it is the server too: its main has to call Serve first.
package etcd

import (
	"context"
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

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/test/child"
)

const (
	startTimeout = 30 * time.Second
	callTimeout  = time.Second
)

// The environment of a process that is a server.
const (
	memberEnv  = "TEST_ETCD_MEMBER"
	clusterEnv = "TEST_ETCD_CLUSTER"
)

// Serve is one member of a cluster until a signal, if this process was started as one,
// and tells whether it was.
func Serve() (served bool, err error) {
	name := os.Getenv(memberEnv)
	if name == "" {
		return false, nil
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = name, name+".etcd", os.Getenv(clusterEnv)
	client, peer := []url.URL{clientURL(name)}, []url.URL{peerURL(name)}
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
}

// Member is one server.
type Member struct {
	cluster *Cluster
	name    string
	process *child.Process // nil while it does not run
}

// Run starts a cluster of so many members, and returns when it answers. Close ends it.
func Run(ctx context.Context, members int) (*Cluster, error) {
	// A unix socket's path has 108 characters at most.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, fmt.Errorf("make a folder for etcd: %w", err)
	}
	c := &Cluster{dir: dir}
	for i := range members {
		c.Members = append(c.Members, &Member{cluster: c, name: fmt.Sprintf("m%d", i)})
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
	for _, m := range c.Members {
		m.Kill()
	}
	return os.RemoveAll(c.dir)
}

// Endpoints are the members' addresses, as --etcd-endpoints takes them.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		u := clientURL(m.name)
		all = append(all, "unix://"+filepath.Join(c.dir, u.Host))
	}
	return all
}

// Client is a client of the whole cluster, for the caller to close.
func (c *Cluster) Client() (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
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

// Start starts a member that does not run, with its data.
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
	cmd.Env = append(os.Environ(), memberEnv+"="+m.name, clusterEnv+"="+strings.Join(cluster, ","))
	m.process, err = child.Start(cmd)
	return err
}

// Signal sends a member that runs a signal.
func (m *Member) Signal(s syscall.Signal) error { return m.process.Signal(s) }

// Kill ends a member with SIGKILL, if it runs, and waits for it.
func (m *Member) Kill() {
	if m.process != nil {
		m.process.Kill()
		m.process = nil
	}
}
