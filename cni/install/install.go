// Package install puts the CNI plugin and the network configuration list where container
// runtimes look for them, and takes them away again. The configuration comes last, and
// only when calls are answered: a runtime that finds it takes its node for ready. Each
// file appears whole or not at all.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/durable"
)

// The names of what is installed. The configuration's sorts before those of others, of
// which runtimes take the first.
const (
	PluginName        = "coe-cni"
	ConfigurationName = "10-coe-bridge.conflist"
	networkName       = "coe-bridge"
)

// interval is how often is looked whether calls are answered, and whether what was
// installed is there.
const interval = time.Second

// Config says what is installed, and where.
type Config struct {
	Plugin  string // the plugin's file
	BinDir  string // where runtimes look for plugins
	ConfDir string // where runtimes look for configurations
	Socket  string // of the agent
	// Answers tells by nil that the agent answers calls.
	Answers func(context.Context) error
	Log     *slog.Logger
}

// Run installs the plugin at once, and the configuration as soon as calls are answered;
// what an earlier agent installed is replaced where it is another. It does so again where
// one of them is missing, until ctx is done.
func (c Config) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	said, installed := "", false
	for {
		if !installed || !c.isThere() {
			err := c.install(ctx)
			installed = err == nil
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != said {
				said = text
				c.Log.Warn("the plugin and its configuration are not installed yet", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c Config) files() (plugin, configuration string) {
	return filepath.Join(c.BinDir, PluginName), filepath.Join(c.ConfDir, ConfigurationName)
}

func (c Config) isThere() bool {
	plugin, configuration := c.files()
	files := []string{plugin, configuration}
	if c.Socket != call.DefaultSocket {
		files = append(files, c.sockets())
	}
	for _, path := range files {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

func (c Config) install(ctx context.Context) error {
	_, configuration := c.files()
	if err := c.InstallPlugin(); err != nil {
		return err
	}
	if err := c.Answers(ctx); err != nil {
		return fmt.Errorf("the agent does not answer yet: %w", err)
	}
	text, err := c.configuration()
	if err != nil {
		return err
	}
	return c.put(configuration, text, 0o644)
}

// InstallPlugin installs the plugin, and beside it the file that has it accept the agent's
// socket.
func (c Config) InstallPlugin() error {
	plugin, _ := c.files()
	program, err := os.ReadFile(c.Plugin)
	if err != nil {
		return fmt.Errorf("read the plugin: %w", err)
	}
	if err := c.allowSocket(); err != nil { // before the plugin that reads it
		return err
	}
	return c.put(plugin, program, 0o755)
}

// allowSocket has the plugin accept the agent's socket, which needs no file if it is the
// default.
func (c Config) allowSocket() error {
	if c.Socket != call.DefaultSocket {
		return c.put(c.sockets(), []byte(c.Socket+"\n"), 0o644)
	}
	if err := os.Remove(c.sockets()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the former socket of the plugin: %w", err)
	}
	return nil
}

// sockets is the plugin's sockets file.
func (c Config) sockets() string {
	plugin, _ := c.files()
	return plugin + call.SocketsSuffix
}

// configuration is that of the network. A runtime takes the newest version of CNI that
// it and the list of versions have; one that knows no list takes cniVersion.
func (c Config) configuration() ([]byte, error) {
	type object map[string]any
	plugin := object{"type": PluginName, "capabilities": object{"ips": true, "mac": true}}
	if c.Socket != call.DefaultSocket {
		plugin["socket"] = c.Socket
	}
	text, err := json.MarshalIndent(object{
		"name": networkName, "cniVersion": "1.0.0", "cniVersions": []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"},
		"plugins": []object{plugin},
	}, "", "  ")
	return append(text, '\n'), err
}

// put makes a file hold a content, and changes nothing where it does.
func (c Config) put(path string, content []byte, mode os.FileMode) error {
	has, err := holds(path, content)
	if err != nil {
		return fmt.Errorf("install %s: %w", path, err)
	}
	if has {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("install %s: %w", path, err)
	}
	if err := durable.Write(path, content, mode); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	c.Log.Info("installed", "file", path)
	return nil
}

// holds tells whether a file has that content.
func holds(path string, content []byte) (bool, error) {
	has, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Equal(has, content), err
}

// Remove removes what Run installs, the configuration first. What is not there is well.
func (c Config) Remove() error {
	plugin, configuration := c.files()
	for _, path := range []string{configuration, plugin, c.sockets()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was installed: %w", err)
		}
	}
	return nil
}
