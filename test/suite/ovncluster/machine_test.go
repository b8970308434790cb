package ovncluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// ovnCtl is the script of OVN that Debian's services run.
const ovnCtl = "/usr/share/ovn/scripts/ovn-ctl"

// The databases of a machine, in the names of the script.
const (
	northbound = "nb"
	southbound = "sb"
)

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

// configure writes the files of the machine, as the guide says. The first machine of all founds the clusters.
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
}

func (m *machine) etc() string      { return filepath.Join(m.dir, "etc", "ovn") }
func (m *machine) defaults() string { return filepath.Join(m.dir, "ovn-central") }

// guide runs the commands of a kind in docs/kubernetes.md on the machine.
func (m *machine) guide(kind string, env ...string) {
	t := m.w.t
	t.Helper()
	code, err := guide.Commands(kind)
	require.NoError(t, err)
	code = strings.NewReplacer("/etc/ovn/", m.etc()+"/", "/etc/default/ovn-central", m.defaults()).Replace(code)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", code)
	cmd.Env = append(append(os.Environ(), m.env()...), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", code, out)
}

// env has the folders of OVN's programs.
func (m *machine) env() []string {
	return []string{
		"OVN_RUNDIR=" + m.dir, "OVS_RUNDIR=" + m.dir, "OVN_DBDIR=" + m.dir, "OVN_LOGDIR=" + filepath.Join(m.dir, "log"),
		"OVN_SYSCONFDIR=" + filepath.Dir(m.etc()),
	}
}

// start starts what runs on the machine, as Debian's services do.
func (m *machine) start() {
	t := m.w.t
	t.Helper()
	for _, db := range []string{northbound, southbound} {
		if m.servers[db] == nil {
			var err error
			m.servers[db], err = m.w.lab.Launch(t.Context(), ovnhost.Command{
				Name: m.name + "-" + db, Pod: m.name, Argv: m.ctl("exec", "run_"+db+"_ovsdb"), Env: m.env(),
			})
			require.NoError(t, err)
		} else {
			require.NoError(t, m.servers[db].Start(t.Context()))
		}
	}
	for _, db := range []string{northbound, southbound} {
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

// role returns the role of the member of a database: leader, follower or candidate. It is an error if the member is not connected to a majority.
func (m *machine) role(ctx context.Context, db string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ovs-appctl", "--timeout=5", "-t", filepath.Join(m.dir, "ovn"+db+"_db.ctl"), "cluster/status", schemas[db].name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", m.name, err, out)
	}
	var status, role string
	for line := range strings.Lines(string(out)) {
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

// kill ends all that runs on the machine, like a power failure. /run is empty then.
func (m *machine) kill() {
	t := m.w.t
	t.Helper()
	for _, file := range []string{"ovnnb_db.pid", "ovnsb_db.pid", "ovn-northd.pid"} {
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
	for _, server := range m.servers {
		require.NoError(t, server.Kill())
	}
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

// remove removes another machine's members from the clusters, and its databases.
func (m *machine) remove(other *machine) {
	t := m.w.t
	t.Helper()
	for db, schema := range schemas {
		m.w.await("the member is removed", func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "ovs-appctl", "--timeout=5", "-t", filepath.Join(m.dir, "ovn"+db+"_db.ctl"),
				"cluster/kick", schema.name, "ssl:"+other.address.String()+":"+schema.port).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		require.NoError(t, os.Remove(filepath.Join(other.dir, "ovn"+db+"_db.db")))
	}
}
