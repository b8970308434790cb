package ansible

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/python"
)

// runTimeout bounds one run of a playbook, on busy cores.
const runTimeout = 3 * time.Minute

const front = "/restconf/config/pod:coe/pods/8f2a6d5e-0000-4000-8000-000000000001"

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// A playbook has its effect on the first run; the second run changes nothing.
func TestPlaybooks(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	bridge := a.bridge.Bridge()

	require.Equal(t, recap{ok: 4, changed: 4}, a.run("present.yml", "--check"))
	status, _ := bridge.Do(http.MethodGet, front, "")
	require.Equal(t, http.StatusNotFound, status, "--check writes nothing")

	require.Equal(t, recap{ok: 4, changed: 4}, a.run("present.yml"))
	bridge.AwaitSync(runTimeout)
	require.Equal(t, recap{ok: 4}, a.run("present.yml"), "the second run changes nothing")
	require.Equal(t, recap{ok: 4}, a.run("refused.yml"))
	require.Equal(t, recap{ok: 5, changed: 3}, a.run("single.yml"))

	// A reader's playbook succeeds if it has nothing to change, and is refused otherwise. With a
	// wrong password every playbook fails.
	reader := a.as("reader", "reader")
	require.Equal(t, recap{ok: 6}, reader.run("read.yml"))
	require.Equal(t, recap{failed: 1}, reader.run("absent.yml"))
	require.Contains(t, reader.said, `"code": 403`)
	require.Equal(t, recap{failed: 1}, a.as("admin", "wrong").run("absent.yml"))

	require.Equal(t, recap{ok: 4, changed: 1}, a.run("present.yml", "-e", "front_node=192.168.33.13"))
	status, answer := bridge.Do(http.MethodGet, front, "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, answer, `"host-ip-address":"192.168.33.13"`)
	require.Contains(t, answer, `"network-type":"VXLAN"`, "the other leaves are unchanged")

	require.Equal(t, recap{ok: 1, changed: 1}, a.run("absent.yml"))
	status, _ = bridge.Do(http.MethodGet, front, "")
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, recap{ok: 1}, a.run("absent.yml"), "the pool is already deleted")
}

// The test uses the default root of the modules, and the one data resource. That resource shows
// beside a pool the addresses that were handed out of it. The playbook does not ask for them, so the
// modules report a change.
func TestDefaultRoot(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	where := []string{"-e", "ansible_httpapi_restconf_root=/restconf", "-e", "datastore=/data"}
	require.Equal(t, recap{ok: 4, changed: 4}, a.run("present.yml", where...))
	a.bridge.Bridge().AwaitSync(runTimeout)
	require.Equal(t, recap{ok: 4, changed: 1}, a.run("present.yml", where...))
}

// ansible runs playbooks as a user of its own bridge.
type ansible struct {
	t              *testing.T
	program        string
	bridge         *bridgetest.Process
	user, password string
	said           string // by the last run
}

func newAnsible(t *testing.T) *ansible {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Ansible: run without -short")
	}
	venv, err := python.Venv(t.Context(), t.Output(), "requirements.txt")
	require.NoError(t, err)
	users := bridgetest.AuthFile(t, map[string]string{"admin": "writer", "reader": "reader"})
	return &ansible{
		t: t, program: filepath.Join(venv, "bin", "ansible-playbook"),
		bridge: bridgetest.Serve(t, "--auth-file", users), user: "admin", password: "admin",
	}
}

// as returns an ansible for another user or password of the same bridge.
func (a *ansible) as(user, password string) *ansible {
	other := *a
	other.user, other.password = user, password
	return &other
}

// recap has the numbers of tasks of a playbook, by result.
type recap struct{ ok, changed, failed int }

var recapLine = regexp.MustCompile(`bridge +: ok=(\d+) +changed=(\d+) +unreachable=0 +failed=(\d+) +skipped=0 `)

// run runs a playbook with further arguments, and returns Ansible's counts. Ansible leaves no
// process behind.
func (a *ansible) run(playbook string, args ...string) recap {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), runTimeout)
	defer cancel()
	at, err := url.Parse(a.bridge.Bridge().URL())
	require.NoError(a.t, err)
	args = append([]string{
		"-e", "ansible_host=" + at.Hostname(), "-e", "ansible_httpapi_port=" + at.Port(),
		"-e", "ansible_user=" + a.user, "-e", "ansible_httpapi_password=" + a.password, playbook,
	}, args...)
	home := a.t.TempDir()
	cmd := exec.CommandContext(ctx, a.program, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(python.Environ(),
		"LC_ALL=C.UTF-8", "NO_PROXY=*", "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+home,
		"ANSIBLE_PERSISTENT_CONTROL_PATH_DIR="+home)
	out, err := cmd.CombinedOutput()
	a.said = string(out)
	a.t.Logf("ansible-playbook %s: %v\n%s", playbook, err, out)
	a.closeConnections(home)
	counted := recapLine.FindSubmatch(out)
	require.NotNil(a.t, counted, "Ansible printed no counts")
	return recap{a.number(counted[1]), a.number(counted[2]), a.number(counted[3])}
}

// closeConnections ends the processes that hold connections of a run, and waits for their end. They would
// stay for half a minute. It removes their sockets: a process that ends while it starts leaves its own behind.
func (a *ansible) closeConnections(home string) {
	require.Eventually(a.t, func() bool {
		environments, err := filepath.Glob("/proc/[0-9]*/environ")
		found := false
		for _, file := range environments {
			environment, _ := os.ReadFile(file) // it fails if the process has ended
			if bytes.Contains(environment, []byte("ANSIBLE_HOME="+home+"\x00")) {
				found = true
				_ = syscall.Kill(a.number([]byte(filepath.Base(filepath.Dir(file)))), syscall.SIGTERM)
			}
		}
		return err == nil && !found
	}, runTimeout, 100*time.Millisecond)
	sockets, err := filepath.Glob(filepath.Join(home, "??????????"))
	require.NoError(a.t, err)
	for _, socket := range sockets {
		_ = os.Remove(socket) // its process has removed it meanwhile
	}
}

func (a *ansible) number(text []byte) int {
	n, err := strconv.Atoi(string(text))
	require.NoError(a.t, err)
	return n
}
