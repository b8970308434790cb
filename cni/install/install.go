// Package install installs the CNI plugin and the network configuration list for the
// container runtime, and removes them. It writes the configuration last, once the agent
// answers calls: a runtime that finds it considers the node ready. Each file is written
// atomically.
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

// The names of the installed files. Runtimes take the first configuration by name, so ours
// sorts before others.
const (
	PluginName        = "coe-cni"
	ConfigurationName = "10-coe-bridge.conflist"
	networkName       = "coe-bridge"
)

// interval is how often Run checks the agent and the installed files.
const interval = time.Second

// Config configures the installation.
type Config struct {
	Plugin  string // the executable of the plugin
	BinDir  string // the runtime directory of plugins
	ConfDir string // the runtime directory of configurations
	Socket  string // of the agent
	// Answers returns nil if the agent answers calls.
	Answers func(context.Context) error
	Log     *slog.Logger
}

// Run installs the plugin at once, and the configuration as soon as the agent answers
// calls. It replaces files of an earlier agent that differ, and restores missing files,
// until ctx is done.
func (c Config) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	logged, installed := "", false
	for {
		if !installed || !c.isThere() {
			err := c.install(ctx)
			installed = err == nil
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != logged {
				logged = text
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
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	text, err := c.configuration()
	if err != nil {
		return err
	}
	return c.put(configuration, text, 0o644)
}

// InstallPlugin installs the plugin and its sockets file.
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

// allowSocket allows the plugin to use the agent's socket. The default socket needs no
// file.
func (c Config) allowSocket() error {
	if c.Socket != call.DefaultSocket {
		return c.put(c.sockets(), []byte(c.Socket+"\n"), 0o644)
	}
	if err := os.Remove(c.sockets()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the former sockets file of the plugin: %w", err)
	}
	return nil
}

// sockets returns the path of the plugin's sockets file.
func (c Config) sockets() string {
	plugin, _ := c.files()
	return plugin + call.SocketsSuffix
}

// configuration returns the network configuration list. A runtime uses the newest CNI
// version of cniVersions that it supports; a runtime that ignores cniVersions uses
// cniVersion.
func (c Config) configuration() ([]byte, error) {
	type object map[string]any
	plugin := object{"type": PluginName, "capabilities": object{"ips": true, "mac": true, "portMappings": true}}
	if c.Socket != call.DefaultSocket {
		plugin["socket"] = c.Socket
	}
	text, err := json.MarshalIndent(object{
		"name": networkName, "cniVersion": "1.0.0", "cniVersions": []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"},
		"plugins": []object{plugin},
	}, "", "  ")
	return append(text, '\n'), err
}

// put writes a file, unless it already has this content.
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

// holds reports whether a file has that content.
func holds(path string, content []byte) (bool, error) {
	has, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Equal(has, content), err
}

// Remove removes what Run installs, the configuration first. Missing files are not an
// error.
func (c Config) Remove() error {
	plugin, configuration := c.files()
	for _, path := range []string{configuration, plugin, c.sockets()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was installed: %w", err)
		}
	}
	return nil
}
