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
)

const crashDir = "COE_BRIDGE_TEST_CRASH_DIR"

// TestMain lets a test run this binary as the process that is going to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
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
		fmt.Println(i)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := newShapes()
	for round := range 2 {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		lines := bufio.NewScanner(out)
		for range 200 {
			require.True(t, lines.Scan())
		}
		require.NoError(t, child.Process.Kill())
		acknowledged := lines.Text()
		for lines.Scan() {
			acknowledged = lines.Text()
		}
		require.Error(t, child.Wait())

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
