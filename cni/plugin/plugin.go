// Package plugin is the CNI plugin that container runtimes call: it hands each call to
// the agent of its node, and says what that answers in the version of CNI that was
// asked for. It has no state and decides nothing.
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

// timeout is for an agent that does not answer at all: it has deadlines of its own,
// which are shorter.
const timeout = 3 * time.Minute

// Versions are those of CNI that are spoken.
func Versions() version.PluginInfo { return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0") }

// Funcs are what the plugin does at each command. program is the path of its file, beside
// which the sockets file is.
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

// plugin knows its sockets file.
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
		return types.NewError(types.ErrInternal, "the node's agent answers ADD without a result", "are agent and plugin of the same version?")
	}
	return types.PrintResult(answer.Result, conf.CNIVersion)
}

// command is one that has no result.
func (p plugin) command(name string, absent uint) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		conf, err := p.parse(name, args.StdinData)
		if err == nil {
			_, err = ask(name, absent, conf, args)
		}
		return err
	}
}

// conf is what the plugin itself wants to know of its configuration.
type conf struct {
	CNIVersion string `json:"cniVersion"`
	Socket     string `json:"socket"`
}

// parse reads a configuration, and decides which socket is called. A DEL removes what is
// there, whatever the configuration says: a socket that is not allowed does not stop it.
func (p plugin) parse(command string, text []byte) (conf, error) {
	var c conf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "read the network's configuration", err.Error())
	}
	socket, err := socketOf(c.Socket, p.sockets)
	switch {
	case err == nil:
		c.Socket = socket
	case command == call.Del:
		c.Socket = fallback(p.sockets)
	default:
		return c, types.NewError(types.ErrInvalidNetworkConfig, "the network's configuration names a socket that is not allowed", err.Error())
	}
	return c, nil
}

// ask makes the call. Where the agent is absent the error has that code; what the
// agent answers as an error is one.
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
		return answer, types.NewError(types.ErrTryAgainLater, "the node's agent went away", err.Error())
	case answer.Error != nil:
		return answer, answer.Error
	}
	return answer, nil
}
