package status

import (
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
)

// Pods is the container coe-status:pods.
type Pods struct {
	Namespaces []Namespace `json:"namespace,omitempty"`
}

// Namespace has the traced pods of a namespace.
type Namespace struct {
	Name        string `json:"name"`
	Terminating bool   `json:"terminating"`
	Pods        []Pod  `json:"pod,omitempty"`
}

// Pod is a pod, with what each stage knows of it.
type Pod struct {
	UID       string       `json:"uid"`
	Name      string       `json:"name,omitempty"`
	Origin    coe.Origin   `json:"origin"`
	NodeName  string       `json:"node-name,omitempty"`
	Node      netip.Addr   `json:"node,omitzero"`
	Addresses []netip.Addr `json:"ip-address,omitempty"`
	EgressIP  string       `json:"egress-ip,omitempty"`
	Gateways  []netip.Addr `json:"gateway,omitempty"` // nodes of the gateways by which it leaves
	Reached   trace.Stage  `json:"reached"`
	Missing   trace.Stage  `json:"missing,omitempty"`
	Stages    []Stage      `json:"stage"`
}

// Stage is what one stage knows of a pod.
type Stage struct {
	Name trace.Stage `json:"name"`
	Done bool        `json:"done"`
	Time string      `json:"time,omitempty"`
	// After is the number of milliseconds from the stage source to Time, if both are the pod's own.
	After    *int64 `json:"after,string,omitempty"`
	Revision string `json:"revision,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// Tracer traces pods through the stages of a bridge.
type Tracer struct {
	Store    *state.Store
	Settings mapping.Settings
	Loop     *reconcile.Loop
	Kinds    netvirt.KindSet // of the loop's backend
	// Confirmed returns when, and at which revision, a lease was confirmed.
	Confirmed func(coe.LeaseKey) (at time.Time, revision int64, ok bool)
	// Network is Network of trace.Namespace.
	Network func(*coe.Lease) *trace.Progress
}

// Pods traces the pods of some namespaces, or only the pod with a UID if that is not empty.
// Namespaces without such pods are left out.
func (t Tracer) Pods(namespaces []string, uid string) (out Pods) {
	status := map[netvirt.Scope]reconcile.ScopeStatus{}
	for _, s := range t.Loop.Status().Scopes {
		status[s.Scope] = s
	}
	for _, name := range namespaces {
		traced := t.trace(name, uid, status[netvirt.Scope(name)])
		if len(traced) == 0 {
			continue
		}
		ns := Namespace{Name: name, Pods: make([]Pod, len(traced))}
		if known := t.Store.Namespace(name); known != nil {
			ns.Terminating = known.Terminating
		}
		egress := t.egressOf(name)
		for i := range traced {
			ns.Pods[i] = podOf(&traced[i])
			ns.Pods[i].EgressIP = egress(traced[i].Pod)
			ns.Pods[i].Gateways = t.gatewaysOf(&ns.Pods[i])
		}
		out.Namespaces = append(out.Namespaces, ns)
	}
	return out
}

// egressOf returns a function that names the EgressIP by which a pod of a namespace leaves; empty for none.
func (t Tracer) egressOf(namespace string) func(*coe.Pod) string {
	all, set := t.Store.EgressIPs(), t.Store.View(namespace).PolicySet
	if len(all) == 0 || set == nil {
		return func(*coe.Pod) string { return "" }
	}
	labels := set.LabelsOf(namespace)
	return func(p *coe.Pod) string {
		if e := coe.FirstEgressIP(all, labels, p.Labels); e != nil && !p.NoNetwork {
			return e.Name
		}
		return ""
	}
}

// gatewaysOf returns the nodes of the gateways by which a pod leaves. A pod of an EgressIP leaves by none.
func (t Tracer) gatewaysOf(p *Pod) (nodes []netip.Addr) {
	if p.EgressIP != "" || !t.Settings.HasGateways() {
		return nil
	}
	all := t.Store.Gateways()
	for _, a := range p.Addresses {
		if g := coe.GatewayOf(all, p.Node, a); g != nil && !slices.Contains(nodes, g.Node) {
			nodes = append(nodes, g.Node)
		}
	}
	return nodes
}

func (t Tracer) trace(namespace, uid string, st reconcile.ScopeStatus) []trace.Pod {
	view := t.Store.View(namespace)
	view.Services, view.Endpoints = nil, nil // no pod depends on them, and there may be many
	model, problems := mapping.Map(view, t.Settings)
	if uid != "" {
		view.Pods = slices.DeleteFunc(slices.Clone(view.Pods), func(p *coe.Pod) bool { return p.UID != uid })
	}
	for _, rejected := range st.Problems {
		if rejected.Reason == coe.BackendRejected {
			problems = append(problems, rejected)
		}
	}
	n := trace.Namespace{
		View: view, Origin: t.Store.Origin, Model: model, Problems: problems, Supported: t.Kinds,
		MappedAt: st.MappedAt, Wanted: st.Wanted, ReachedAt: st.ProgrammedAt, Reached: st.Programmed, Failure: st.LastError,
		Has:       func(k netvirt.Key) netvirt.Object { return t.Loop.Has(netvirt.Scope(namespace), k) },
		Lacks:     t.Loop.Lacks,
		Confirmed: func(l *coe.Lease) (time.Time, int64, bool) { return t.Confirmed(l.Key()) },
		Network:   t.Network,
	}
	return n.Pods()
}

func podOf(p *trace.Pod) Pod {
	out := Pod{
		UID: p.Pod.UID, Name: p.Pod.Name, Origin: p.Origin, NodeName: p.Pod.NodeName, Node: p.Pod.HostIP,
		Reached: p.Reached(), Missing: p.Missing,
	}
	for _, l := range p.Leases {
		for _, a := range l.Addresses {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		out.Stages = append(out.Stages, Stage{s.Stage, s.Done, Time(s.At), after(&p.Steps[0], s), s.Revision, s.Detail})
	}
	return out
}

// after returns the number of milliseconds from a step to a later one; nil if a time is not known, or
// belongs to an earlier report of the pod.
func after(source, s *trace.Step) *int64 {
	took := s.At.UnixMilli() - source.At.UnixMilli()
	if !s.Own || s.At.IsZero() || source.At.IsZero() || took < 0 {
		return nil
	}
	return &took
}
