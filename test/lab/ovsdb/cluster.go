package ovsdb

import (
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

// database is the name of the northbound database.
const database = "OVN_Northbound"

// electionTimer is the election timer of a Cluster. OVN's default is 1 s.
const electionTimer = "500"

// patience bounds each wait for the cluster, also on a slow machine.
const patience = 2 * time.Minute

// Cluster is a northbound database with three members (RAFT) on loopback. Clients and members use ssl: only.
type Cluster struct {
	Members []*Member
	dir     string // of the certificates
	clients *files.Follower
	client  *files.Client
	cas     []byte // all CAs so far
}

// Member is an ovsdb-server of a Cluster.
type Member struct {
	name    string
	process *Process
	raft    string // the address for the other members
	client  string // the address for clients
}

// StartCluster starts a cluster, which ends with the test. With go test -short, it skips the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, func(*Process) error { return nil })
}

// StartClusterOnDisks is StartCluster with a disk for each member, which FillDisk fills. It needs root.
func StartClusterOnDisks(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, (*Process).mount)
}

func startCluster(t testing.TB, prepare func(*Process) error) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs ovsdb-server: run without -short")
	}
	c := &Cluster{dir: t.TempDir(), clients: files.New("test", slog.New(slog.DiscardHandler))}
	for _, name := range []string{"a", "b", "c"} {
		c.Members = append(c.Members, c.newMember(t, name))
	}
	c.issue(t)
	var err error
	c.client, err = c.clients.Client(files.File{Path: c.path("ca.crt")}, files.File{Path: c.path("client.crt")}, files.File{Path: c.path("client.key")})
	require.NoError(t, err)
	for _, m := range c.Members {
		require.NoError(t, prepare(m.process))
	}
	c.found(t)
	return c
}

// found starts the members with an empty database.
func (c *Cluster) found(t testing.TB) {
	t.Helper()
	first := c.Members[0]
	require.NoError(t, first.process.create("--election-timer="+electionTimer, "create-cluster", first.process.Database(), Schema(northbound), first.raft))
	for _, m := range c.Members[1:] {
		c.join(t, m)
	}
	for _, m := range c.Members {
		m.AwaitConnected(t)
	}
}

// Wipe replaces the cluster by one with an empty database.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	for _, m := range c.Members {
		m.Kill(t)
	}
	c.found(t)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) newMember(t testing.TB, name string) *Member {
	t.Helper()
	port := FreePort(t)
	process, err := newProcess([]string{
		"--remote=pssl:" + port + ":127.0.0.1",
		"--certificate=" + c.path(name+".crt"), "--private-key=" + c.path(name+".key"), "--ca-cert=" + c.path("ca.crt"),
	})
	require.NoError(t, err)
	m := &Member{name: name, process: process, raft: "ssl:127.0.0.1:" + FreePort(t), client: "ssl:127.0.0.1:" + port}
	t.Cleanup(func() {
		require.NoError(t, m.process.Close())
		if t.Failed() {
			t.Logf("ovsdb-server %s: %s", name, m.process.Log())
		}
	})
	return m
}

// join starts a member with no data, which joins the others.
func (c *Cluster) join(t testing.TB, m *Member) {
	t.Helper()
	args := []string{"join-cluster", m.process.Database(), database, m.raft}
	for _, other := range c.Members {
		if other != m {
			args = append(args, other.raft)
		}
	}
	require.NoError(t, m.process.create(args...))
}

// issue creates a new CA and new certificates. All CAs so far are trusted.
func (c *Cluster) issue(t testing.TB) {
	t.Helper()
	authority := pki.New(t, "test")
	c.cas = append(c.cas, authority.PEM()...)
	c.trust(t, c.cas)
	for _, m := range c.Members {
		authority.Issue(t, m.name, pki.NoHost).Write(t, c.dir, m.name)
	}
	authority.Issue(t, "client").Write(t, c.dir, "client")
	c.reload()
	c.cas = authority.PEM()
}

func (c *Cluster) trust(t testing.TB, cas []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.path("ca.crt"), cas, 0o600))
}

// Rotate replaces the certificates of the members and of clients, and then their CA, while all run.
func (c *Cluster) Rotate(t testing.TB) {
	t.Helper()
	c.issue(t)
	c.trust(t, c.cas)
	c.reload()
}

// reload loads the files of clients, which are loaded when two looks find the same.
func (c *Cluster) reload() {
	c.clients.Look()
	c.clients.Look()
}

// TLS returns the configuration of a client. It follows Rotate.
func (c *Cluster) TLS() *tls.Config { return c.client.AnyHost() }

// Endpoints returns the addresses of all members for clients.
func (c *Cluster) Endpoints() string {
	all := make([]string, 0, len(c.Members))
	for _, m := range c.Members {
		all = append(all, m.client)
	}
	return strings.Join(all, ",")
}

// Leader waits until a member other than the given ones is the leader, and returns it.
func (c *Cluster) Leader(t testing.TB, except ...*Member) *Member {
	t.Helper()
	var leader *Member
	require.Eventually(t, func() bool {
	members:
		for _, m := range c.Members {
			for _, other := range except {
				if m == other {
					continue members
				}
			}
			if m.status(t).Leader {
				leader = m
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond, "there is no leader")
	return leader
}

// Follower returns a member that is not the leader.
func (c *Cluster) Follower(t testing.TB) *Member {
	t.Helper()
	leader := c.Leader(t)
	for _, m := range c.Members {
		if m != leader {
			return m
		}
	}
	return nil
}

// Replace removes a member from the cluster, and starts a member without data at the same address.
func (c *Cluster) Replace(t testing.TB, m *Member) {
	t.Helper()
	m.Kill(t)
	c.Leader(t, m).control(t, "cluster/kick", database, m.raft)
	c.join(t, m)
	m.AwaitConnected(t)
}

// Convert asks the member to convert the database of the cluster to another schema.
func (m *Member) Convert(schema string) error { return m.process.convert(schema) }

// Dump returns all rows of the tables, as Server.Dump does.
func (m *Member) Dump(t testing.TB, tables ...string) string {
	t.Helper()
	return m.process.dump(t, tables)
}

// Endpoint returns the address of the member for clients.
func (m *Member) Endpoint() string { return m.client }

// memberStatus is what a member's server says of the database.
type memberStatus struct{ Leader, Connected bool }

// status asks the member; a member that does not run is neither leader nor connected.
func (m *Member) status(t testing.TB) memberStatus {
	t.Helper()
	out, err := exec.Command("ovsdb-client", "--timeout=20", "query", m.process.Endpoint(),
		`["_Server",{"op":"select","table":"Database","where":[["name","==","`+database+`"]],"columns":["leader","connected"]}]`).Output()
	var answers []struct{ Rows []memberStatus }
	if err != nil || json.Unmarshal(out, &answers) != nil || len(answers) != 1 || len(answers[0].Rows) != 1 {
		return memberStatus{}
	}
	return answers[0].Rows[0]
}

// IsLeader reports whether the member answers and is the leader.
func (m *Member) IsLeader(t testing.TB) bool {
	t.Helper()
	return m.status(t).Leader
}

// TryNBCtl runs ovn-nbctl on the member, like an external writer, and returns its output.
func (m *Member) TryNBCtl(args ...string) (string, error) { return m.process.nbctl(args) }

// FillDisk fills the disk of a member of StartClusterOnDisks to the last byte.
func (m *Member) FillDisk(t testing.TB) {
	t.Helper()
	require.NoError(t, m.process.fill())
}

// FreeDisk ends FillDisk.
func (m *Member) FreeDisk(t testing.TB) {
	t.Helper()
	require.NoError(t, m.process.free())
}

// AwaitConnected waits until the member is in contact with a majority.
func (m *Member) AwaitConnected(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return m.status(t).Connected }, patience, 20*time.Millisecond, "member %s does not join", m.name)
}

func (m *Member) control(t testing.TB, command ...string) {
	t.Helper()
	_, err := m.process.Control(command...)
	require.NoError(t, err)
}

// Kill ends the member with SIGKILL.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, m.process.Kill())
}

// AwaitEnd waits until the member ends by itself.
func (m *Member) AwaitEnd(t testing.TB) {
	t.Helper()
	require.Eventually(t, m.process.hasEnded, patience, 20*time.Millisecond, "member %s goes on", m.name)
}

// Restart starts the member with its data.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, m.TryRestart())
}

// TryRestart is Restart for a member that can refuse its data.
func (m *Member) TryRestart() error { return m.process.Restart() }

// Stop halts the member with SIGSTOP.
func (m *Member) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, m.process.Signal(syscall.SIGSTOP))
}

// Continue resumes the member after Stop.
func (m *Member) Continue(t testing.TB) {
	t.Helper()
	require.NoError(t, m.process.Signal(syscall.SIGCONT))
}

// Isolate cuts the member off from the other members: it neither sends nor receives RAFT. Clients still reach it.
func (m *Member) Isolate(t testing.TB) {
	t.Helper()
	m.control(t, "cluster/failure-test", "stop-raft-rpc")
}

// Connect ends Isolate.
func (m *Member) Connect(t testing.TB) {
	t.Helper()
	m.control(t, "cluster/failure-test", "clear")
}

// Compact compacts the member's database. A leader transfers its role before.
func (m *Member) Compact(t testing.TB) {
	t.Helper()
	require.NoError(t, m.TryCompact())
}

// TryCompact is Compact for a member that can refuse, because nothing has changed since the last time.
func (m *Member) TryCompact() error {
	_, err := m.process.Control("ovsdb-server/compact", database)
	return err
}
