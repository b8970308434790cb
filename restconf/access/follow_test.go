package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However a file is replaced, what it says is in force soon, and what it said is
// not.
func TestFilesAreFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(t testing.TB, content string) (path string)
		replace func(t *testing.T, path, content string)
	}{
		{"written in place", file, func(t *testing.T, path, content string) { write(t, path, content) }},
		{"renamed over", file, func(t *testing.T, path, content string) {
			write(t, path+".new", content)
			require.NoError(t, os.Rename(path+".new", path))
		}},
		{"removed and created again", file, func(t *testing.T, path, content string) {
			require.NoError(t, os.Remove(path))
			write(t, path, content)
		}},
		{"same size and time", file, func(t *testing.T, path, content string) {
			before, err := os.Stat(path)
			require.NoError(t, err)
			write(t, path, content)
			require.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
		}},
		// path -> ..data/users, ..data -> one, as kubelet mounts Secrets.
		{"a Secret's symbolic link", mountSecret, func(t *testing.T, path, content string) {
			dir := filepath.Dir(path)
			require.NoError(t, os.Mkdir(dir+"/two", 0o700))
			write(t, dir+"/two/users", content)
			require.NoError(t, os.Symlink("two", dir+"/..data_tmp"))
			require.NoError(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
			require.NoError(t, os.RemoveAll(dir+"/one"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.prepare(t, line(t, "ann", "writer", "one"))
			b := newBed(t, Config{UsersFile: path})
			require.True(t, b.good("ann", "one"))
			c.replace(t, path, line(t, "ann", "writer", "two"))
			b.eventually(func() bool { return strings.Contains(b.log.String(), "loaded the changed file") }, "it is loaded again")
			require.False(t, b.good("ann", "one"))
			require.True(t, b.good("ann", "two"))
			require.LessOrEqual(t, b.metric("coe_bridge_file_failures_total", "auth-file"), 1.0, "it may be seen while it is not there")
		})
	}
}

func mountSecret(t testing.TB, content string) string {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/one", 0o700))
	write(t, dir+"/one/users", content)
	require.NoError(t, os.Symlink("one", dir+"/..data"))
	require.NoError(t, os.Symlink("..data/users", dir+"/users"))
	return dir + "/users"
}

// A file that is broken, or gone, leaves in force what it said; that is logged once
// and measured. So is that it is good again.
func TestBrokenFilesChangeNothing(t *testing.T) {
	good := line(t, "ann", "writer", "one")
	path := file(t, good)
	b := newBed(t, Config{UsersFile: path})
	loaded := b.metric("coe_bridge_file_loaded_timestamp_seconds", "auth-file")
	require.InDelta(t, time.Now().Unix(), loaded, 60)
	failures := 0.0
	for _, c := range []struct {
		name, says string
		breakIt    func()
	}{
		{"clear", "has no bcrypt or argon2id hash", func() { write(t, path, "ann:writer:plainsecret\n") }},
		{"empty", "names no user", func() { write(t, path, "") }},
		{"gone", "no such file", func() { require.NoError(t, os.Remove(path)) }},
		{"a folder", "not a regular file", func() { require.NoError(t, os.Mkdir(path, 0o700)) }},
	} {
		c.breakIt()
		failures++
		b.eventually(func() bool { return b.metric("coe_bridge_file_failures_total", "auth-file") == failures }, "%s is noticed", c.name)
		require.Zero(t, b.metric("coe_bridge_file_current", "auth-file"), c.name)
		require.True(t, b.good("ann", "one"), c.name)
		require.Contains(t, b.log.String(), c.says)
	}
	require.NotContains(t, b.log.String(), "plainsecret")
	require.Equal(t, 4, strings.Count(b.log.String(), "its former content stays in use"), "each once")

	require.NoError(t, os.Remove(path))
	write(t, path, good)
	b.eventually(func() bool { return b.metric("coe_bridge_file_current", "auth-file") == 1 }, "it is as it was")
	require.GreaterOrEqual(t, b.metric("coe_bridge_file_loaded_timestamp_seconds", "auth-file"), loaded)
}
