package ovncluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// ovnCtl is the script of OVN that Debian's services run.
const ovnCtl = "/usr/share/ovn/scripts/ovn-ctl"

// The databases of a machine, in the names of the script.
const (
	northbound = "nb"
	southbound = "sb"
)

var databases = []string{northbound, southbound}

// schemas are the names of the databases in RAFT, and the ports of their members for each other.
var schemas = map[string]struct{ name, port string }{
	northbound: {"OVN_Northbound", "6643"},
	southbound: {"OVN_Southbound", "6644"},
}

// machine is a network namespace in the underlay with a member of each database, and ovn-northd.
type machine struct {
	w       *world
	name    string
	address netip.Addr
	dir     string // has the files that are below / on a machine of its own
	servers map[string]*ovnhost.Process
}

// configure writes the files and the firewall of the machine, as the guide says. The first machine of all founds the clusters.
func (m *machine) configure(all ...*machine) {
	t := m.w.t
	t.Helper()
	require.NoError(t, os.RemoveAll(m.etc()))
	require.NoError(t, os.CopyFS(m.etc(), os.DirFS(filepath.Join(m.w.certificates, "databases"))))
	addresses := make([]string, 0, len(all))
	for _, one := range all {
		addresses = append(addresses, one.address.String())
	}
	m.guide("members", "ADDRESS="+m.address.String(), "DATABASES="+strings.Join(addresses, " "))
	m.guide("firewall", "DATABASES="+strings.Join(addresses, " "))
}

func (m *machine) etc() string      { return filepath.Join(m.dir, "etc", "ovn") }
func (m *machine) defaults() string { return filepath.Join(m.dir, "ovn-central") }

// guide runs the commands of a kind in docs/kubernetes.md on the machine. Its /run/ovn and /etc/ovn are folders of its own.
func (m *machine) guide(kind string, env ...string) {
	t := m.w.t
	t.Helper()
	code, err := guide.Commands(kind)
	require.NoError(t, err)
	code = strings.NewReplacer("/etc/ovn/", m.etc()+"/", "/etc/default/ovn-central", m.defaults(), "/run/ovn/", m.dir+"/").Replace(code)
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", m.w.lab.Namespace(m.name), "bash", "-euo", "pipefail", "-c", code)
	cmd.Env = append(append(os.Environ(), m.env()...), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", code, out)
}

// env has the folders of OVN's programs. The schemas are of the same OVN as the programs in PATH.
func (m *machine) env() []string {
	return []string{
		"OVN_PKGDATADIR=" + filepath.Dir(ovsdb.Schema("ovn/ovn-nb")),
		"OVN_RUNDIR=" + m.dir, "OVS_RUNDIR=" + m.dir, "OVN_DBDIR=" + m.dir, "OVN_LOGDIR=" + filepath.Join(m.dir, "log"),
		"OVN_SYSCONFDIR=" + filepath.Dir(m.etc()),
	}
}

// start starts what runs on the machine, as Debian's services do. The other machines give it a majority.
func (m *machine) start() {
	m.w.t.Helper()
	m.startDatabases()
	m.startNorthd()
}

func (m *machine) startDatabases() {
	m.w.t.Helper()
	for _, db := range databases {
		m.startDatabase(db)
	}
}

func (m *machine) startDatabase(db string) {
	t := m.w.t
	t.Helper()
	if m.servers[db] != nil {
		require.NoError(t, m.servers[db].Start(t.Context()))
		return
	}
	var err error
	m.servers[db], err = m.w.lab.Launch(t.Context(), ovnhost.Command{
		Name: m.name + "-" + db, Pod: m.name, Argv: m.ctl("exec", "run_"+db+"_ovsdb"), Env: m.env(),
	})
	require.NoError(t, err)
}

// startNorthd starts ovn-northd when the databases have joined the others.
func (m *machine) startNorthd() {
	m.w.t.Helper()
	for _, db := range databases {
		m.w.await(m.name+" is a member of "+db, func(ctx context.Context) error { _, err := m.role(ctx, db); return err })
	}
	m.run("start_northd", "--ovn-manage-ovsdb=no", "--no-monitor")
}

// ctl returns the command line of the script with the options of the machine.
func (m *machine) ctl(how string, args ...string) []string {
	return []string{"bash", "-euc", fmt.Sprintf(". %s; %s %s %s $OVN_CTL_OPTS", m.defaults(), how, ovnCtl, strings.Join(args, " "))}
}

// run runs the script until it ends.
func (m *machine) run(args ...string) {
	t := m.w.t
	t.Helper()
	argv := append([]string{"netns", "exec", m.w.lab.Namespace(m.name)}, m.ctl("", args...)...)
	cmd := exec.CommandContext(t.Context(), "ip", argv...)
	cmd.Env = append(os.Environ(), m.env()...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// status returns what the member of a database says of its cluster.
func (m *machine) status(ctx context.Context, db string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ovs-appctl", "--timeout=5", "-t", filepath.Join(m.dir, "ovn"+db+"_db.ctl"), "cluster/status", schemas[db].name).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", m.name, err, out)
	}
	return string(out), err
}

// role returns the role of the member of a database: leader or follower. It is an error if the member has not joined, or seeks a
// leader. A follower whose leader has just ended is still a follower.
func (m *machine) role(ctx context.Context, db string) (string, error) {
	text, err := m.status(ctx, db)
	if err != nil {
		return "", err
	}
	var status, role string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Status":
			status = value
		case "Role":
			role = value
		}
	}
	if status != "cluster member" || role == "candidate" {
		return "", fmt.Errorf("%s: %s, %s of %s", m.name, status, role, db)
	}
	return role, nil
}

// awaitMembers waits until the member knows so many members of each database, itself included.
func (m *machine) awaitMembers(n int) {
	m.w.t.Helper()
	for db := range schemas {
		m.w.await("the members of "+db, func(ctx context.Context) error {
			text, err := m.status(ctx, db)
			if got := len(server.FindAllString(text, -1)); err == nil && got != n {
				err = fmt.Errorf("%d members, want %d: %s", got, n, text)
			}
			return err
		})
	}
}

// server matches the line of a member in the list of a cluster/status.
var server = regexp.MustCompile(`(?m)^    \w+ \(\w+ at ssl:`)

// kill ends all that runs on the machine, like a power failure. /run is empty then.
func (m *machine) kill() {
	m.w.t.Helper()
	for _, db := range databases {
		m.killDatabase(db)
	}
	m.killNorthd()
}

func (m *machine) killDatabase(db string) {
	m.w.t.Helper()
	m.killProgram("ovn" + db + "_db.pid")
	require.NoError(m.w.t, m.servers[db].Kill())
}

func (m *machine) restartDatabase(db string) {
	m.w.t.Helper()
	m.killDatabase(db)
	m.startDatabase(db)
}

func (m *machine) killNorthd() {
	m.w.t.Helper()
	m.killProgram("ovn-northd.pid")
}

// killProgram kills the program that has written its process ID to a file.
func (m *machine) killProgram(file string) {
	t := m.w.t
	t.Helper()
	path := filepath.Join(m.dir, file)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		require.NoError(t, err, "%s of %s", file, m.name)
	}
	require.NoError(t, os.Remove(path))
}

// cutOff takes the machine's link down, or up again.
func (m *machine) cutOff(cut bool) {
	state := "up"
	if cut {
		state = "down"
	}
	_, err := m.w.lab.Exec(m.w.t.Context(), m.name, "ip", "link", "set", "eth0", state)
	require.NoError(m.w.t, err)
}

// remove removes another machine's members from the clusters, as the guide says, and its databases.
func (m *machine) remove(other *machine) {
	t := m.w.t
	t.Helper()
	m.guide("kick", "LOST="+other.address.String())
	m.awaitMembers(2)
	for db := range schemas {
		require.NoError(t, os.Remove(filepath.Join(other.dir, "ovn"+db+"_db.db")))
	}
}
