// Package plugin is the CNI plugin. It forwards each call to the agent of its node, and
// prints the answer in the CNI version of the configuration. It has no state and makes no
// decisions.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/coe-bridge/coe-bridge/cni/call"
)

// timeout bounds a call to an agent that does not answer. The deadlines of the agent are
// shorter.
const timeout = 3 * time.Minute

// Versions returns the supported CNI versions.
func Versions() version.PluginInfo { return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0") }

// Funcs returns the functions of the plugin for each CNI command. program is the path of
// the plugin's executable; the sockets file is beside it.
func Funcs(program string) skel.CNIFuncs {
	p := plugin{program + call.SocketsSuffix}
	return skel.CNIFuncs{
		Add:    p.add,
		Check:  p.command(call.Check, types.ErrTryAgainLater),
		Del:    p.command(call.Del, types.ErrTryAgainLater),
		GC:     p.command(call.GC, types.ErrTryAgainLater),
		Status: p.command(call.Status, types.ErrPluginNotAvailable),
	}
}

// plugin is the plugin with the path of its sockets file.
type plugin struct{ sockets string }

func (p plugin) add(args *skel.CmdArgs) error {
	conf, err := p.parse(call.Add, args.StdinData)
	if err != nil {
		return err
	}
	answer, err := ask(call.Add, types.ErrTryAgainLater, conf, args)
	if err != nil {
		return err
	}
	if answer.Result == nil {
		return types.NewError(types.ErrInternal, "the node's agent answered ADD without a result", "check that the agent and the plugin have the same version")
	}
	return types.PrintResult(answer.Result, conf.CNIVersion)
}

// command returns the function of a command without a result.
func (p plugin) command(name string, absent uint) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		conf, err := p.parse(name, args.StdinData)
		if err == nil {
			_, err = ask(name, absent, conf, args)
		}
		return err
	}
}

// conf is the part of a network configuration that the plugin itself reads.
type conf struct {
	CNIVersion string `json:"cniVersion"`
	Socket     string `json:"socket"`
}

// parse reads a configuration, and chooses the socket. DEL must work with every
// configuration: it falls back to an allowed socket.
func (p plugin) parse(command string, text []byte) (conf, error) {
	var c conf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "read the network configuration", err.Error())
	}
	socket, err := socketOf(c.Socket, p.sockets)
	switch {
	case err == nil:
		c.Socket = socket
	case command == call.Del:
		c.Socket = fallback(p.sockets)
	default:
		return c, types.NewError(types.ErrInvalidNetworkConfig, "the network configuration names a socket that is not allowed", err.Error())
	}
	return c, nil
}

// ask sends the call. The error has code absent if no agent runs. An error in the answer is
// returned as an error.
func ask(name string, absent uint, c conf, args *skel.CmdArgs) (call.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answer, err := call.Do(ctx, c.Socket, call.Request{
		Command: name, ContainerID: args.ContainerID, Netns: args.Netns, IfName: args.IfName, Args: args.Args, Config: args.StdinData,
	})
	switch {
	case errors.Is(err, call.ErrNoAgent):
		return answer, types.NewError(absent, call.ErrNoAgent.Error(), err.Error())
	case err != nil:
		return answer, types.NewError(types.ErrTryAgainLater, "the node's agent did not answer", err.Error())
	case answer.Error != nil:
		return answer, answer.Error
	}
	return answer, nil
}
