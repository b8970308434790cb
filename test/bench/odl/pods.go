package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	podRounds = 10
	podRatio  = 1.3
	// callDeadline bounds an ADD of a pod, and of a port of a script.
	callDeadline = 30 * time.Second
	// podTimeout bounds the time until a pod is answered.
	podTimeout = 5 * time.Minute
)

// hosts are two hosts that OpenDaylight programs, with a pod of each side on the first one that the measured ones ping.
type hosts struct {
	*bench
	switches *ovnhost.Lab
	members  []*realodl.Controller
	lab      *odlpods.Lab
	script   *odlpods.Script
	pinged   odlpods.Plugged
	count    int // of all pods
}

// startHosts starts two hosts, a bridge and agents, and OpenDaylight with a number of members.
func (b *bench) startHosts(ctx context.Context, members int) (*hosts, error) {
	h := &hosts{bench: b}
	if err := h.start(ctx, members); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *hosts) start(ctx context.Context, members int) (err error) {
	if err := ovnhost.CleanupDead(); err != nil {
		return err
	}
	h.switches, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: prefix + "hosts", Hosts: []string{"host1", "host2"}, SwitchesOnly: true, Log: h.log})
	if err != nil {
		return err
	}
	cfg := realodl.Config{Lab: h.switches, Release: realodl.Oxygen, Progress: os.Stderr}
	if members == 1 {
		alone, err := realodl.Start(ctx, cfg)
		if err != nil {
			return err
		}
		h.members = []*realodl.Controller{alone}
	} else if h.members, err = realodl.StartCluster(ctx, cfg, members); err != nil {
		return err
	}
	if err := odlpods.Build(ctx, h.Dir); err != nil {
		return err
	}
	h.lab, err = odlpods.Start(ctx, odlpods.Config{Controller: h.members[0], Others: h.members[1:], Bin: h.Dir, CallDeadline: callDeadline})
	if err != nil {
		return err
	}
	return h.prepare(ctx)
}

func (h *hosts) close() error {
	var errs []error
	for _, c := range h.members {
		errs = append(errs, c.Close())
	}
	if h.switches != nil {
		errs = append(errs, h.switches.Close())
	}
	return errors.Join(errs...)
}

// prepare plugs in what is pinged, and the first pod and the first port of a script on the second host, so that each has its elan-instance.
func (h *hosts) prepare(ctx context.Context) (err error) {
	p := h.newPod("host1")
	if err := h.lab.ApplyPods(ctx, p); err != nil {
		return err
	}
	if h.pinged, err = h.lab.Plug(ctx, p); err != nil {
		return err
	}
	if h.script, err = h.lab.StartScript(ctx, h.members[0]); err != nil {
		return err
	}
	if _, _, err = h.pod(ctx); err != nil {
		return err
	}
	_, _, err = h.port(ctx, h.members[0])
	return err
}

func (h *hosts) newPod(host string) odlpods.Pod {
	h.count++
	return odlpods.Pod{Namespace: "web", Name: fmt.Sprintf("pod%d", h.count), Host: host, UID: fmt.Sprintf("be0c0000-c0e0-4000-8000-%012d", h.count)}
}

// pod plugs a new pod in on the second host. The time is from the answer to the client that has sent the pod until the pod on the other
// host answers it.
func (h *hosts) pod(ctx context.Context) (took time.Duration, remove func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	p := h.newPod("host2")
	if err := h.lab.ApplyPods(ctx, p); err != nil {
		return 0, nil, err
	}
	begun := time.Now()
	if _, err := h.lab.Retry(ctx, p, func(err error) { h.Say("%v", err) }); err != nil {
		return 0, nil, err
	}
	err = h.lab.Answered(ctx, p.String(), h.pinged.Address)
	return time.Since(begun), func() error {
		return errors.Join(h.lab.Unplug(context.Background(), p), h.lab.DeletePod(context.Background(), p))
	}, err
}

// port is pod for a port whose entries a script writes to a member.
func (h *hosts) port(ctx context.Context, to *realodl.Controller) (took time.Duration, remove func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	begun := time.Now()
	p, _, err := h.script.Retry(ctx, to, func(err error) { h.Say("a port of a script: %v", err) })
	return time.Since(begun), func() error { return h.script.Unplug(context.Background(), to, p) }, err
}

// measurePods plugs pods in on a host, one after the other. They alternate with ports whose entries a script writes.
func measurePods(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	h, err := b.startHosts(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var mean comparison
	for n := range podRounds {
		one, err := h.turn(ctx, n%2 == 0)
		if err != nil {
			return nil, err
		}
		b.Say("a pod that is known until its ping is answered, round %d of %d: %s, a port of a script %s", n+1, podRounds, figures.Short(one.ours), figures.Short(one.bare))
		mean.ours += one.ours / podRounds
		mean.bare += one.bare / podRounds
	}
	return []figures.Figure{mean.besideScript("A pod that is known, to an answer across hosts", podRatio)}, nil
}

// turn measures a pod and a port of a script, one after the other, and removes both.
func (h *hosts) turn(ctx context.Context, podFirst bool) (one comparison, err error) {
	sides := []func() (func() error, error){
		func() (remove func() error, err error) { one.ours, remove, err = h.pod(ctx); return remove, err },
		func() (remove func() error, err error) {
			one.bare, remove, err = h.port(ctx, h.members[0])
			return remove, err
		},
	}
	if !podFirst {
		slices.Reverse(sides)
	}
	var removes []func() error
	for _, measure := range sides {
		remove, err := measure()
		if err != nil {
			return one, err
		}
		removes = append(removes, remove)
	}
	return one, errors.Join(removes[0](), removes[1]())
}

// besideScript returns a figure whose bound is a multiple of the time that a script needs.
func (c comparison) besideScript(name string, bound float64) figures.Figure {
	return figures.Figure{
		Name:     name,
		Measured: fmt.Sprintf("%.2f of what the entries of a script take (%s, script %s)", c.ratio(), figures.Short(c.ours), figures.Short(c.bare)),
		Bound:    fmt.Sprintf("at most %g", bound), Within: c.ratio() <= bound,
	}
}
