package install

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
)

// world has a node's directories, and an agent that may answer.
type world struct {
	Config
	answers atomic.Bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{}
	w.Config = Config{
		Plugin: filepath.Join(dir, "plugin"), BinDir: filepath.Join(dir, "opt/cni/bin"), ConfDir: filepath.Join(dir, "etc/cni/net.d"),
		Socket: call.DefaultSocket, Log: slog.New(slog.DiscardHandler),
		Answers: func(context.Context) error {
			if !w.answers.Load() {
				return errors.New("not yet")
			}
			return nil
		},
	}
	require.NoError(t, os.WriteFile(w.Plugin, []byte("new"), 0o755))
	return w
}

// run runs the installation with a fake clock until the test's checks are done.
func (w *world) run(t *testing.T, look func(plugin, configuration string)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		synctest.Wait()
		look(w.files())
		cancel()
		synctest.Wait()
	})
}

func TestConfigurationComesLast(t *testing.T) {
	w := newWorld(t)
	w.run(t, func(plugin, configuration string) {
		require.FileExists(t, plugin)
		require.NoFileExists(t, configuration)
		w.answers.Store(true)
		<-time.After(interval)
		synctest.Wait()
		require.FileExists(t, configuration)
		require.NoError(t, os.Remove(configuration))
		<-time.After(interval)
		synctest.Wait()
		require.FileExists(t, configuration, "a removed file is restored")
		for _, path := range []string{plugin, configuration} {
			files, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, files, 1, "nothing else is left")
		}
	})
}

// A restarted agent keeps files that are correct, and replaces files of an older agent.
func TestAgain(t *testing.T) {
	w := newWorld(t)
	w.answers.Store(true)
	plugin, configuration := w.files()
	w.run(t, func(string, string) {})
	before, err := os.Stat(configuration)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(plugin, []byte("old"), 0o755))
	w.run(t, func(string, string) {})
	after, err := os.Stat(configuration)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	content, err := os.ReadFile(plugin)
	require.NoError(t, err)
	require.Equal(t, "new", string(content))

	w.Socket = "/elsewhere.sock"
	w.run(t, func(string, string) {})
	text, err := os.ReadFile(configuration)
	require.NoError(t, err)
	require.Contains(t, string(text), `"socket": "/elsewhere.sock"`)
	sockets, err := os.ReadFile(plugin + call.SocketsSuffix)
	require.NoError(t, err)
	require.Equal(t, "/elsewhere.sock\n", string(sockets))
	require.NoError(t, w.Remove())
	require.NoFileExists(t, plugin+call.SocketsSuffix)
}

func TestRemove(t *testing.T) {
	w := newWorld(t)
	w.answers.Store(true)
	w.run(t, func(string, string) {})
	plugin, configuration := w.files()
	for range 2 {
		require.NoError(t, w.Remove())
		require.NoFileExists(t, plugin)
		require.NoFileExists(t, configuration)
	}
}

func TestNoPlugin(t *testing.T) {
	w := newWorld(t)
	w.answers.Store(true)
	require.NoError(t, os.Remove(w.Plugin))
	w.run(t, func(_, configuration string) { require.NoFileExists(t, configuration) })
	require.ErrorContains(t, w.install(t.Context()), "read the plugin")
}

// Runtimes can parse the configuration.
func TestConfiguration(t *testing.T) {
	w := newWorld(t)
	text, err := w.configuration()
	require.NoError(t, err)
	list, err := libcni.ConfListFromBytes(text)
	require.NoError(t, err)
	require.Equal(t, "1.1.0", list.CNIVersion, "the newest version that both support")
	require.Equal(t, networkName, list.Name)
	require.Len(t, list.Plugins, 1)
	require.Equal(t, PluginName, list.Plugins[0].Network.Type)
}
