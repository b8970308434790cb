package ovnhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// holdVariable lets this test binary hold a lab with that prefix until it is killed; surviveVariable lets the
// lab survive.
const (
	holdVariable    = "OVNHOST_TEST_HOLD"
	surviveVariable = "OVNHOST_TEST_SURVIVE"
)

func TestMain(m *testing.M) {
	if prefix := os.Getenv(holdVariable); prefix != "" {
		hold(prefix, os.Getenv(surviveVariable) != "")
	}
	os.Exit(m.Run())
}

// hold starts a lab with a pod, reports it, and waits to be killed.
func hold(prefix string, survive bool) {
	ctx := context.Background()
	lab, err := Start(ctx, Config{Prefix: prefix, Hosts: []string{"host1"}, Survive: survive})
	if err == nil {
		_, err = lab.NBCtl(ctx, "ls-add", "sw", "--", "lsp-add", "sw", podA.Name, "--", "lsp-set-addresses", podA.Name, podA.MAC.String())
	}
	if err == nil {
		err = lab.Plug(ctx, podA)
	}
	if err == nil {
		_, err = lab.Launch(ctx, Command{Name: "sleep", Pod: podA.Name, Argv: []string{"sleep", "1000"}})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	select {}
}

func TestKilledLabLeavesNothing(t *testing.T) {
	for name, survive := range map[string]bool{"a test's": false, "one to survive": true} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("needs root and OVN")
			}
			prefix := "k" + strconv.Itoa(os.Getpid())
			t.Cleanup(func() { require.NoError(t, Cleanup(prefix)) })
			kill := startHolder(t, prefix, survive)
			entries, err := readJournal(filepath.Join(stateRoot, prefix))
			require.NoError(t, err)
			pids := recorded(entries)
			require.NotEmpty(t, pids)
			require.NotEmpty(t, namespaces(t, prefix))
			kill() // from then on, a test of another package can remove a lab that does not survive

			require.NoError(t, CleanupDead())
			require.Equal(t, survive, Exists(prefix), "only a lab without Survive is removed after the end of its owner")
			for _, p := range pids {
				require.Equal(t, survive, p.alive(), "process %d", p.Pid)
			}

			require.NoError(t, Cleanup(prefix))
			require.False(t, Exists(prefix))
			require.Empty(t, namespaces(t, prefix))
			for _, p := range pids {
				require.False(t, p.alive(), "process %d", p.Pid)
			}
			require.NoError(t, Cleanup(prefix), "cleaning up again is nothing")
		})
	}
}

// startHolder starts another process with a lab. kill kills the process.
func startHolder(t *testing.T, prefix string, survive bool) (kill func()) {
	t.Helper()
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), holdVariable+"="+prefix)
	if survive {
		holder.Env = append(holder.Env, surviveVariable+"=1")
	}
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	kill = func() {
		require.NoError(t, holder.Process.Kill())
		require.Error(t, holder.Wait(), "it was killed")
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "held\n" {
		kill()
		require.Fail(t, "the lab has not started", "%s: %v", said, err)
	}
	return kill
}

func recorded(entries []entry) []process {
	var list []process
	for _, e := range entries {
		if e.Process != nil {
			list = append(list, *e.Process)
		}
	}
	return list
}

func namespaces(t *testing.T, prefix string) []string {
	t.Helper()
	files, err := os.ReadDir("/run/netns")
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		if strings.HasPrefix(f.Name(), prefix+"-") {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestCleanupAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	self, err := processOf(os.Getpid())
	require.NoError(t, err)
	other := self
	other.Start++ // another process had the PID before
	for name, journal := range map[string]string{
		"no journal":         "",
		"cut off":            `{"owner":{"pid":1,`,
		"a pid of another's": fmt.Sprintf(`{"owner":{"pid":1,"start":1}}`+"\n"+`{"process":{"pid":%d,"start":%d}}`+"\n", other.Pid, other.Start),
		"before namespace":   `{"owner":{"pid":1,"start":1}}` + "\n" + `{"namespace":"never-made"}` + "\n" + `{"names`,
	} {
		t.Run(name, func(t *testing.T) {
			prefix := "c" + strconv.Itoa(os.Getpid())
			dir := filepath.Join(stateRoot, prefix)
			unlock, err := lockState() // a test of another package cleans up too
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(dir, 0o755))
			if journal != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, journalName), []byte(journal), 0o644))
			}
			unlock()
			require.NoError(t, CleanupDead())
			require.False(t, Exists(prefix))
		})
	}
}

// TestPIDOfThread cleans up a process whose PID a thread of another process has.
func TestPIDOfThread(t *testing.T) {
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(threads), 1, "the test binary needs a second thread")
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		ended, err := processOf(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		require.NoError(t, err)
		ended.Start-- // started before the thread: another process
		require.NoError(t, ended.kill())
	}
}
