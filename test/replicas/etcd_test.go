package replicas

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
)

// The environment of a child process that is an etcd server.
const (
	memberEnv  = "REPLICAS_ETCD_MEMBER"
	clusterEnv = "REPLICAS_ETCD_CLUSTER"
)

// TestMain makes this program an etcd server where a test has started it as one.
func TestMain(m *testing.M) {
	if name := os.Getenv(memberEnv); name != "" {
		if err := serveEtcd(name, os.Getenv(clusterEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(bridgetest.Main(m))
}

// serveEtcd is one member of a cluster, on sockets in the working directory, until a
// signal.
func serveEtcd(name, cluster string) error {
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = name, name+".etcd", cluster
	client, peer := []url.URL{clientURL(name)}, []url.URL{peerURL(name)}
	c.ListenClientUrls, c.AdvertiseClientUrls = client, client
	c.ListenPeerUrls, c.AdvertisePeerUrls = peer, peer
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer etcd.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-stop:
		return nil
	case err := <-etcd.Err():
		return err
	}
}

func clientURL(name string) url.URL { return url.URL{Scheme: "unix", Host: name + "-client:0"} }
func peerURL(name string) url.URL   { return url.URL{Scheme: "unix", Host: name + "-peer:0"} }

// etcd is a cluster of processes with the defaults of etcd.
type etcd struct {
	t       *testing.T
	dir     string
	members []*member
}

// member is a server of the cluster.
type member struct {
	name string
	cmd  *exec.Cmd // nil while it does not run
}

// startEtcd starts a cluster of so many members, which ends with the test.
func startEtcd(t *testing.T, members int) *etcd {
	t.Helper()
	// A unix socket's path has 108 characters at most.
	dir, err := os.MkdirTemp("", "etcd")
	require.NoError(t, err)
	e := &etcd{t: t, dir: dir}
	t.Cleanup(func() {
		for _, m := range e.members {
			e.kill(m)
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	for i := range members {
		e.members = append(e.members, &member{name: fmt.Sprintf("m%d", i)})
	}
	for _, m := range e.members {
		e.start(m)
	}
	e.awaitLeader()
	return e
}

func (e *etcd) start(m *member) {
	e.t.Helper()
	var cluster []string
	for _, m := range e.members {
		peer := peerURL(m.name)
		cluster = append(cluster, m.name+"="+peer.String())
	}
	self, err := os.Executable()
	require.NoError(e.t, err)
	m.cmd = exec.Command(self)
	m.cmd.Dir, m.cmd.Stderr = e.dir, os.Stderr
	m.cmd.Env = append(os.Environ(), memberEnv+"="+m.name, clusterEnv+"="+strings.Join(cluster, ","))
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(e.t, m.cmd.Start())
}

// kill ends a member with SIGKILL, if it runs, and waits for it.
func (e *etcd) kill(m *member) {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // says that it was killed
	m.cmd = nil
}

// endpoints are what --etcd-endpoints takes.
func (e *etcd) endpoints() []string {
	var all []string
	for _, m := range e.members {
		u := clientURL(m.name)
		all = append(all, "unix://"+filepath.Join(e.dir, u.Host))
	}
	return all
}

// client is of the whole cluster.
func (e *etcd) client() *clientv3.Client {
	e.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints(), Logger: zap.NewNop()})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

// deleteElectionKey ends the leadership behind the back of who leads.
func (e *etcd) deleteElectionKey() {
	e.t.Helper()
	c := e.client()
	held, err := c.Get(e.t.Context(), electionPrefix, clientv3.WithFirstCreate()...)
	require.NoError(e.t, err)
	require.Len(e.t, held.Kvs, 1)
	_, err = c.Delete(e.t.Context(), string(held.Kvs[0].Key))
	require.NoError(e.t, err)
}

// awaitLeader waits until the cluster answers.
func (e *etcd) awaitLeader() {
	e.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints(), Logger: zap.NewNop()})
	require.NoError(e.t, err)
	defer func() { _ = c.Close() }()
	await(e.t, patience, "etcd answers", func() error {
		ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "x")
		return err
	})
}

// leader is the member that leads the cluster.
func (e *etcd) leader() *member {
	e.t.Helper()
	c := e.client()
	var found *member
	await(e.t, patience, "a member leads", func() error {
		for i, endpoint := range e.endpoints() {
			st, err := c.Status(e.t.Context(), endpoint)
			if err == nil && st.Leader == st.Header.MemberId {
				found = e.members[i]
				return nil
			}
		}
		return errors.New("no member says so")
	})
	return found
}
