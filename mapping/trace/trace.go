// Package trace reports how far a pod has come on the way from its source to the backend:
// what each stage knows of the pod, and the first stage that is missing, with the reason.
// It is pure: it uses the given values only, and does not know who runs the stages.
package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Stage is a stage on the way.
type Stage string

// The stages, in their order.
const (
	Source    Stage = "source"    // a source has reported the pod
	Address   Stage = "address"   // every interface has a lease
	Mapped    Stage = "mapped"    // the model has the pod's objects
	Wanted    Stage = "wanted"    // the backend rejects none of them
	Written   Stage = "written"   // the backend has them
	Confirmed Stage = "confirmed" // the network has them, as far as the backend reports, and the agents know
)

// The stages after Confirmed, if the network reports them.
const (
	Translated Stage = "translated" // the network's controller has computed what the pod needs
	Bound      Stage = "bound"      // the pod's node has claimed its port
	Installed  Stage = "installed"  // the switch of the node has the pod's flows
)

// Step is what a stage knows of a pod.
type Step struct {
	Stage Stage
	Done  bool
	// At is the time when the pod reached the stage, or when the stage last processed the
	// pod's namespace; zero if unknown.
	At time.Time
	// Own says that At is the pod's own time.
	Own bool
	// Revision is the datastore's revision; in stage Source of a pod from Kubernetes, the
	// API server's resourceVersion. Empty if there is none.
	Revision string
	// Detail is text for people: what the stage has or, if it is not done, why and what
	// to do.
	Detail string
}

// Pod is the trace of one pod.
type Pod struct {
	Pod    *coe.Pod
	Origin coe.Origin
	Leases []*coe.Lease // of its interfaces, in their order
	Steps  []Step       // one for each stage, in their order
	// Missing is the first stage that is not done. It is empty if all are done, and for a
	// pod without a network of its own.
	Missing Stage
}

// Reached returns the last stage before the missing one.
func (p *Pod) Reached() Stage {
	last := Source
	for _, s := range p.Steps {
		if !s.Done {
			break
		}
		last = s.Stage
	}
	return last
}

// Namespace is the input for the traces of a namespace's pods.
type Namespace struct {
	View coe.View
	// Origin returns the source of a pod.
	Origin func(uid string) coe.Origin
	// Model is the namespace's model. Problems lists the entities that cannot be mapped
	// and the objects that the backend rejects.
	Model    netvirt.Model
	Problems []coe.Problem
	// Supported holds the kinds that the backend writes.
	Supported netvirt.KindSet
	// MappedAt and Wanted are the time and the datastore's revision of the last mapping.
	// ReachedAt and Reached are the time and revision when the backend last had the wanted
	// model. Failure is the reason why the backend does not have it now; empty if there
	// is none.
	MappedAt, ReachedAt time.Time
	Wanted, Reached     int64
	Failure             string
	// Has returns the backend's object of a key, or nil.
	Has func(netvirt.Key) netvirt.Object
	// Lacks returns, for people, what the network lacks of an object that the backend has;
	// empty if it lacks nothing, or if that is unknown.
	Lacks func(netvirt.Object) string
	// Confirmed returns the time and the revision of a lease's confirmation; ok is false
	// if it is not confirmed.
	Confirmed func(*coe.Lease) (at time.Time, revision int64, ok bool)

	// Network returns how far the network is with the interface of a lease; nil if it does not
	// report that.
	Network func(*coe.Lease) *Progress

	// unmapped and rejected hold the text of the first of the Problems with each thing;
	// rejected those that the backend reports.
	unmapped, rejected map[thing]string
}

// Progress is how far the network is with an interface.
type Progress struct {
	// Written is when the backend got the interface; zero if unknown.
	Written time.Time
	// Steps are the stages after Confirmed, in their order. All interfaces have the same.
	Steps []Step
}

// thing identifies the subject of a problem.
type thing struct{ kind, uid string }

// Pods traces every pod of the namespace, in the order of the View.
func (n *Namespace) Pods() []Pod {
	n.sortProblems()
	pods := make([]Pod, 0, len(n.View.Pods))
	for _, p := range n.View.Pods {
		pods = append(pods, n.pod(p))
	}
	return pods
}

func (n *Namespace) pod(p *coe.Pod) Pod {
	t := Pod{Pod: p, Origin: n.Origin(p.UID)}
	for _, i := range p.AllInterfaces() {
		if l := n.View.Leases.Get(coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}); l != nil && l.Released == 0 {
			t.Leases = append(t.Leases, l)
		}
	}
	if p.NoNetwork {
		t.Steps = []Step{n.source(&t), {Stage: Address}, {Stage: Mapped}, {Stage: Wanted}, {Stage: Written}, {Stage: Confirmed}}
		return t
	}
	reported := n.progress(&t)
	t.Steps = []Step{n.source(&t), n.address(&t), n.mapped(&t), n.wanted(&t), n.written(&t, reported), n.confirmed(&t)}
	t.Steps = append(t.Steps, network(reported)...)
	if i := slices.IndexFunc(t.Steps, func(s Step) bool { return !s.Done }); i >= 0 {
		t.Missing = t.Steps[i].Stage
		for j := i + 1; j < len(t.Steps); j++ {
			t.Steps[j] = Step{Stage: t.Steps[j].Stage, Detail: "waits for " + string(t.Missing)}
		}
	}
	return t
}

func (n *Namespace) source(t *Pod) Step {
	s := Step{Stage: Source, Done: true, At: t.Pod.Reported.At, Own: true, Revision: t.Pod.Reported.Revision}
	switch {
	case t.Pod.NoNetwork:
		s.Detail = "it has no network of its own: it uses the network of its node, or has finished"
	case t.Pod.NodeName != "":
		s.Detail = fmt.Sprintf("reported by %s, on node %s", t.Origin, t.Pod.NodeName)
	case t.Pod.HostIP.IsValid():
		s.Detail = fmt.Sprintf("reported by %s, on node %s", t.Origin, t.Pod.HostIP)
	default:
		s.Detail = fmt.Sprintf("reported by %s", t.Origin)
	}
	return s
}

func (n *Namespace) address(t *Pod) Step {
	s := Step{Stage: Address, Own: true, Done: len(t.Leases) == len(t.Pod.AllInterfaces())}
	if !s.Done {
		s.Detail = n.unmapped[thing{"pod", t.Pod.UID}]
		return s
	}
	var text []string
	for _, l := range t.Leases {
		if chosen := time.UnixMilli(l.Chosen); l.Chosen > 0 && chosen.After(s.At) {
			s.At = chosen
		}
		for _, a := range l.Addresses {
			text = append(text, fmt.Sprintf("%s by gateway %s", a.Address, a.Gateway))
		}
		text = append(text, l.MAC)
	}
	s.Detail = strings.Join(text, ", ")
	return s
}

func (n *Namespace) mapped(t *Pod) Step {
	s := Step{Stage: Mapped, Done: true, At: n.MappedAt, Revision: revision(n.Wanted)}
	var names []string
	for _, l := range t.Leases {
		names = append(names, l.Name)
		for _, k := range keys(l) {
			s.Done = s.Done && n.Model[k] != nil
		}
	}
	if s.Detail = "interface " + strings.Join(names, ", "); !s.Done {
		s.Detail = n.unmapped[thing{"pod", t.Pod.UID}]
	}
	return s
}

func (n *Namespace) wanted(t *Pod) Step {
	s := Step{Stage: Wanted, Done: true, At: n.MappedAt, Revision: revision(n.Wanted)}
	count := 0
	for _, l := range t.Leases {
		for _, k := range keys(l) {
			if rejected := n.rejected[thing{k.Kind.String(), k.Name}]; rejected != "" && s.Done {
				s.Done, s.Detail = false, fmt.Sprintf("the backend rejects %s: %s", k, rejected)
			}
			if n.Supported.Has(k.Kind) {
				count++
			}
		}
	}
	if s.Done {
		s.Detail = fmt.Sprintf("%d objects", count)
	}
	return s
}

func (n *Namespace) written(t *Pod, reported []*Progress) Step {
	s := Step{Stage: Written, Done: true, At: n.ReachedAt, Revision: revision(n.Reached)}
	for _, l := range t.Leases {
		for _, k := range keys(l) {
			if n.Supported.Has(k.Kind) && s.Done && n.Has(k) != n.Model[k] {
				s.Done, s.Detail = false, fmt.Sprintf("the backend does not have the wanted %s", k)
			}
		}
	}
	if !s.Done && n.Failure != "" {
		s.Detail = n.Failure
	}
	if at, known := writtenAt(reported); known && s.Done {
		s.At, s.Own = at, true
	}
	return s
}

// progress returns how far the network is with each interface; nil if it does not report that for all.
func (n *Namespace) progress(t *Pod) (all []*Progress) {
	for _, l := range t.Leases {
		p := n.Network(l)
		if p == nil {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// writtenAt returns when the backend got the last of the interfaces.
func writtenAt(reported []*Progress) (last time.Time, known bool) {
	for _, p := range reported {
		if p.Written.IsZero() {
			return last, false
		}
		if p.Written.After(last) {
			last = p.Written
		}
	}
	return last, len(reported) > 0
}

// network returns the stages after Confirmed. Each is done when it is done for all interfaces.
func network(reported []*Progress) (all []Step) {
	for _, p := range reported {
		if all == nil {
			all = p.Steps
			continue
		}
		for i, s := range p.Steps {
			switch last := &all[i]; {
			case !last.Done:
			case !s.Done, s.At.IsZero(), !last.At.IsZero() && s.At.After(last.At):
				*last = s
			}
		}
	}
	return all
}

func (n *Namespace) confirmed(t *Pod) Step {
	s := Step{Stage: Confirmed, Done: true, Own: true}
	for _, l := range t.Leases {
		at, rev, ok := n.Confirmed(l)
		if !ok {
			return Step{Stage: Confirmed, Detail: n.unconfirmed(l)}
		}
		if at.After(s.At) {
			s.At, s.Revision = at, revision(rev)
		}
	}
	return s
}

// unconfirmed returns the reason why a lease whose objects the backend has is not
// confirmed.
func (n *Namespace) unconfirmed(l *coe.Lease) string {
	for _, k := range append(keys(l), netvirt.NodePort{ELAN: netvirt.ELANName(l.Node, l.Namespace)}.Key()) {
		if n.Model[k] == nil || !n.Supported.Has(k.Kind) {
			continue
		}
		if lacks := n.Lacks(n.Model[k]); lacks != "" {
			return fmt.Sprintf("%s: %s", k, lacks)
		}
	}
	return "interface " + l.Name + " is not confirmed yet"
}

// keys returns the keys of the objects that attach a lease's interface.
func keys(l *coe.Lease) []netvirt.Key {
	all := []netvirt.Key{
		netvirt.Interface{Name: l.Name}.Key(),
		netvirt.ELANInterface{Name: l.Name}.Key(),
		netvirt.VPNInterface{Name: l.Name}.Key(),
	}
	for _, a := range l.Addresses {
		all = append(all,
			netvirt.MACEntry{Interface: l.Name, MAC: l.MAC, Address: a.Address}.Key(),
			netvirt.Adjacency{Interface: l.Name, Address: a.Address}.Key())
	}
	return all
}

func (n *Namespace) sortProblems() {
	n.unmapped, n.rejected = map[thing]string{}, map[thing]string{}
	for _, p := range n.Problems {
		if p.Reason == coe.NotEnforced {
			continue // the object has its network all the same
		}
		all := n.unmapped
		if p.Reason == coe.BackendRejected {
			all = n.rejected
		}
		about := thing{p.Kind, p.UID}
		if _, found := all[about]; !found {
			all[about] = fmt.Sprintf("%s: %s", p.Reason, p.Message)
		}
	}
}

func revision(r int64) string {
	if r == 0 {
		return ""
	}
	return strconv.FormatInt(r, 10)
}
