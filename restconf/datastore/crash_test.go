package datastore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
)

// The tasks of a child process of a test.
const (
	writerDir = "COE_BRIDGE_TEST_WRITER_DIR"
	serverDir = "COE_BRIDGE_TEST_SERVER_DIR"
)

// TestMain lets a test run this binary as a process that is going to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		writeForever(dir)
	}
	if dir := os.Getenv(serverDir); dir != "" {
		serveForever(dir)
	}
	os.Exit(m.Run())
}

// child starts this binary in one of its other roles, and returns its lines.
func child(t *testing.T, role, dir string) (*os.Process, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), role+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		_ = cmd.Wait()
	})
	return cmd.Process, bufio.NewScanner(out)
}

// serveForever is an etcd server that can be killed.
func serveForever(dir string) {
	_, endpoint, err := startServer(dir, func(*embed.Config) {})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(endpoint)
	select {}
}

// writeForever leads, and puts one unit after the other, saying each when it is
// acknowledged.
func writeForever(dir string) {
	s := newShapes()
	d, err := Open(context.Background(), Config{Schema: s.schema, Dir: dir})
	if err == nil {
		_, err = d.Campaign(context.Background())
	}
	for i := 0; err == nil; i++ {
		err = d.Update(context.Background(), func(tx *Tx) error {
			tx.Put(s.pods, []string{fmt.Sprint(i)}, []byte(`{}`))
			return nil
		})
		if err == nil {
			fmt.Println(i)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := newShapes()
	for round := range 2 {
		process, lines := child(t, writerDir, dir)
		for range 200 {
			require.True(t, lines.Scan())
		}
		require.NoError(t, process.Kill())
		acknowledged := lines.Text()
		for lines.Scan() {
			acknowledged = lines.Text()
		}

		d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
		require.NoError(t, err)
		var last int
		_, err = fmt.Sscan(strings.TrimSpace(acknowledged), &last)
		require.NoError(t, err)
		for i := range last + 1 {
			require.NotNil(t, d.Get(s.pods, fmt.Sprint(i)), "round %d: %d was acknowledged", round, i)
		}
		require.NoError(t, d.Close())
	}
}
