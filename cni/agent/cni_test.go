package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/stretchr/testify/require"
)

// referencePlugins is the directory of the CNI project's plugins.
const referencePlugins = "/usr/lib/cni"

// object is a JSON object.
type object = map[string]any

// invoke calls the plugin as a runtime does.
type invoke struct {
	command string
	args    string // CNI_ARGS; empty: the sandbox's
	ifName  string // empty: eth0
	netns   string // empty: the sandbox's; "-": none
	version string // empty: 1.1.0
	conf    object // added to the common configuration
}

func (s *sandbox) invoke(ctx context.Context, i invoke) ([]byte, error) {
	path, err := plugin()
	if err != nil {
		return nil, err
	}
	conf := object{"cniVersion": "1.1.0", "name": "coe", "type": "coe-cni", "socket": s.w.agents[s.host].socket}
	return s.run(ctx, i, conf, path)
}

// run runs a plugin as a runtime does, with keys added to the configuration.
func (s *sandbox) run(ctx context.Context, i invoke, conf object, argv ...string) ([]byte, error) {
	maps.Copy(conf, i.conf)
	if i.version != "" {
		conf["cniVersion"] = i.version
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(text)
	cmd.WaitDelay = time.Second // child processes may outlive the plugin
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+i.command, "CNI_CONTAINERID="+s.container, "CNI_PATH="+referencePlugins,
		"CNI_IFNAME="+orElse(i.ifName, "eth0"), "CNI_ARGS="+orElse(i.args, s.args()))
	if i.netns != "-" {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+orElse(i.netns, s.path()))
	}
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	var said types.Error
	if json.Unmarshal(out, &said) == nil && said.Code != 0 {
		return nil, &said
	}
	return nil, fmt.Errorf("%w: %s", err, out)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (s *sandbox) args() string {
	if s.uid == "" {
		return "IgnoreUnknown=1"
	}
	return fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", s.namespace, s.name, s.container, s.uid)
}

// add attaches the sandbox.
func (s *sandbox) add(ctx context.Context, i invoke) (*current.Result, error) {
	i.command = "ADD"
	out, err := s.invoke(ctx, i)
	if err != nil {
		return nil, err
	}
	result, err := resultOf(out)
	if err == nil {
		s.address = addressOf(result)
	}
	return result, err
}

// resultOf reads what a plugin prints.
func resultOf(text []byte) (*current.Result, error) {
	r, err := create.CreateFromBytes(text)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(r)
}

// addressOf returns the first address of a result.
func addressOf(result *current.Result) netip.Addr {
	if len(result.IPs) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	return a.Unmap()
}

func (s *sandbox) mustAdd() *current.Result {
	s.w.t.Helper()
	result, err := s.add(s.w.t.Context(), invoke{})
	require.NoError(s.w.t, err)
	return result
}

func (s *sandbox) del() error {
	_, err := s.invoke(s.w.t.Context(), invoke{command: "DEL"})
	return err
}

func (s *sandbox) check(result *current.Result) error {
	_, err := s.invoke(s.w.t.Context(), invoke{command: "CHECK", conf: object{"prevResult": result}})
	return err
}

// code returns the code of a CNI error; 0 for none.
func code(err error) uint {
	var said *types.Error
	if errors.As(err, &said) {
		return said.Code
	}
	return 0
}
