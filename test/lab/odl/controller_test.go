package odl_test

import (
	"io/fs"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

const elan = "/restconf/config/elan:elan-instances/elan-instance/kept"

// TestRealOpenDaylight starts a controller of each release, which manages two hosts. It tests packets between
// pods, and that the controller can be killed, stopped, started and wiped.
func TestRealOpenDaylight(t *testing.T) {
	odl.SkipUnlessAsked(t)
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			installation, err := odl.Install(t.Context(), release, t.Output())
			require.NoError(t, err)
			before := files(t, installation.Karaf)
			c := odl.ForTest(t, release, "host1", "host2")
			ask(t, c, http.MethodPut, elan, `{"elan-instance":[{"elan-instance-name":"kept"}]}`, http.StatusCreated)
			t.Run("isolation", func(t *testing.T) { testIsolation(t, c) })
			t.Run("common target", func(t *testing.T) { testCommonTarget(t, c) })
			t.Run("lives", func(t *testing.T) { testLives(t, c) })
			require.Equal(t, before, files(t, installation.Karaf), "a controller does not write to the installation")
		})
	}
}

// testLives kills and stops a controller some time after the last write, because a killed Neon loses its last
// writes.
func testLives(t *testing.T, c *odl.Controller) {
	require.NoError(t, c.Restart(t.Context()))
	ask(t, c, http.MethodGet, elan, "", http.StatusOK)
	require.NoError(t, c.AwaitManaged(t.Context(), c.Lab.Hosts[0]))

	require.NoError(t, c.Stop())
	_, _, err := c.Request(t.Context(), http.MethodGet, elan, "")
	require.Error(t, err)
	require.NoError(t, c.Wipe(t.Context()))
	ask(t, c, http.MethodGet, elan, "", http.StatusNotFound)
	require.NoError(t, c.AwaitManaged(t.Context(), c.Lab.Hosts[0]))
}

// ask sends a request, whose answer must have a status.
func ask(t *testing.T, c *odl.Controller, method, path, body string, want int) []byte {
	t.Helper()
	status, answer, err := c.Request(t.Context(), method, path, body)
	require.NoError(t, err)
	require.Equal(t, want, status, "%s %s: %s", method, path, answer)
	return answer
}

// file has the properties of a file by which a change can be detected.
type file struct {
	size     int64
	modified time.Time
}

// files returns the files below a folder.
func files(t *testing.T, dir string) map[string]file {
	t.Helper()
	all := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = file{info.Size(), info.ModTime()}
		}
		return err
	})
	require.NoError(t, err)
	return all
}
