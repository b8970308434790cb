// Package status has the trees of the YANG module coe-status, and the state of DHCP pools,
// as Go types with the names of the JSON. The server fills them from what it knows, and
// the command line reads them.
package status

import (
	"slices"
	"strconv"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// Status is the container coe-status:status.
type Status struct {
	Leads       bool      `json:"leads"`
	Leader      string    `json:"leader,omitempty"`
	InSync      bool      `json:"in-sync"`
	Complete    bool      `json:"complete"`
	ClaimsError string    `json:"claims-error,omitempty"`
	Sources     []Source  `json:"source,omitempty"`
	Backend     Backend   `json:"backend"`
	Filled      []Filled  `json:"filled,omitempty"`
	Scopes      []Scope   `json:"scope,omitempty"`
	Problems    []Problem `json:"problem,omitempty"`
}

// Source is the state of one source of pods, services and nodes.
type Source struct {
	Name      coe.Origin `json:"name"`
	Complete  bool       `json:"complete"`
	Reachable bool       `json:"reachable"`
	Resources []Resource `json:"resource,omitempty"`
	Troubles  []string   `json:"trouble,omitempty"`
}

// Resource is the state of a resource that is watched in Kubernetes.
type Resource struct {
	Name     string `json:"name"`
	Listed   bool   `json:"listed"`
	Watching bool   `json:"watching"`
	Since    string `json:"since,omitempty"`
	Restarts int    `json:"restarts"`
	Problem  string `json:"problem,omitempty"`
}

// Backend is how a backend answered last.
type Backend struct {
	Name      string `json:"name"`
	Connected *bool  `json:"connected,omitempty"` // nil before the first request
	Since     string `json:"since,omitempty"`
	LastError string `json:"last-error,omitempty"`
	// Compared is when the comparison began whose results a standby reports. Comparing is when one began that is in progress.
	Compared  string `json:"compared,omitempty"`
	Comparing string `json:"comparing-since,omitempty"`
}

// Filled is the state of a backend that is filled beside the one that serves.
type Filled struct {
	Backend
	InSync    bool      `json:"in-sync"`
	Behind    int       `json:"scopes-behind"`
	Objects   int       `json:"objects-wanted"`
	Confirmed int       `json:"objects-confirmed"`
	Problems  []Problem `json:"problem,omitempty"`
}

// Scope is the state of a namespace, or of the cluster.
type Scope struct {
	Name          string `json:"name"`
	Wanted        string `json:"wanted-revision"`
	Programmed    string `json:"reached-revision"`
	InSync        bool   `json:"in-sync"`
	LastError     string `json:"last-error,omitempty"`
	LastErrorTime string `json:"last-error-time,omitempty"`
	Objects       int    `json:"objects-wanted"`
	Written       int    `json:"objects-written"`
	Confirmed     int    `json:"objects-confirmed"`
	Problems      int    `json:"problems"`

	Unconfirmed []Unconfirmed `json:"unconfirmed,omitempty"`
}

// Unconfirmed is what the network lacks of some objects of a scope.
type Unconfirmed struct {
	Reason  string `json:"reason"`
	Objects int    `json:"objects"`
	Example string `json:"example"`
}

// Problem is something that cannot be mapped, or that the backend rejects.
type Problem struct {
	Namespace string     `json:"namespace,omitempty"`
	Kind      string     `json:"kind"`
	UID       string     `json:"uid"`
	Name      string     `json:"name,omitempty"`
	Reason    coe.Reason `json:"reason"`
	Message   string     `json:"message"`
}

// FromLoop returns the status of the loop of the active backend.
func FromLoop(st reconcile.Status) Status {
	out := Status{
		InSync: st.InSync, Complete: st.Complete, ClaimsError: st.ClaimError,
		Backend: backendOf(st), Problems: problemsOf(st),
	}
	for _, s := range st.Scopes {
		out.Scopes = append(out.Scopes, scopeOf(s))
	}
	return out
}

// FilledOf returns the status of the loop of a backend that is filled beside the active one.
// It has only the problems of what this backend rejects: Status has the problems of the mapping.
func FilledOf(st reconcile.Status) Filled {
	out := Filled{Backend: backendOf(st), InSync: st.InSync}
	for _, s := range st.Scopes {
		if !s.InSync {
			out.Behind++
		}
		out.Objects += s.Objects
		out.Confirmed += s.Written
	}
	out.Problems = slices.DeleteFunc(problemsOf(st), func(p Problem) bool { return p.Reason != coe.BackendRejected })
	return out
}

func backendOf(st reconcile.Status) Backend {
	peer := st.Peer
	out := Backend{Name: peer.Name, Since: Time(peer.Since), LastError: peer.LastError, Compared: Time(st.Compared), Comparing: Time(st.Looking)}
	if !peer.Since.IsZero() {
		out.Connected = &peer.OK
	}
	return out
}

func problemsOf(st reconcile.Status) (all []Problem) {
	for _, s := range st.Scopes {
		for _, p := range s.Problems {
			all = append(all, Problem(p))
		}
	}
	return all
}

func scopeOf(s reconcile.ScopeStatus) Scope {
	out := Scope{
		Name:   s.Scope.String(),
		Wanted: strconv.FormatInt(s.Wanted, 10), Programmed: strconv.FormatInt(s.Programmed, 10),
		InSync: s.InSync, LastError: s.LastError, LastErrorTime: Time(s.ErrorTime),
		Objects: s.Objects, Written: s.Written, Confirmed: s.Confirmed, Problems: len(s.Problems),
	}
	for _, l := range s.Lacks {
		out.Unconfirmed = append(out.Unconfirmed, Unconfirmed{l.Reason, l.Objects, l.Example.String()})
	}
	return out
}

// Time is a time as yang:date-and-time, to the millisecond; empty for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
