package bridge

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
	"github.com/coe-bridge/coe-bridge/restconf"
)

// jsonNamespace is an entry of coe-status:pods.
type jsonNamespace struct {
	Name        string    `json:"name"`
	Terminating bool      `json:"terminating"`
	Pods        []jsonPod `json:"pod,omitempty"`
}

type jsonPod struct {
	UID       string       `json:"uid"`
	Name      string       `json:"name,omitempty"`
	Origin    coe.Origin   `json:"origin"`
	NodeName  string       `json:"node-name,omitempty"`
	Node      netip.Addr   `json:"node,omitzero"`
	Addresses []netip.Addr `json:"ip-address,omitempty"`
	Reached   trace.Stage  `json:"reached"`
	Missing   trace.Stage  `json:"missing,omitempty"`
	Stages    []jsonStage  `json:"stage"`
}

type jsonStage struct {
	Name     trace.Stage `json:"name"`
	Done     bool        `json:"done"`
	Time     string      `json:"time,omitempty"`
	Revision string      `json:"revision,omitempty"`
	Detail   string      `json:"detail,omitempty"`
}

// podsTree returns what each stage knows of all pods, of the pods of one namespace, or of one pod.
func (b *Bridge) podsTree(ctx context.Context, asked restconf.Asked) ([]byte, error) {
	namespaces := b.store.Namespaces()
	if asked.Entry != nil {
		namespaces = asked.Entry[:1]
	}
	p, _ := b.current(ctx)
	status := map[netvirt.Scope]reconcile.ScopeStatus{}
	for _, s := range p.loop.Status().Scopes {
		status[s.Scope] = s
	}
	var out struct {
		Namespaces []jsonNamespace `json:"namespace"`
	}
	for _, name := range namespaces {
		traced := b.trace(p, name, asked.Within, status[netvirt.Scope(name)])
		if len(traced) == 0 {
			continue
		}
		ns := jsonNamespace{Name: name, Pods: make([]jsonPod, len(traced))}
		if said := b.store.Namespace(name); said != nil {
			ns.Terminating = said.Terminating
		}
		for i := range traced {
			ns.Pods[i] = podJSON(&traced[i])
		}
		out.Namespaces = append(out.Namespaces, ns)
	}
	if len(out.Namespaces) == 0 {
		return nil, nil
	}
	return marshal("coe-status:pods", out)
}

// trace traces the pods of a namespace, or the one with the uid that within holds, with
// what the loop of a part knows.
func (b *Bridge) trace(p *part, namespace string, within []string, st reconcile.ScopeStatus) []trace.Pod {
	scope := netvirt.Scope(namespace)
	view := b.store.View(namespace)
	view.Services, view.Endpoints = nil, nil // no pod depends on them, and there may be many
	model, problems := mapping.Map(view, b.cfg.Mapping)
	if within != nil {
		view.Pods = slices.DeleteFunc(slices.Clone(view.Pods), func(p *coe.Pod) bool { return p.UID != within[0] })
	}
	for _, rejected := range st.Problems {
		if rejected.Reason == coe.BackendRejected {
			problems = append(problems, rejected)
		}
	}
	n := trace.Namespace{
		View: view, Origin: b.store.Origin, Model: model, Problems: problems, Realised: p.backend.Kinds(),
		MappedAt: st.MappedAt, Wanted: st.Wanted, ReachedAt: st.ReachedAt, Reached: st.Reached, Failure: st.LastError,
		Has:       func(k netvirt.Key) netvirt.Object { return p.loop.Has(scope, k) },
		Lacks:     p.loop.Lacks,
		Confirmed: func(l *coe.Lease) (time.Time, int64, bool) { return b.hub.Confirmed(l.Key()) },
	}
	return n.Pods()
}

func podJSON(p *trace.Pod) jsonPod {
	out := jsonPod{
		UID: p.Pod.UID, Name: p.Pod.Name, Origin: p.Origin, NodeName: p.Pod.NodeName, Node: p.Pod.HostIP,
		Reached: p.Reached(), Missing: p.Missing,
	}
	for _, l := range p.Leases {
		for _, a := range l.Addresses {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	for _, s := range p.Steps {
		out.Stages = append(out.Stages, jsonStage{s.Stage, s.Done, moment(s.At), s.Revision, s.Detail})
	}
	return out
}
