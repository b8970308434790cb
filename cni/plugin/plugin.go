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

// Funcs are what the plugin does at each command.
func Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    add,
		Check:  command(call.Check, types.ErrTryAgainLater),
		Del:    command(call.Del, types.ErrTryAgainLater),
		GC:     command(call.GC, types.ErrTryAgainLater),
		Status: command(call.Status, types.ErrPluginNotAvailable),
	}
}

func add(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
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
func command(name string, absent uint) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		conf, err := parse(args.StdinData)
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

func parse(text []byte) (conf, error) {
	c := conf{Socket: call.DefaultSocket}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "read the network's configuration", err.Error())
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
