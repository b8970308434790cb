package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// part is a program of the cluster. The one of a node runs once for each real host.
type part struct {
	name string
	pids []int
}

// use is the memory of a part, and its processor time since its start: the mean of its processes.
type use struct {
	resident, peak float64
	processor      time.Duration
}

// parts returns the parts of the cluster that run.
func (s *simulation) parts() ([]part, error) {
	var all []part
	s.mu.Lock()
	bridges := s.bridges
	s.mu.Unlock()
	for i, br := range bridges {
		all = append(all, part{[]string{"bridge, leader", "bridge, standby"}[i], []int{br.PID()}})
	}
	all = append(all, part{"etcd", []int{s.etcd.Members[0].PID()}})
	for _, p := range []struct {
		name string
		of   func(*ovnhost.Host) *ovnhost.Process // nil for a central program
		*ovnhost.Process
	}{
		{"ovsdb-server, northbound", nil, s.lab.NB.Process},
		{"ovsdb-server, southbound", nil, s.lab.SB.Process},
		{"ovn-northd", nil, s.lab.Northd},
		{"ovn-controller of a node", func(h *ovnhost.Host) *ovnhost.Process { return h.Controller }, nil},
		{"ovs-vswitchd of a node", func(h *ovnhost.Host) *ovnhost.Process { return h.VSwitchd }, nil},
		{"ovsdb-server of a node", func(h *ovnhost.Host) *ovnhost.Process { return h.OVSDB.Process }, nil},
	} {
		running := []*ovnhost.Process{p.Process}
		if p.of != nil {
			running = nil
			for _, h := range s.lab.Hosts {
				running = append(running, p.of(h))
			}
		}
		one := part{name: p.name}
		for _, r := range running {
			pid, err := r.PID()
			if err != nil {
				return nil, err
			}
			one.pids = append(one.pids, pid)
		}
		all = append(all, one)
	}
	return append(all, part{"this benchmark", []int{os.Getpid()}}), nil
}

func (p part) use() (u use, err error) {
	n := len(p.pids)
	for _, pid := range p.pids {
		processor, _, err := child.ProcessorTime(pid)
		if err != nil {
			return u, err
		}
		resident, err := child.Memory(pid, "VmRSS:")
		if err != nil {
			return u, err
		}
		peak, err := child.Memory(pid, "VmHWM:")
		if err != nil {
			return u, err
		}
		u.processor, u.resident, u.peak = u.processor+processor/time.Duration(n), u.resident+resident/float64(n), max(u.peak, peak)
	}
	return u, nil
}

// uses returns the uses of all parts, by name.
func (s *simulation) uses() (map[string]use, error) {
	all, err := s.parts()
	if err != nil {
		return nil, err
	}
	uses := map[string]use{}
	for _, p := range all {
		if uses[p.name], err = p.use(); err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// progressEvery is the interval of reports about what the parts need.
const progressEvery = 30 * time.Second

// reportProgress prints the uses of all parts until ctx ends.
func (s *simulation) reportProgress(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all, err := s.parts()
		if err != nil {
			continue // it is being killed or started
		}
		var texts []string
		for _, p := range all {
			if u, err := p.use(); err == nil {
				texts = append(texts, fmt.Sprintf("%s %.0f MiB %.1f s", p.name, u.resident/process.Megabyte, u.processor.Seconds()))
			}
		}
		s.Say("  %s", strings.Join(texts, "; "))
	}
}

// phase is a part of the measurement, with what each part needed.
type phase struct {
	name   string
	took   time.Duration
	before map[string]use
	after  map[string]use
}

// figures returns the figures of all parts in some phases.
func (s *simulation) figures(phases []phase) ([]figures.Figure, error) {
	all, err := s.parts()
	if err != nil {
		return nil, err
	}
	figs := make([]figures.Figure, 0, len(all))
	for _, p := range all {
		var peak float64
		var texts []string
		for _, ph := range phases {
			peak = max(peak, ph.after[p.name].peak)
			took := ph.after[p.name].processor - ph.before[p.name].processor
			if took < 0 { // it has been started again
				took = ph.after[p.name].processor
			}
			texts = append(texts, fmt.Sprintf("%s %.1f s (%.2f)", ph.name, took.Seconds(), took.Seconds()/ph.took.Seconds()))
		}
		figs = append(figs, figures.Unbound(s.name(p.name+": memory; seconds of a processor"), fmt.Sprintf("%.0f MiB, at most %.0f MiB; ",
			phases[0].after[p.name].resident/process.Megabyte, peak/process.Megabyte)+strings.Join(texts, "; ")))
	}
	return figs, nil
}

// name returns the name of a figure.
func (s *simulation) name(what string) string { return fmt.Sprintf("%d nodes: %s", s.nodes, what) }

// sizes returns the figure of the sizes of the databases on disk.
func (s *simulation) sizes() (figures.Figure, error) {
	etcd, err := process.SizeOf(s.etcd.Dir())
	if err != nil {
		return figures.Figure{}, err
	}
	nb, err := process.SizeOf(s.lab.NB.File())
	if err != nil {
		return figures.Figure{}, err
	}
	sb, err := process.SizeOf(s.lab.SB.File())
	return figures.Unbound(s.name("files of etcd, northbound, southbound database"),
		fmt.Sprintf("%.0f, %.0f, %.0f MiB", etcd/process.Megabyte, nb/process.Megabyte, sb/process.Megabyte)), err
}
