package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// network is a network configuration from the runtime.
type network struct {
	types.PluginConf
	// IsDefaultGateway is whether the interface gets the default routes; for nil see
	// attachment.routes.
	IsDefaultGateway *bool `json:"isDefaultGateway"`
	Args             struct {
		CNI map[string]json.RawMessage `json:"cni"`
	} `json:"args"`
	RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`

	wanted wanted
}

// validKey is the key of the attachments that a GC call keeps.
const validKey = "cni.dev/valid-attachments"

// valid returns the attachments that a GC call keeps. The list may be empty, but must
// exist: if a runtime omitted it or wrote null, all its pods would lose their network. An
// entry without container or interface is an error for the same reason.
func (n *network) valid() ([]vif.Attachment, error) {
	if n.Name == "" {
		return nil, invalid("GC needs the name of the network")
	}
	if n.ValidAttachments == nil {
		return nil, invalid("GC needs %q, a list of the attachments to keep", validKey)
	}
	valid := make([]vif.Attachment, 0, len(n.ValidAttachments))
	for _, v := range n.ValidAttachments {
		if v.ContainerID == "" || v.IfName == "" {
			return nil, invalid("%s: an entry has no containerID or no ifname", validKey)
		}
		valid = append(valid, vif.Attachment{Container: v.ContainerID, IfName: v.IfName})
	}
	return valid, nil
}

// wanted is what the caller requests.
type wanted struct {
	addresses []netip.Addr
	mac       string // empty: any
	hostPorts []vif.HostPort
}

// networkKeys are the known keys of a configuration. "socket" is for the plugin; keys with
// the prefix reservedKeys are reserved by CNI.
var networkKeys = []string{
	"args", "capabilities", "cniVersion", "disableCheck", "dns", "ipam", "isDefaultGateway", "name", "prevResult", "runtimeConfig", "socket", "type",
}

const reservedKeys = "cni.dev/"

func invalid(format string, args ...any) error {
	return types.NewError(types.ErrInvalidNetworkConfig, "the network configuration is invalid", fmt.Sprintf(format, args...))
}

// readNetwork reads a configuration.
func readNetwork(text []byte) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(text, n); err != nil {
		return nil, invalid("%s", err)
	}
	return n, nil
}

// verify fails if the configuration has an unknown key or requests something that cannot
// be given. It reads the requested addresses and MAC address.
func (n *network) verify(text []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return invalid("%s", err)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(networkKeys, key) && !strings.HasPrefix(key, reservedKeys) {
			return invalid("unknown key %q: known keys are %s", key, strings.Join(networkKeys, ", "))
		}
	}
	if !n.IPAM.IsEmpty() {
		return invalid("ipam %q is not supported because the bridge chooses addresses: remove it", n.IPAM.Type)
	}
	for from, given := range map[string]map[string]json.RawMessage{"args.cni": n.Args.CNI, "runtimeConfig": n.RuntimeConfig} {
		for _, key := range slices.Sorted(maps.Keys(given)) {
			var err error
			if from == "runtimeConfig" && key == "portMappings" {
				err = n.wanted.takeHostPorts(given[key])
			} else {
				err = n.wanted.take(key, given[key])
			}
			if err != nil {
				return invalid("%s.%s: %s", from, key, err)
			}
		}
	}
	return nil
}

// take reads one requested value.
func (w *wanted) take(key string, value json.RawMessage) error {
	switch key {
	case "ips":
		var ips []string
		if err := json.Unmarshal(value, &ips); err != nil {
			return err
		}
		for _, ip := range ips {
			if err := w.takeAddress(ip); err != nil {
				return err
			}
		}
		return nil
	case "mac":
		var mac string
		if err := json.Unmarshal(value, &mac); err != nil {
			return err
		}
		return w.takeMAC(mac)
	}
	if !isSet(value) {
		return nil
	}
	return fmt.Errorf("%s is not supported: remove it", value)
}

func (w *wanted) takeAddress(text string) error {
	a, err := parseAddr(text)
	if err == nil && !slices.Contains(w.addresses, a) {
		w.addresses = append(w.addresses, a)
	}
	return err
}

func (w *wanted) takeMAC(text string) error {
	if text == "" {
		return nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil {
		return err
	}
	w.mac = mac.String()
	return nil
}

// isSet reports whether a value requests something.
func isSet(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "[]", "{}", `""`, "0", "false":
		return false
	}
	return true
}
