package odlpods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/coe-bridge/coe-bridge/cni/install"
)

// Pod is a pod that clients post.
type Pod struct {
	Namespace, Name, UID, Host string
	Address                    string // requested; empty: one of the pool
}

// String returns the name of the pod's interface, which is also the name of its sandbox in the lab.
func (p Pod) String() string { return p.Namespace + ":" + p.Name }

// Plugged has the data that a container runtime has about a pod that was plugged in.
type Plugged struct {
	Pod
	Result  *current.Result
	Address netip.Addr
}

// Port returns the name of the pod's port on the host's switch.
func (p Plugged) Port() string { return p.Result.Interfaces[0].Name }

// callTimeout bounds a call. It is longer than the agent's own deadline.
const callTimeout = 5 * time.Minute

// Plug creates a pod's sandbox and plugs it in with the CNI plugin, as a container runtime does. After a failure
// the sandbox still exists.
func (l *Lab) Plug(ctx context.Context, p Pod) (Plugged, error) {
	if _, err := l.Sandbox(ctx, p.String()); err != nil {
		return Plugged{}, err
	}
	return l.Add(ctx, p)
}

// Add is Plug for a pod with an existing sandbox.
func (l *Lab) Add(ctx context.Context, p Pod) (Plugged, error) {
	out, err := l.call(ctx, "ADD", p, nil)
	if err != nil {
		return Plugged{}, err
	}
	result, err := create.CreateFromBytes(out)
	if err != nil {
		return Plugged{}, fmt.Errorf("read answer to ADD: %w", err)
	}
	is := Plugged{Pod: p}
	if is.Result, err = current.NewResultFromResult(result); err != nil {
		return Plugged{}, fmt.Errorf("read answer to ADD: %w", err)
	}
	if len(is.Result.IPs) == 0 || len(is.Result.Interfaces) == 0 {
		return Plugged{}, errors.New("read answer to ADD: it has no address")
	}
	address, _ := netip.AddrFromSlice(is.Result.IPs[0].Address.IP)
	is.Address = address.Unmap()
	return is, nil
}

// retryPause is the shortest time after which kubelet calls the runtime again for a pod whose sandbox has no network.
const retryPause = 10 * time.Second

// Retry is Plug. It repeats a call that fails, as often as kubelet does, until ctx ends. It calls failed with the error of each call.
func (l *Lab) Retry(ctx context.Context, p Pod, failed func(error)) (Plugged, error) {
	plugged, err := l.Plug(ctx, p)
	for err != nil && ctx.Err() == nil {
		failed(err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
		plugged, err = l.Add(ctx, p)
	}
	return plugged, err
}

// Check calls CHECK of the plugin, which compares a pod with the result of its ADD.
func (l *Lab) Check(ctx context.Context, p Plugged) error {
	_, err := l.call(ctx, "CHECK", p.Pod, p.Result)
	return err
}

// Unplug calls DEL of the plugin for a pod, and removes its sandbox.
func (l *Lab) Unplug(ctx context.Context, p Pod) error {
	if _, err := l.call(ctx, "DEL", p, nil); err != nil {
		return err
	}
	return l.RemoveSandbox(ctx, p.String())
}

// call runs the plugin as a container runtime does. It returns the error of CNI, if the plugin prints one.
func (l *Lab) call(ctx context.Context, command string, p Pod, previous *current.Result) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := map[string]any{"cniVersion": "1.1.0", "name": "coe-bridge", "type": "coe-cni", "socket": socket(l.Host(p.Host))}
	if previous != nil {
		config["prevResult"] = previous
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.Host(p.Host).Dir, install.PluginName))
	cmd.Stdin = bytes.NewReader(text)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=sandbox-" + p.UID, "CNI_NETNS=/run/netns/" + l.Namespace(p.String()), "CNI_IFNAME=eth0", "CNI_PATH=" + l.bin,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
	}
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	var said types.Error
	if json.Unmarshal(out, &said) == nil && said.Code != 0 {
		return nil, fmt.Errorf("%s of %s: %w", command, p, &said)
	}
	return nil, fmt.Errorf("%s of %s: %w: %s", command, p, err, out)
}

// Reach waits until a pod reaches an address.
func (l *Lab) Reach(ctx context.Context, from Pod, to netip.Addr) error {
	return Await(ctx, func(ctx context.Context) error { return l.Ping(ctx, from.String(), to) })
}

// Answered pings an address from a pod, ten times a second, until it is answered.
func (l *Lab) Answered(ctx context.Context, from string, to netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := l.Exec(ctx, from, "ping", "-n", "-c", "1", "-i", "0.1", "-w", "10", to.String())
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Apart fails if a pod gets an answer from an address to one of several requests.
func (l *Lab) Apart(ctx context.Context, from Pod, to netip.Addr) error {
	out, err := l.Exec(ctx, from.String(), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", to.String())
	if err == nil {
		return fmt.Errorf("%s reaches %s: %s", from, to, out)
	}
	return nil
}
