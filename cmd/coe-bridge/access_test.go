package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// curl asks a bridge and returns status and body.
func curl(t *testing.T, args ...string) (status, body string) {
	t.Helper()
	args = append([]string{"--silent", "--show-error", "--max-time", "20", "--write-out", "\n%{http_code}"}, args...)
	out, err := exec.CommandContext(t.Context(), "curl", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	at := strings.LastIndexByte(string(out), '\n')
	return string(out[at+1:]), string(out[:at])
}

// A bridge as its operators run it: who reads and who writes, by password and by
// certificate, and what the audit log has of it; all of it changed while it runs.
func TestAccess(t *testing.T) {
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t, "bridge")
	robotCert, robotKey := ca.issue(t, "robot")
	lines, err := run(t, "s3cret\n", "passwd", "admin")
	require.NoError(t, err)
	reader, err := run(t, "look\n", "passwd", "--role", "reader", "--hash", "argon2id", "ann")
	require.NoError(t, err)
	dir := t.TempDir()
	roles, users := file(t, "roles", "reader:CN=robot\n"), mountedSecret(t, dir, "one", lines+reader)
	audit := filepath.Join(dir, "audit.log")
	b, url := serveFor(t, "--data-dir", filepath.Join(dir, "data"), "--auth-file", users,
		"--tls-cert", serverCert, "--tls-key", serverKey, "--client-ca", ca.file, "--client-roles", roles, "--audit-log", audit)
	pods := url + podsPath
	ask := func(args ...string) (status, body string) {
		return curl(t, append([]string{"--cacert", ca.file}, args...)...)
	}
	robot := []string{"--cert", robotCert, "--key", robotKey}
	post := []string{"-X", "POST", "-H", "Content-Type: application/json", "-d", web, pods}

	status, _ := ask(pods)
	require.Equal(t, "401", status)
	status, body := ask(append(robot, post...)...)
	require.Equal(t, "403", status)
	require.Contains(t, body, "robot may read and not write")
	status, _ = ask(append([]string{"-u", "ann:look"}, post...)...)
	require.Equal(t, "403", status)
	status, body = ask(append([]string{"-u", "admin:s3cret"}, post...)...)
	require.Equal(t, "204", status, body)
	status, _ = ask(append(robot, pods)...)
	require.Equal(t, "200", status)
	records := auditRecords(t, audit)
	require.Len(t, records, 3)
	require.Equal(t, []any{"robot", "certificate", "reader", 403.0, nil}, who(records[0]))
	require.Equal(t, []any{"ann", "password", "reader", 403.0, nil}, who(records[1]))
	require.Equal(t, []any{"admin", "password", "writer", 204.0}, who(records[2])[:4])
	require.Positive(t, records[2]["revision"])

	// Our own client says what to do about it.
	strangerCert, strangerKey := newAuthority(t).issue(t, "robot")
	for _, c := range []struct{ name, args, says string }{
		{"reader", "--cert " + robotCert + " --key " + robotKey, "robot may read and not write: ask for the role writer; show another certificate with --cert and --key, or change the line of this one in the bridge's --client-roles"},
		{"of another authority", "--cert " + strangerCert + " --key " + strangerKey, "authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, sheet, append([]string{"apply", "-f", "-", "--server", url, "--ca-file", ca.file}, strings.Fields(c.args)...)...)
			require.ErrorContains(t, err, c.says)
		})
	}

	// Only a guesser must wait.
	statuses := map[string]int{}
	for i := range 40 {
		status, _ = ask("-u", "admin:guess"+strings.Repeat("x", i), pods)
		statuses[status]++
	}
	require.Positive(t, statuses["429"], "%v", statuses)
	status, _ = ask("-u", "ann:look", pods)
	require.Equal(t, "200", status)

	// The users change as a Secret does, the roles with an editor.
	swapSecret(t, users, "two", strings.Replace(lines, "admin:", "root:", 1))
	require.NoError(t, os.WriteFile(roles, []byte("writer:CN=robot\n"), 0o600))
	b.await(t, `"loaded the changed file" flag=--auth-file`)
	b.await(t, `"loaded the changed file" flag=--client-roles`)
	status, _ = ask("-u", "ann:look", pods)
	require.Equal(t, "401", status)
	status, _ = ask("-u", "root:s3cret", pods)
	require.Equal(t, "200", status)
	status, _ = ask(append(append(robot, "-X", "DELETE"), pods)...)
	require.Equal(t, "200", status)

	// The server's certificate is another, and a broken file is none.
	other := newAuthority(t)
	otherCert, otherKey := other.issue(t, "other")
	copyFile(t, serverCert, otherCert)
	copyFile(t, serverKey, otherKey)
	b.await(t, `"loaded the changed file" flag=--tls-cert`)
	status, _ = curl(t, "--cacert", other.file, "-u", "root:s3cret", url+"/rests")
	require.Equal(t, "200", status)
	require.NoError(t, os.WriteFile(users, []byte("root:s3cret\n"), 0o600))
	b.await(t, `its former content stays in use" flag=--auth-file`)
	status, _ = curl(t, "--cacert", other.file, "-u", "root:s3cret", url+"/rests")
	require.Equal(t, "200", status)
	_, metrics := curl(t, "--cacert", other.file, url+"/metrics")
	require.Contains(t, metrics, `coe_bridge_file_current{file="auth-file"} 0`)
	require.Contains(t, metrics, `coe_bridge_file_failures_total{file="auth-file"} 1`)
	require.NotContains(t, b.text(), "s3cret")
	require.NotContains(t, auditText(t, audit), "s3cret")
}

// The goroutines that follow files end with the bridge.
func TestAccessLeavesNoGoroutines(t *testing.T) {
	once := func() {
		b, url := serveFor(t, "--dev", "--auth-file", usersFile(t), "--audit-log", filepath.Join(t.TempDir(), "audit.log"))
		status, _ := curl(t, "-u", "admin:s3cret", url+"/rests")
		require.Equal(t, "200", status)
		b.interrupt()
		require.NoError(t, <-b.done)
	}
	once() // what is made once stays
	before := runtime.NumGoroutine()
	once()
	bridgetest.Await(t, 10*time.Millisecond, patience.Patience, "nothing is left", func() error {
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}

// mountedSecret makes a file that is reached as kubelet mounts Secrets: users ->
// ..data/users, ..data -> version.
func mountedSecret(t *testing.T, dir, version, content string) string {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version, "users"), []byte(content), 0o600))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/users", filepath.Join(dir, "users")))
	return filepath.Join(dir, "users")
}

func swapSecret(t *testing.T, users, version, content string) {
	t.Helper()
	dir := filepath.Dir(users)
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version, "users"), []byte(content), 0o600))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

func auditText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func auditRecords(t *testing.T, path string) (records []map[string]any) {
	t.Helper()
	for line := range strings.Lines(auditText(t, path)) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		records = append(records, r)
	}
	return records
}

func who(record map[string]any) []any {
	return []any{record["user"], record["by"], record["role"], record["status"], record["revision"]}
}
