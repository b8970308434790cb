package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// pluginName is the name of the plugin's executable and the type of our networks.
const pluginName = "coe-cni"

// agent checks that the agent answers and can attach pods.
func (c *Config) agent(ctx context.Context) (string, error) {
	answer, err := call.Do(ctx, c.Socket, call.Request{Command: call.Status, Config: json.RawMessage(`{"name":"doctor","cniVersion":"1.1.0","type":"coe-cni"}`)})
	switch {
	case errors.Is(err, os.ErrPermission):
		return "", failed(err, "only root can use the socket: run doctor as root")
	case err != nil:
		return "", failed(err, "start coe-bridge agent, or set its socket with --socket")
	case answer.Error != nil:
		return "", failed(fmt.Errorf("the agent cannot attach pods: %w", answer.Error), "fix the other failures first; if there are none, check the log of the agent")
	}
	return "it answers on " + c.Socket, nil
}

// state checks that the files in the state directory can be read.
func (c *Config) state(context.Context) (string, error) {
	if _, err := os.Stat(c.StateDir); errors.Is(err, os.ErrNotExist) {
		return c.StateDir + " does not exist yet; the agent creates it", nil
	}
	if err := errors.Join(agent.CheckNotes(c.StateDir), uplink.CheckDir(c.StateDir)); err != nil {
		return "", warning(err, "start the agent: it searches the switch for the pods of unreadable notes, and reads the rest from the bridge; check its log if this stays")
	}
	return c.StateDir + " can be read", nil
}

// plugin checks that the plugin is installed and runs.
func (c *Config) plugin(ctx context.Context) (string, error) {
	path := filepath.Join(c.CNIBinDir, pluginName)
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0"}`)
	out, err := cmd.Output()
	if err != nil {
		return "", failed(fmt.Errorf("run %s: %w", path, err), "let coe-bridge agent --install-cni install it there, or name the runtime's directory of plugins with --cni-bin-dir")
	}
	var answer struct {
		Versions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Versions) == 0 {
		return "", failed(fmt.Errorf("%s is not a CNI plugin: it prints %q", path, bytes.TrimSpace(out)), "let coe-bridge agent --install-cni install it there")
	}
	return fmt.Sprintf("%s supports CNI %s to %s", path, answer.Versions[0], answer.Versions[len(answer.Versions)-1]), nil
}

// list is the part of a network configuration list, or of a single network, to check.
type list struct {
	Type    string `json:"type"`
	Plugins []struct {
		Type   string `json:"type"`
		Socket string `json:"socket"`
	} `json:"plugins"`
	Socket string `json:"socket"`
}

// networkList checks that the runtime uses our network: it takes the first file by name.
func (c *Config) networkList(context.Context) (string, error) {
	entries, err := os.ReadDir(c.CNIConfDir)
	if err != nil {
		return "", failed(err, "let coe-bridge agent --install-cni install the network configuration list, or name the runtime's directory of network configurations with --cni-conf-dir")
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() || !slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(e.Name()))
	})
	for i, e := range entries {
		socket, ours, err := readList(filepath.Join(c.CNIConfDir, e.Name()))
		switch {
		case err != nil:
			return "", failed(err, "correct or remove the file")
		case !ours:
			continue
		case cmp.Or(socket, call.DefaultSocket) != c.Socket:
			return "", failed(fmt.Errorf("%s names the socket %s, but the agent's socket is %s", e.Name(), cmp.Or(socket, call.DefaultSocket), c.Socket), "set the agent's socket in the list, or start the agent with the list's socket (--socket)")
		case i > 0:
			return "", warning(fmt.Errorf("the runtime takes %s, which sorts before %s", entries[0].Name(), e.Name()), "remove it, unless it delegates to our network as Multus does")
		}
		return e.Name() + " is the runtime's network", nil
	}
	return "", failed(fmt.Errorf("no network in %s is of type %s", c.CNIConfDir, pluginName), "let coe-bridge agent --install-cni install the network configuration list there")
}

// readList reports whether a file configures our network, and which socket it names.
func readList(path string) (socket string, ours bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false, err
	}
	var l list
	if err := json.Unmarshal(text, &l); err != nil {
		return "", false, fmt.Errorf("read %s: %w", path, err)
	}
	if l.Type == pluginName {
		return l.Socket, true, nil
	}
	for _, p := range l.Plugins {
		if p.Type == pluginName {
			return p.Socket, true, nil
		}
	}
	return "", false, nil
}
