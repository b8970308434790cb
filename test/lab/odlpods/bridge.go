package odlpods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// port is the bridge's port, different from the controller's.
const port = 8282

// URL returns the bridge's URL for the central namespace and the hosts.
func (l *Lab) URL() string { return fmt.Sprintf("http://%s:%d", ovnhost.Central, port) }

// The backends of bridges and agents.
const (
	OpenDaylight = "odl"
	OVN          = "ovn" // in a lab that is not of switches only
)

// StartBridge starts or restarts the bridge with an isolation.
func (l *Lab) StartBridge(ctx context.Context, isolation string) error {
	return l.StartBridgeOn(ctx, isolation, OpenDaylight)
}

// StartBridgeOn is StartBridge with backends. The first one serves.
func (l *Lab) StartBridgeOn(ctx context.Context, isolation string, backends ...string) error {
	if l.Bridge != nil {
		if err := l.Bridge.Terminate(); err != nil {
			return err
		}
	}
	argv := []string{l.program(), "serve", "--listen", strings.TrimPrefix(l.URL(), "http://"), "--auth-file", l.users.file(),
		"--data-dir", l.users.path("data"), "--isolation", isolation, "--service-network", "10.96.0.0/16", "--address-reuse-delay", "10s",
		"--backend", strings.Join(backends, ",")}
	argv = append(argv, l.reach(backends)...)
	var err error
	l.Bridge, err = l.Launch(ctx, ovnhost.Command{
		Name: "coe-bridge", Pod: ovnhost.CentralNamespace, Argv: argv,
		Ready: func(ctx context.Context) error {
			_, err := l.HTTPGet(ctx, ovnhost.CentralNamespace, l.URL()+"/readyz")
			return err
		},
	})
	return err
}

// reach returns the flags that say how backends are reached.
func (l *Lab) reach(backends []string) (flags []string) {
	if slices.Contains(backends, OVN) {
		flags = append(flags, "--ovn-nb", l.NB.Remote)
	}
	if slices.Contains(backends, OpenDaylight) {
		flags = append(flags, "--odl-url", l.ofMembers(l.url), "--odl-auth-file", l.users.controller())
	}
	return flags
}

// Convert returns what coe-bridge convert says about a move of all nodes to a backend.
func (l *Lab) Convert(ctx context.Context, to string) (string, error) {
	argv := append([]string{l.program(), "convert", "--to", to}, l.reach([]string{OVN, OpenDaylight})...)
	return l.Exec(ctx, ovnhost.CentralNamespace, argv...)
}

// Ask runs a client command of coe-bridge, and returns its output.
func (l *Lab) Ask(ctx context.Context, args ...string) (string, error) {
	return l.Exec(ctx, ovnhost.CentralNamespace, slices.Concat([]string{l.program()}, args, l.asOperator())...)
}

func (l *Lab) asOperator() []string {
	return []string{"--server", l.URL(), "--user", operator, "--password-file", l.users.password(operator)}
}

// Operator returns the credentials of a client that may write.
func (l *Lab) Operator() (user, password string, err error) {
	text, err := os.ReadFile(l.users.password(operator))
	return operator, strings.TrimSpace(string(text)), err
}

// Apply applies a YAML text with coe-bridge apply.
func (l *Lab) Apply(ctx context.Context, name, text string) error {
	file := l.users.path(name + ".yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err := l.Ask(ctx, "apply", "-f", file)
	return err
}

// ApplyNodes applies the hosts, and a pool for all pods.
func (l *Lab) ApplyNodes(ctx context.Context) error {
	text := "dhcp_allocation_pool:network:\n- network-id: default\n  allocation-pool: [{subnet: 10.42.0.0/16}]\n---\nk8s-node:k8s-nodes:\n"
	for i, h := range l.Hosts {
		text += fmt.Sprintf("- {uid: 40de0000-c0e0-4000-8000-%012d, host-name: %s, internal-ip-address: %s}\n", i+1, h.Name, h.Address)
	}
	return l.Apply(ctx, "nodes", text)
}

// ApplyPods applies pods.
func (l *Lab) ApplyPods(ctx context.Context, pods ...Pod) error {
	text := "pod:pods:\n"
	for _, p := range pods {
		requested := ""
		if p.Address != "" {
			requested = ", ip-address: " + p.Address
		}
		text += fmt.Sprintf("- {uid: %s, name: %s, network-NS: %s, host-ip-address: %s, interface: [{uid: %s, network-type: VXLAN%s}]}\n",
			p.UID, p.Name, p.Namespace, l.Host(p.Host).Address, p.UID, requested)
	}
	return l.Apply(ctx, "pods", text)
}

// DeletePod deletes a pod.
func (l *Lab) DeletePod(ctx context.Context, p Pod) error {
	_, err := l.Ask(ctx, "delete", "pod", p.Namespace+"/"+p.Name)
	return err
}

// wrapper is a script for users outside of the lab's network.
const wrapper = "#!/bin/sh\n# %s\nexec ip netns exec '%s' %s\n"

// WriteWrappers writes scripts for users into the lab's directory: coe-bridge for client commands, and curl for paths of
// OpenDaylight's RESTCONF.
func (l *Lab) WriteWrappers() (bridge, controller string, err error) {
	bridge, controller = filepath.Join(l.Dir, "coe-bridge"), filepath.Join(l.Dir, "opendaylight")
	login := l.users.path("curl")
	central := l.Namespace(ovnhost.CentralNamespace)
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{login, "user = \"admin:admin\"\n", 0o600},
		{bridge, fmt.Sprintf(wrapper, "coe-bridge, for its commands that ask the bridge of this folder", central,
			fmt.Sprintf(`%s "$@" %s`, l.program(), strings.Join(l.asOperator(), " "))), 0o755},
		{controller, fmt.Sprintf(wrapper, "a path of the RESTCONF of this folder's OpenDaylight, and further arguments of curl", central,
			fmt.Sprintf(`sh -c 'path=$1; shift; exec curl --silent --config %s "$@" "%s$path"' - "$@"`, login, l.Controller.Inside)), 0o755},
	} {
		if err := os.WriteFile(f.path, []byte(f.text), f.mode); err != nil {
			return "", "", fmt.Errorf("write script: %w", err)
		}
	}
	return bridge, controller, nil
}
