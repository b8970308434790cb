package bridge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/follow"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
)

var _ reconcile.Pacer = (*follow.Ports)(nil)

// ports knows how far OVN is with the ports of pods. A nil ports knows nothing.
type ports struct {
	*follow.Ports
	b    *Bridge
	took *prometheus.HistogramVec
}

// newPorts returns the ports of the backend that serves; nil unless it is OVN.
func (b *Bridge) newPorts() (*ports, error) {
	if b.cfg.Backend.Name != "ovn" {
		return nil, nil
	}
	north, south, err := b.cfg.Backend.OVN.Servers()
	if err != nil {
		return nil, err
	}
	p := &ports{b: b, took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "coe_bridge_pod_stage_seconds",
		Help:    "With OVN: time that interfaces of new pods took from the stage before to a stage: address (from source), written, translated, bound (both with --ovn-sb), installed; total is from source to installed.",
		Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
	}, []string{"stage"})}
	p.Ports = follow.NewPorts(north, south, p.installed, b.chassisOfOVN, b.log)
	databases := serverStates{north}
	if south != nil {
		databases = append(databases, south)
		b.chassisOfOVN(nil)
	}
	northd := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "coe_bridge_ovn_northd_seconds",
		Help: "With OVN: time that ovn-northd needed to translate the last new port that was measured, or has needed so far for the present one if that is longer.",
	}, func() float64 { return p.Northd().Seconds() })
	b.registry.MustRegister(p.took, northd, databases)
	return p, nil
}

// chassisOfOVN stores which chassis OVN has; nil while that is not known.
func (b *Bridge) chassisOfOVN(hosts map[string]string) {
	b.store.Update(func(tx *state.Tx) { tx.SetChassisOfOVN(hosts) })
}

// followPorts follows the ports of pods until ctx is done. A server answers one request at a time, so the reading of the leader comes first.
func (b *Bridge) followPorts(ctx context.Context) error {
	select {
	case <-b.settled.done:
		b.ports.Run(ctx)
	case <-ctx.Done():
	}
	return nil
}

// unknownTime is the detail of a stage whose time is not known.
const unknownTime = "at an unknown time, before this replica followed OVN, or before the pod had its address"

// progress implements Network of trace.Namespace. A time from before the address was chosen belongs to a former
// pod with this name.
func (p *ports) progress(l *coe.Lease) *trace.Progress {
	if p == nil {
		return nil
	}
	times, known, err := p.Port(l.Name)
	out := &trace.Progress{Written: own(l, times.Written)}
	add := func(stage trace.Stage, m follow.Moment, missing string) {
		s := trace.Step{Stage: stage, Done: m != 0, At: own(l, m), Own: true}
		switch {
		case !known:
			s.Detail = "not known"
		case !s.Done:
			s.Detail = missing
		case s.At.IsZero():
			s.Detail = unknownTime
		}
		switch {
		case err == nil:
		case s.Detail == "":
			s.Detail = "last known; " + err.Error()
		default:
			s.Detail += "; " + err.Error()
		}
		out.Steps = append(out.Steps, s)
	}
	if !p.HasSouthbound() {
		add(trace.Installed, times.Installed, "OVN does not report the port as up: it is not in the switch of its node yet, or ovn-northd or ovn-controller of the node is behind; serve --ovn-sb shows which")
		return out
	}
	add(trace.Translated, times.Translated, "ovn-northd has not written the port to the southbound database: check that ovn-northd runs, and see its metrics")
	add(trace.Bound, times.Bound, "no node has claimed the port: it is not in the switch of its node yet, or ovn-controller there is behind; see the log of the agent there, and run coe-bridge doctor")
	add(trace.Installed, times.Installed, "ovn-controller of the node has not installed the flows of the port yet; see its metrics at the agent there")
	return out
}

// own returns the time of a Moment; zero if it is not known, or is from before the lease.
func own(l *coe.Lease, m follow.Moment) time.Time {
	if int64(m) < l.Chosen {
		return time.Time{}
	}
	return m.Time()
}

// installed measures a new pod. The leader does, so that no pod is counted twice.
func (p *ports) installed(port string) {
	r := p.b.role.Load()
	if !r.leads() {
		return
	}
	i, is := interfaceOf(r, port)
	if !is {
		return
	}
	pod := p.b.store.Pod(i.PodUID).Pod
	for _, l := range p.b.store.LeasesOf(i.PodUID) {
		if l.Name == port && pod != nil {
			p.measure(pod, l)
		}
	}
}

func (p *ports) measure(pod *coe.Pod, l *coe.Lease) {
	times, _, _ := p.Port(l.Name)
	type stage struct {
		name trace.Stage
		at   time.Time
	}
	source, chosen := pod.Reported.At, time.UnixMilli(l.Chosen)
	if source.Truncate(time.Millisecond).After(chosen) {
		source = time.Time{} // the source has reported a later change of the pod
	}
	stages := []stage{{trace.Source, source}, {trace.Address, chosen}, {trace.Written, own(l, times.Written)}}
	if p.HasSouthbound() {
		stages = append(stages, stage{trace.Translated, own(l, times.Translated)}, stage{trace.Bound, own(l, times.Bound)})
	}
	stages = append(stages, stage{trace.Installed, own(l, times.Installed)})
	observe := func(name string, from, to stage) {
		if took := to.at.Sub(from.at); !from.at.IsZero() && !to.at.IsZero() && took > -time.Millisecond { // Chosen has no more digits
			p.took.WithLabelValues(name).Observe(max(0, took.Seconds()))
		}
	}
	for i := 1; i < len(stages); i++ {
		observe(string(stages[i].name), stages[i-1], stages[i])
	}
	observe("total", stages[0], stages[len(stages)-1])
}

// interfaceOf returns the interface of a port that the backend has; ok is false for a port of no pod.
func interfaceOf(r *role, port string) (i netvirt.Interface, ok bool) {
	namespace, _, _, err := netvirt.ParseInterfaceName(port)
	if err != nil {
		return i, false
	}
	i, ok = r.loop.Has(netvirt.Scope(namespace), netvirt.Interface{Name: port}.Key()).(netvirt.Interface)
	return i, ok
}

// count counts the interfaces of pods in the stages that OVN reports.
func (p *ports) count(stages map[trace.Stage]int) {
	if p == nil {
		return
	}
	r := p.b.role.Load()
	translated, bound, installed, known := p.Count(func(port string) bool {
		_, is := interfaceOf(r, port)
		return is
	})
	if !known {
		return
	}
	if p.HasSouthbound() {
		stages[trace.Translated], stages[trace.Bound] = translated, bound
	}
	stages[trace.Installed] = installed
}
