// Package agent implements the CNI commands on a node. For an ADD it waits for the
// interface record from the bridge, creates the links, adds the port to the switch, and
// waits until the network is ready. Its state is in the switch's database and on the links.
// On disk it keeps only notes of the pods that it creates for callers without Kubernetes.
//
// A failed call leaves nothing behind. The sweep of the next agent removes what a killed
// agent left.
package agent

import (
	"cmp"
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
	"github.com/coe-bridge/coe-bridge/cni/dhcp"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Config configures an Agent. Zero durations take their defaults.
type Config struct {
	Switch *ovs.Switch    // run by the caller
	Uplink *uplink.Uplink // run by the caller
	// Node is the node's network namespace.
	Node netns.NsHandle
	// HostPorts is how pods get host ports.
	HostPorts HostPorts
	// Services is how programs of pods reach services. Nil: the pod network leads them.
	Services Services
	// Physical has the bridges of the physical networks that the node is connected to.
	Physical ovs.Physical
	// OVNRunDir has the control socket of ovn-controller.
	OVNRunDir string
	// Settings is where the network settings of pods are written; empty means the default.
	Settings links.Settings
	// Confirmed makes ADD wait until the bridge reports the interface as confirmed. It is
	// for networks whose state the switch does not show.
	Confirmed bool
	// Flows is the management socket of the bridge that OpenDaylight programs. With Confirmed, ADD
	// also waits until the flows of the switch lead to the pod. Empty: it does not.
	Flows string
	// Dir holds the notes of the pods that the agent creates.
	Dir string
	// Deadline bounds a call. Default 30 s.
	Deadline time.Duration
	// Sweep is the interval between sweeps. Default 1 min.
	Sweep    time.Duration
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// undoTimeout bounds the undo steps of a failed call.
const undoTimeout = 10 * time.Second

// maxAtLinks is how many calls change links at once. The kernel serves one at a time, and
// each waiting call occupies a thread.
const maxAtLinks = 8

// Agent executes the calls of the CNI plugin. Run must run while calls are made. Its
// methods may be called concurrently.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	notes   notes
	metrics *metrics
	dhcp    *dhcp.Server

	attachments locks // by container and link
	ports       locks // by name, taken after attachments
	pods        locks // by UID, of the pods that the agent creates; taken after attachments
	running     running
	kernel      semaphore // for changes of links
	claims      claims

	mu       sync.Mutex
	reported map[string]bool // UIDs of unreadable notes that were already logged
}

// New returns an Agent, and creates the directory for its notes.
func New(cfg Config) (*Agent, error) {
	cfg.Deadline = cmp.Or(cfg.Deadline, 30*time.Second)
	cfg.Sweep = cmp.Or(cfg.Sweep, time.Minute)
	a := &Agent{cfg: cfg, log: cfg.Log, notes: notes{cfg.Dir}, kernel: make(semaphore, maxAtLinks)}
	a.metrics, a.dhcp = newMetrics(cfg), dhcp.New(cfg.Node, cfg.Log, cfg.Registry)
	return a, a.notes.open()
}

// slowCall is the duration from which the steps of a call are logged.
const slowCall = 2 * time.Second

// Answer executes a call. ctx ends when the caller closes the connection.
func (a *Agent) Answer(ctx context.Context, r call.Request) call.Answer {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	ctx, steps := withSteps(ctx)
	answer, pod, err := a.do(ctx, r)
	took := time.Since(begun)
	answer.Error = cniError(r.Command, pod, err)
	a.metrics.called(r.Command, answer.Error, took)
	log := a.log.With("command", r.Command, "container", r.ContainerID, "ifname", r.IfName, "pod", pod, "took", took, "steps", steps)
	switch {
	case err != nil:
		log.Warn("call failed", "err", err)
	case took >= slowCall:
		log.Info("call was slow")
	default:
		log.Debug("call finished")
	}
	return answer
}

// do executes a call, and returns the pod that the call is about.
func (a *Agent) do(ctx context.Context, r call.Request) (answer call.Answer, pod string, err error) {
	n, err := readNetwork(r.Config)
	if err == nil && r.Command != call.Del && r.Command != call.GC { // removal ignores what the configuration requests
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

// cniError returns err as a CNI error that names the command and the pod.
func cniError(command, pod string, err error) *types.Error {
	var known *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	}
	about := command
	if pod != "" {
		about += " of pod " + pod
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return types.NewError(types.ErrTryAgainLater, about+" exceeded its deadline", err.Error())
	}
	return types.NewError(types.ErrInternal, about+" failed", err.Error())
}

// status fails if the agent cannot attach pods. A lost connection to the bridge is not
// enough: pods whose records are known can still be attached.
func (a *Agent) status() error {
	if err := a.cfg.Switch.Ready(); err != nil {
		return types.NewError(types.ErrLimitedConnectivity, "the node's switch is not ready", err.Error())
	}
	if is := a.cfg.Uplink.Status(); !is.Connected && a.cfg.Uplink.ID() == "" {
		return types.NewError(types.ErrPluginNotAvailable, "the agent has never reached the bridge", fmt.Sprint(is.Err))
	}
	return nil
}

// ready is status for probes of the agent. It also fails while the controller of the
// network is not connected, or while the agent does not follow the bridge because of the order of its backends. STATUS does not:
// Kubernetes would mark the node NotReady, although its pods run well.
func (a *Agent) ready() error {
	if err := a.status(); err != nil {
		return err
	}
	if err := a.cfg.Uplink.Status().Err; errors.Is(err, uplink.ErrServesOVN) {
		return err
	}
	return a.cfg.Switch.Managed()
}

func parseAddr(text string) (netip.Addr, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), nil
	}
	return netip.ParseAddr(text)
}
