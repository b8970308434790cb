package kubelab

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// onOtherThread calls f on a thread that is not the first one of the process.
func onOtherThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if syscall.Gettid() != syscall.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onOtherThread(f) }() // this goroutine keeps the first thread
	<-done
}

func TestOnlyChild(t *testing.T) {
	_, err := onlyChild(os.Getpid())
	require.ErrorContains(t, err, "has the children [], want one")

	cmd := exec.Command("sleep", "60")
	onOtherThread(func() { err = cmd.Start() })
	require.NoError(t, err)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid, err := onlyChild(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, cmd.Process.Pid, pid)
}
