// Package trace says what each stage on the way from a source to the backend knows
// of a pod, and which is the first that does not have it, and why. It is pure: it
// looks at what it is given, and knows neither who runs the stages nor when.
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
	Source    Stage = "source"    // a source speaks of the pod
	Address   Stage = "address"   // every interface has a lease
	Mapped    Stage = "mapped"    // it is in the model
	Wanted    Stage = "wanted"    // it is to be in the backend: nothing of it is rejected
	Written   Stage = "written"   // the backend has taken it, or had it
	Confirmed Stage = "confirmed" // the network has it, as far as the backend tells, and those who plug pods in know
)

// Step is what a stage knows of a pod.
type Step struct {
	Stage Stage
	Done  bool
	// At is when the stage was reached, or looked at the pod's namespace last; zero
	// where that is not known.
	At time.Time
	// Revision is the API server's resourceVersion in stage Source of a pod of
	// Kubernetes, and the datastore's revision elsewhere; empty where there is none.
	Revision string
	// Detail says for people what the stage has, or why it does not have it and what
	// to do.
	Detail string
}

// Pod is the way of one pod.
type Pod struct {
	Pod    *coe.Pod
	Origin coe.Origin
	Leases []*coe.Lease // of its interfaces, in their order
	Steps  []Step       // one for each stage
	// Missing is the first stage that is not done; empty where all are, and for a pod
	// that is to have no network.
	Missing Stage
}

// Reached is the last stage before the missing one.
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

// Namespace is what is known of a namespace and its pods.
type Namespace struct {
	View   coe.View
	Origin func(uid string) coe.Origin
	// Model is what the namespace is mapped to, Problems what can't be, or is
	// rejected by the backend.
	Model    netvirt.Model
	Problems []coe.Problem
	// Realised are the kinds that the backend has a form for.
	Realised netvirt.KindSet
	// MappedAt and Wanted are when, and at which revision of the datastore, it was
	// mapped last; ReachedAt and Reached, when the backend last had it as it was
	// wanted. Failure is why the backend does not have it now; empty for no reason.
	MappedAt, ReachedAt time.Time
	Wanted, Reached     int64
	Failure             string
	// Has returns what the backend has under a key, or nil.
	Has func(netvirt.Key) netvirt.Object
	// Lacks says what the network lacks of an object that the backend has; empty where that
	// is nothing, or nobody can know.
	Lacks func(netvirt.Object) string
	// Confirmed tells when, and at which revision, a lease was confirmed.
	Confirmed func(*coe.Lease) (at time.Time, revision int64, ok bool)

	// unmapped and rejected are the first of the Problems with each thing, in words;
	// rejected those of the backend.
	unmapped, rejected map[thing]string
}

// thing is what a problem is about.
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
	t.Steps = []Step{n.source(&t), n.address(&t), n.mapped(&t), n.wanted(&t), n.written(&t), n.confirmed(&t)}
	if i := slices.IndexFunc(t.Steps, func(s Step) bool { return !s.Done }); i >= 0 {
		t.Missing = t.Steps[i].Stage
		for j := i + 1; j < len(t.Steps); j++ {
			t.Steps[j] = Step{Stage: t.Steps[j].Stage, Detail: "waits for " + string(t.Missing)}
		}
	}
	return t
}

func (n *Namespace) source(t *Pod) Step {
	s := Step{Stage: Source, Done: true, At: t.Pod.Said.At, Revision: t.Pod.Said.Revision}
	switch {
	case t.Pod.NoNetwork:
		s.Detail = "it has no network of its own: it is on its node's, or has finished"
	case t.Pod.NodeName != "":
		s.Detail = fmt.Sprintf("%s says it, on node %s", t.Origin, t.Pod.NodeName)
	case t.Pod.HostIP.IsValid():
		s.Detail = fmt.Sprintf("%s says it, on node %s", t.Origin, t.Pod.HostIP)
	default:
		s.Detail = fmt.Sprintf("%s says it", t.Origin)
	}
	return s
}

func (n *Namespace) address(t *Pod) Step {
	s := Step{Stage: Address, Done: len(t.Leases) == len(t.Pod.AllInterfaces())}
	if !s.Done {
		s.Detail = n.unmapped[thing{"pod", t.Pod.UID}]
		return s
	}
	var said []string
	for _, l := range t.Leases {
		if chosen := time.UnixMilli(l.Chosen); l.Chosen > 0 && chosen.After(s.At) {
			s.At = chosen
		}
		for _, a := range l.Addresses {
			said = append(said, fmt.Sprintf("%s of %s", a.Address, a.Network))
		}
		said = append(said, l.MAC)
	}
	s.Detail = strings.Join(said, ", ")
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
			if n.Realised.Has(k.Kind) {
				count++
			}
		}
	}
	if s.Done {
		s.Detail = fmt.Sprintf("%d objects", count)
	}
	return s
}

func (n *Namespace) written(t *Pod) Step {
	s := Step{Stage: Written, Done: true, At: n.ReachedAt, Revision: revision(n.Reached)}
	for _, l := range t.Leases {
		for _, k := range keys(l) {
			if n.Realised.Has(k.Kind) && s.Done && n.Has(k) != n.Model[k] {
				s.Done, s.Detail = false, fmt.Sprintf("the backend does not have %s as it is wanted", k)
			}
		}
	}
	if !s.Done && n.Failure != "" {
		s.Detail = n.Failure
	}
	return s
}

func (n *Namespace) confirmed(t *Pod) Step {
	s := Step{Stage: Confirmed, Done: true}
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

// unconfirmed is why a lease is not confirmed that the backend has.
func (n *Namespace) unconfirmed(l *coe.Lease) string {
	for _, k := range keys(l) {
		if !n.Realised.Has(k.Kind) {
			continue
		}
		if lacks := n.Lacks(n.Model[k]); lacks != "" {
			return fmt.Sprintf("%s: %s", k, lacks)
		}
	}
	return "interface " + l.Name + " is not known to be in the backend yet"
}

// keys are the keys of the objects that attach a lease's interface.
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
			continue // it keeps nothing from its network
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
