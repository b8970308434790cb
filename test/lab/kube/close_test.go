package kube

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// holdVariable lets this test binary hold a control plane until it is killed.
const holdVariable = "KUBE_TEST_HOLD"

var everything = Config{ControllerManager: true, Scheduler: true}

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) != "" {
		hold()
	}
	os.Exit(m.Run())
}

// hold starts a control plane, prints its process IDs, and waits to be killed.
func hold() {
	c, err := Start(context.Background(), everything)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, pid := range pids(c) {
		fmt.Print(pid, " ")
	}
	fmt.Println()
	select {}
}

func pids(c *ControlPlane) []int {
	var list []int
	for _, p := range c.processes() {
		list = append(list, p.life.cmd.Process.Pid)
	}
	return list
}

func TestCloseLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Kubernetes")
	}
	c, err := Start(t.Context(), everything)
	require.NoError(t, err)
	running := pids(c)
	require.Len(t, running, 4)
	require.NoError(t, c.APIServer.Signal(syscall.SIGSTOP), "a stopped process goes too")

	require.NoError(t, c.Close())
	for _, pid := range running {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	require.NoDirExists(t, c.dir)
	listener, err := net.Listen("tcp", c.port.String())
	require.NoError(t, err, "the port is free")
	require.NoError(t, listener.Close())
	require.NoError(t, c.Close(), "closing again is nothing")
}

func TestKilledTestLeavesNoProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Kubernetes")
	}
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), holdVariable+"=1", "TMPDIR="+t.TempDir())
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait(), "it was killed")
	require.NoError(t, err)
	running := strings.Fields(said)
	require.Len(t, running, 4, said)
	for _, text := range running {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return ended(pid) }, endTimeout, 10*time.Millisecond)
	}
}

// ended reports whether a process has exited.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
