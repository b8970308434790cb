package bridgetest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A program that another test starts has a copy of the lock of the data directory until the kernel has executed it. Restart waits.
func TestRestartWhileTheLockHasACopy(t *testing.T) {
	var dir string
	b := bridgetest.Start(t, func(c *bridge.Config) { dir = c.Datastore.Dir })
	copied, err := unix.FcntlInt(uintptr(descriptor(t, filepath.Join(dir, "lock"))), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	closed := make(chan error, 1)
	b.Restart(func(*bridge.Config) { // between stop and start
		time.AfterFunc(patience.Brief, func() { closed <- unix.Close(copied) })
	})
	require.NoError(t, <-closed)
}

// descriptor returns the descriptor of an open file of this process.
func descriptor(t *testing.T, path string) int {
	const folder = "/proc/self/fd"
	open, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range open {
		if target, err := os.Readlink(filepath.Join(folder, entry.Name())); err == nil && target == path {
			number, err := strconv.Atoi(entry.Name())
			require.NoError(t, err)
			return number
		}
	}
	require.FailNow(t, path+" is not open")
	return 0
}
