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

// pluginName is the type of our networks, and the plugin's file.
const pluginName = "coe-cni"

// agent looks whether the agent answers, and could plug pods in.
func (c *Config) agent(ctx context.Context) (string, error) {
	answer, err := call.Do(ctx, c.Socket, call.Request{Command: call.Status, Config: json.RawMessage(`{"name":"doctor","cniVersion":"1.1.0","type":"coe-cni"}`)})
	switch {
	case errors.Is(err, os.ErrPermission):
		return "", failed(err, "the socket is root's: run doctor as root")
	case err != nil:
		return "", failed(err, "start coe-bridge agent, or name its socket with --socket")
	case answer.Error != nil:
		return "", failed(fmt.Errorf("the agent can plug no pods in: %w", answer.Error), "mend what else fails here; if nothing does, see the log of the agent")
	}
	return "it answers on " + c.Socket, nil
}

// state looks whether what the agent keeps on disk can be read.
func (c *Config) state(context.Context) (string, error) {
	if err := errors.Join(agent.CheckNotes(c.StateDir), uplink.CheckDir(c.StateDir)); err != nil {
		return "", warning(err, "start the agent: it looks for the pods of unreadable notes in the switch, and asks the bridge for the rest; see its log if this stays")
	}
	return c.StateDir + " can be read", nil
}

// plugin looks whether the runtime finds the plugin, and whether that runs.
func (c *Config) plugin(ctx context.Context) (string, error) {
	path := filepath.Join(c.CNIBinDir, pluginName)
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0"}`)
	out, err := cmd.Output()
	if err != nil {
		return "", failed(fmt.Errorf("run %s: %w", path, err), "have coe-bridge agent --install-cni install it there, or name the runtime's folder of plugins with --cni-bin-dir")
	}
	var says struct {
		Versions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(out, &says); err != nil || len(says.Versions) == 0 {
		return "", failed(fmt.Errorf("%s is no CNI plugin: it says %q", path, bytes.TrimSpace(out)), "have coe-bridge agent --install-cni install it there")
	}
	return fmt.Sprintf("%s speaks CNI %s to %s", path, says.Versions[0], says.Versions[len(says.Versions)-1]), nil
}

// list is what is looked at of a network configuration list, or of a single network.
type list struct {
	Type    string `json:"type"`
	Plugins []struct {
		Type   string `json:"type"`
		Socket string `json:"socket"`
	} `json:"plugins"`
	Socket string `json:"socket"`
}

// networkList looks whether the runtime's networks have ours, in the place that counts:
// of the files the first by name is taken.
func (c *Config) networkList(context.Context) (string, error) {
	entries, err := os.ReadDir(c.CNIConfDir)
	if err != nil {
		return "", failed(err, "have coe-bridge agent --install-cni install the network configuration list, or name the runtime's folder of networks with --cni-conf-dir")
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() || !slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(e.Name()))
	})
	for i, e := range entries {
		socket, ours, err := readList(filepath.Join(c.CNIConfDir, e.Name()))
		switch {
		case err != nil:
			return "", failed(err, "mend or remove the file")
		case !ours:
			continue
		case cmp.Or(socket, call.DefaultSocket) != c.Socket:
			return "", failed(fmt.Errorf("%s names the socket %s, and the agent's is %s", e.Name(), cmp.Or(socket, call.DefaultSocket), c.Socket), "give the list the agent's socket, or the agent the list's with --socket")
		case i > 0:
			return "", warning(fmt.Errorf("the runtime takes %s, which is before %s", entries[0].Name(), e.Name()), "remove it, unless it delegates to ours as Multus does")
		}
		return e.Name() + " is the runtime's network", nil
	}
	return "", failed(fmt.Errorf("no network in %s is of type %s", c.CNIConfDir, pluginName), "have coe-bridge agent --install-cni install the network configuration list there")
}

// readList tells whether a file is a network of ours, and which socket it names.
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
