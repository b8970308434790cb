// Package agent is what a node's agent does at the calls of the CNI plugin: it learns
// from the bridge what a pod's interface is to be, makes the links, plugs them into
// the switch and waits until the network has them. What it has done stands in the
// switch's database and on the links; it has no other memory of it, but for the pods
// that it has made in the bridge for callers that know no Kubernetes.
//
// A call that fails leaves nothing behind. What a killed agent left is swept away by
// the next.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Config is what an agent is told. The zero value of a duration takes its default.
type Config struct {
	Switch *ovs.Switch    // run by the caller
	Uplink *uplink.Uplink // run by the caller
	// Node is the node's network namespace.
	Node netns.NsHandle
	// Settings is where the settings of pods' networks are written; empty for the default.
	Settings links.Settings
	// Confirmed: a pod is plugged in only when the bridge says that the network has its
	// interface, where the switch can't tell that.
	Confirmed bool
	// Dir is where the agent notes the pods that it makes.
	Dir string
	// Deadline bounds a call. Default 30 s.
	Deadline time.Duration
	// Sweep is how often leftovers are looked for. Default 1 min.
	Sweep    time.Duration
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// undoTimeout bounds the undoing of what a call has begun.
const undoTimeout = 10 * time.Second

// maxAtLinks is how many calls work at links at once. The kernel lets one at a time;
// each that waits for it costs a thread.
const maxAtLinks = 8

// Agent answers the calls of the plugin. Run it.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	notes   notes
	metrics *metrics

	attachments locks // by container and link
	ports       locks // by name, taken after attachments
	pods        locks // by uid, of the pods that the agent makes; taken after attachments
	running     running
	kernel      turns // at links

	mu       sync.Mutex
	reported map[string]bool // uids of the unreadable notes of the last sweep, which were logged
}

// New returns an Agent.
func New(cfg Config) (*Agent, error) {
	if cfg.Deadline == 0 {
		cfg.Deadline = 30 * time.Second
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = time.Minute
	}
	a := &Agent{cfg: cfg, log: cfg.Log, notes: notes{cfg.Dir}, kernel: make(turns, maxAtLinks)}
	a.metrics = newMetrics(cfg)
	return a, a.notes.open()
}

// Answer does what a call asks for. The context ends when the caller goes.
func (a *Agent) Answer(ctx context.Context, r call.Request) call.Answer {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	answer, who, err := a.do(ctx, r)
	took := time.Since(begun)
	answer.Error = a.told(r.Command, who, err)
	a.metrics.called(r.Command, answer.Error, took)
	log := a.log.With("command", r.Command, "container", r.ContainerID, "ifname", r.IfName, "pod", who, "took", took)
	if err != nil {
		log.Warn("call failed", "err", err)
	} else {
		log.Debug("call done")
	}
	return answer
}

// do dispatches a call, and tells whom it is about.
func (a *Agent) do(ctx context.Context, r call.Request) (answer call.Answer, who string, err error) {
	n, err := readNetwork(r.Config)
	if err == nil && r.Command != call.Del && r.Command != call.GC { // what was made goes, whatever is asked for
		err = n.verify(r.Config)
	}
	if err != nil {
		return answer, "", err
	}
	switch r.Command {
	case call.Status:
		return answer, "", a.status()
	case call.GC:
		return answer, "", a.collect(ctx, n)
	}
	at, err := newAttachment(r, n)
	if err != nil {
		return answer, "", err
	}
	switch r.Command {
	case call.Add:
		answer.Result, err = a.add(ctx, at)
	case call.Del:
		err = a.del(ctx, at)
	case call.Check:
		err = a.check(ctx, at)
	default:
		err = types.NewError(types.ErrInvalidEnvironmentVariables, "unknown command "+r.Command, "")
	}
	return answer, at.pod.String(), err
}

// told is an error as the runtime is told it: one of CNI's, that names the pod.
func (a *Agent) told(command, who string, err error) *types.Error {
	var known *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	}
	about := command
	if who != "" {
		about += " of pod " + who
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return types.NewError(types.ErrTryAgainLater, about+" was not done in time", err.Error())
	}
	return types.NewError(types.ErrInternal, about+" has failed", err.Error())
}

// status fails where a pod could not be plugged in. That the bridge is away is not
// enough for that: the pods that are known go on.
func (a *Agent) status() error {
	if err := a.cfg.Switch.Ready(); err != nil {
		return types.NewError(types.ErrLimitedConnectivity, "the node's switch is not there", err.Error())
	}
	if is := a.cfg.Uplink.Standing(); !is.Connected && a.cfg.Uplink.ID() == "" {
		return types.NewError(types.ErrPluginNotAvailable, "the bridge was never reached", fmt.Sprint(is.Err))
	}
	return nil
}

// ready is status for who looks at the agent, not at the node: it fails too where the
// network's controller is away. To a runtime that is no failure, as Kubernetes would give
// the node up for it, with pods that run well.
func (a *Agent) ready() error {
	if err := a.status(); err != nil {
		return err
	}
	return a.cfg.Switch.Managed()
}

// MTU is that of pods' links, unless the bridge says: what the tunnels leave of the
// MTU of the link that they go through.
func (a *Agent) MTU(ctx context.Context) (int, error) {
	tunnels, err := a.cfg.Switch.Tunnels(ctx)
	if err != nil {
		return 0, err
	}
	return TunnelMTU(a.cfg.Node, tunnels)
}

func parseAddr(text string) (netip.Addr, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), nil
	}
	return netip.ParseAddr(text)
}
