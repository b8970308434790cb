package odl_test

import (
	"io/fs"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/odl"
)

const elan = "/restconf/config/elan:elan-instances/elan-instance/kept"

// TestController has a controller of each release killed, stopped, started and wiped, and
// manage a host all the while.
func TestController(t *testing.T) {
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) { testController(t, odl.ForTest(t, release, "host1")) })
	}
}

func testController(t *testing.T, c *odl.Controller) {
	before := installed(t, c)
	ask(t, c, http.MethodPut, elan, `{"elan-instance":[{"elan-instance-name":"kept"}]}`, http.StatusCreated)

	require.NoError(t, c.Restart(t.Context()))
	ask(t, c, http.MethodGet, elan, "", http.StatusOK)
	require.NoError(t, c.AwaitManaged(t.Context(), c.Lab.Hosts[0]))

	require.NoError(t, c.Stop())
	_, _, err := c.Request(t.Context(), http.MethodGet, elan, "")
	require.Error(t, err)
	require.NoError(t, c.Wipe(t.Context()))
	ask(t, c, http.MethodGet, elan, "", http.StatusNotFound)
	require.NoError(t, c.AwaitManaged(t.Context(), c.Lab.Hosts[0]))

	require.Equal(t, before, installed(t, c), "what is installed is not written to")
}

// ask sends a request, whose answer must have a status.
func ask(t *testing.T, c *odl.Controller, method, path, body string, want int) []byte {
	t.Helper()
	status, answer, err := c.Request(t.Context(), method, path, body)
	require.NoError(t, err)
	require.Equal(t, want, status, "%s %s: %s", method, path, answer)
	return answer
}

// file is what would tell of a change.
type file struct {
	size     int64
	modified time.Time
}

// installed are the files of the release that a controller runs.
func installed(t *testing.T, c *odl.Controller) map[string]file {
	t.Helper()
	root, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(c.Log()), "../../system"))
	require.NoError(t, err)
	files := map[string]file{}
	err = filepath.WalkDir(filepath.Dir(root), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		files[path] = file{info.Size(), info.ModTime()}
		return err
	})
	require.NoError(t, err)
	return files
}
