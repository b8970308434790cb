package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf"
)

// netvirtTree writes one of the Netvirt trees: what is wanted, or what the
// backend has confirmed.
func (b *Bridge) netvirtTree(ctx context.Context, top string, confirmed bool) ([]byte, error) {
	objects := b.wanted
	if confirmed {
		p, _ := b.current(ctx)
		objects = p.loop.Confirmed
	}
	return netvirtjson.Tree(top, iter.Seq[netvirt.Object](objects))
}

// current is the part, whose loop knows how far the backend is, and who leads. An
// onlooker looks first, unless nobody leads or it is about to: reading the backend
// would only keep it from that.
func (b *Bridge) current(ctx context.Context) (p *part, leader leader) {
	p, leader = b.part.Load(), b.leader(ctx)
	if !p.leads() && leader.name != "" && leader.name != b.data.Name() {
		for _, l := range p.loops() {
			l.Look(ctx)
		}
	}
	return p, leader
}

func (b *Bridge) wanted(yield func(netvirt.Object) bool) {
	for _, s := range append(b.scopes(), netvirt.Cluster) {
		model, _ := mapping.Scope(b.store, s, b.cfg.Mapping)
		for _, o := range model {
			if !yield(o) {
				return
			}
		}
	}
}

// jsonStatus is coe-status:status.
type jsonStatus struct {
	Leads       bool          `json:"leads"`
	Leader      string        `json:"leader,omitempty"`
	InSync      bool          `json:"in-sync"`
	Complete    bool          `json:"complete"`
	ClaimsError string        `json:"claims-error,omitempty"`
	Sources     []jsonOrigin  `json:"source"`
	Backend     jsonBackend   `json:"backend"`
	Filled      []jsonFilled  `json:"filled,omitempty"`
	Scopes      []jsonScope   `json:"scope,omitempty"`
	Problems    []jsonProblem `json:"problem,omitempty"`
}

type jsonOrigin struct {
	Name      coe.Origin     `json:"name"`
	Complete  bool           `json:"complete"`
	Reachable bool           `json:"reachable"`
	Resources []jsonResource `json:"resource,omitempty"`
	Troubles  []string       `json:"trouble,omitempty"`
}

type jsonResource struct {
	Name     string `json:"name"`
	Listed   bool   `json:"listed"`
	Watching bool   `json:"watching"`
	Since    string `json:"since,omitempty"`
	Restarts int    `json:"restarts"`
	Problem  string `json:"problem,omitempty"`
}

type jsonBackend struct {
	Name      string `json:"name"`
	Connected *bool  `json:"connected,omitempty"` // nil: it was not asked yet
	Since     string `json:"since,omitempty"`
	LastError string `json:"last-error,omitempty"`
}

// jsonFilled is how far a backend is that is filled beside the one that serves.
type jsonFilled struct {
	jsonBackend
	InSync    bool          `json:"in-sync"`
	Behind    int           `json:"scopes-behind"`
	Objects   int           `json:"objects-wanted"`
	Confirmed int           `json:"objects-confirmed"`
	Problems  []jsonProblem `json:"problem,omitempty"`
}

type jsonScope struct {
	Name          string `json:"name"`
	Wanted        string `json:"wanted-revision"`
	Reached       string `json:"reached-revision"`
	InSync        bool   `json:"in-sync"`
	LastError     string `json:"last-error,omitempty"`
	LastErrorTime string `json:"last-error-time,omitempty"`
	Objects       int    `json:"objects-wanted"`
	Written       int    `json:"objects-written"`
	Confirmed     int    `json:"objects-confirmed"`
	Problems      int    `json:"problems"`

	Unconfirmed []jsonLack `json:"unconfirmed,omitempty"`
}

// jsonLack is what the network lacks of some of a scope's objects.
type jsonLack struct {
	Reason  string `json:"reason"`
	Objects int    `json:"objects"`
	Example string `json:"example"`
}

type jsonProblem struct {
	Namespace string     `json:"namespace,omitempty"`
	Kind      string     `json:"kind"`
	UID       string     `json:"uid"`
	Name      string     `json:"name,omitempty"`
	Reason    coe.Reason `json:"reason"`
	Message   string     `json:"message"`
}

func (b *Bridge) statusTree(ctx context.Context, _ restconf.Asked) ([]byte, error) {
	p, leader := b.current(ctx)
	st := p.loop.Status()
	out := jsonStatus{
		Leads: p.leads(), Leader: leader.name,
		InSync: st.InSync && (p.leads() || b.ledBy(leader, st)), Complete: st.Complete, ClaimsError: st.ClaimError,
		Sources: b.sourcesJSON(leader.known), Backend: backendJSON(st.Peer), Problems: append(b.fileProblems(), problemsJSON(st)...),
	}
	for _, s := range st.Scopes {
		out.Scopes = append(out.Scopes, scopeJSON(s))
	}
	for _, s := range p.filled {
		out.Filled = append(out.Filled, filledJSON(s.loop.Status()))
	}
	return marshal("coe-status:status", out)
}

func backendJSON(peer reconcile.PeerStatus) jsonBackend {
	out := jsonBackend{Name: peer.Name, Since: moment(peer.Since), LastError: peer.LastError}
	if !peer.Since.IsZero() {
		out.Connected = &peer.OK
	}
	return out
}

func problemsJSON(st reconcile.Status) (all []jsonProblem) {
	for _, s := range st.Scopes {
		for _, p := range s.Problems {
			all = append(all, jsonProblem(p))
		}
	}
	return all
}

// fileProblems are the certificates of this replica that must be renewed.
func (b *Bridge) fileProblems() (all []jsonProblem) {
	for _, e := range b.access.Expiring() {
		all = append(all, jsonProblem{Kind: "certificate", UID: e.Flag, Name: e.Flag, Reason: coe.CertificateExpires, Message: e.String()})
	}
	return all
}

// filledJSON leaves out what it says of the mapping, which is the same for all.
func filledJSON(st reconcile.Status) jsonFilled {
	out := jsonFilled{jsonBackend: backendJSON(st.Peer), InSync: st.InSync}
	for _, s := range st.Scopes {
		if !s.InSync {
			out.Behind++
		}
		out.Objects += s.Objects
		out.Confirmed += s.Written
	}
	out.Problems = slices.DeleteFunc(problemsJSON(st), func(p jsonProblem) bool { return p.Reason != coe.BackendRejected })
	return out
}

// sourcesJSON is how those fare who say what there is; answers tells whether the
// datastore does.
func (b *Bridge) sourcesJSON(answers bool) []jsonOrigin {
	all := []jsonOrigin{{Name: coe.RESTCONF, Complete: b.store.Heard(coe.RESTCONF), Reachable: answers}}
	if b.cluster == nil {
		return all
	}
	st := b.cluster.source.Status()
	cluster := jsonOrigin{
		Name: coe.Kubernetes, Complete: b.store.Heard(coe.Kubernetes), Reachable: st.Reachable, Troubles: b.cluster.reporter.Troubles(),
	}
	for _, r := range st.Resources {
		cluster.Resources = append(cluster.Resources, jsonResource{
			r.Resource, r.Synced, r.Watching, moment(r.Since), r.Restarts, r.Problem,
		})
	}
	return append(all, cluster)
}

// ledBy tells whether what an onlooker has found may count as in sync. It does not while
// nobody leads, or this replica is about to: nobody sees to it. Nor does it while an
// address is being chosen, as the leader alone knows whether one can be.
func (b *Bridge) ledBy(leader leader, st reconcile.Status) bool {
	waits := func(p coe.Problem) bool { return p.Reason == coe.Waiting }
	return leader.name != "" && leader.name != b.data.Name() && !slices.ContainsFunc(st.Scopes, func(s reconcile.ScopeStatus) bool {
		return slices.ContainsFunc(s.Problems, waits)
	})
}

// leaderTimeout is how long the status waits to be told who leads.
const leaderTimeout = time.Second

// leader is who leads.
type leader struct {
	name  string // empty for nobody
	known bool   // the datastore has answered
}

func (b *Bridge) leader(ctx context.Context) leader {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	name, err := b.data.Leader(ctx)
	return leader{name, err == nil}
}

func scopeJSON(s reconcile.ScopeStatus) jsonScope {
	out := jsonScope{
		Name:   s.Scope.String(),
		Wanted: strconv.FormatInt(s.Wanted, 10), Reached: strconv.FormatInt(s.Reached, 10),
		InSync: s.InSync, LastError: s.LastError, LastErrorTime: moment(s.ErrorTime),
		Objects: s.Objects, Written: s.Written, Confirmed: s.Confirmed, Problems: len(s.Problems),
	}
	for _, l := range s.Lacks {
		out.Unconfirmed = append(out.Unconfirmed, jsonLack{l.Reason, l.Objects, l.Example.String()})
	}
	return out
}

// jsonLease is an entry of coe-status:leases.
type jsonLease struct {
	PodUID       string         `json:"pod-uid"`
	InterfaceUID string         `json:"interface-uid"`
	Name         string         `json:"interface-name"`
	Namespace    string         `json:"namespace"`
	Pod          string         `json:"pod"`
	Node         netip.Addr     `json:"node"`
	MAC          string         `json:"mac-address"`
	Addresses    []netip.Addr   `json:"ip-address"`
	Networks     []netip.Prefix `json:"network"`
	Released     string         `json:"released,omitempty"`
}

func (b *Bridge) leasesTree() ([]byte, error) {
	var out struct {
		Leases []jsonLease `json:"lease"`
	}
	for _, ns := range b.store.Namespaces() {
		for _, l := range b.store.View(ns).Leases {
			out.Leases = append(out.Leases, leaseJSON(l))
		}
	}
	if len(out.Leases) == 0 {
		return nil, nil
	}
	slices.SortFunc(out.Leases, func(a, c jsonLease) int {
		return cmp.Or(cmp.Compare(a.Name, c.Name), cmp.Compare(a.PodUID, c.PodUID), cmp.Compare(a.InterfaceUID, c.InterfaceUID))
	})
	return marshal("coe-status:leases", out)
}

func leaseJSON(l *coe.Lease) jsonLease {
	out := jsonLease{
		PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Name: l.Name,
		Namespace: l.Namespace, Pod: l.Pod, Node: l.Node, MAC: l.MAC,
	}
	for _, a := range l.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
		out.Networks = append(out.Networks, a.Network)
	}
	if l.Released != 0 {
		out.Released = moment(time.Unix(l.Released, 0))
	}
	return out
}

// allocation is an element of dhcp_allocation_pool's allocation-instance.
type allocation struct {
	MAC     string     `json:"mac"`
	Address netip.Addr `json:"allocated-ip"`
}

type allocations struct {
	Subnet netip.Prefix `json:"subnet"`
	Given  []allocation `json:"allocation-instance"`
}

type networkAllocations struct {
	ID          string        `json:"network-id"`
	Allocations []allocations `json:"allocations"`
}

// allocationsTree is what was handed out of each pool, by network and subnet.
func (b *Bridge) allocationsTree() ([]byte, error) {
	type pool struct {
		network string
		subnet  netip.Prefix
	}
	given := map[pool]map[string]netip.Addr{}
	for _, ns := range b.store.Namespaces() {
		v := b.store.View(ns)
		blocks := map[netip.Prefix]*coe.Block{}
		for _, block := range v.Blocks {
			blocks[block.Prefix] = block
		}
		for _, l := range v.Leases {
			for _, a := range l.Addresses {
				block := blocks[a.Network]
				if block == nil || block.Network == "" {
					continue
				}
				p := pool{block.Network, block.Subnet}
				if given[p] == nil {
					given[p] = map[string]netip.Addr{}
				}
				given[p][l.MAC] = a.Address
			}
		}
	}
	networks := map[string]*networkAllocations{}
	for p, macs := range given {
		one := allocations{Subnet: p.subnet}
		for mac, addr := range macs {
			one.Given = append(one.Given, allocation{mac, addr})
		}
		slices.SortFunc(one.Given, func(a, c allocation) int { return a.Address.Compare(c.Address) })
		if networks[p.network] == nil {
			networks[p.network] = &networkAllocations{ID: p.network}
		}
		n := networks[p.network]
		n.Allocations = append(n.Allocations, one)
	}
	if len(networks) == 0 {
		return nil, nil
	}
	var out struct {
		Networks []*networkAllocations `json:"network"`
	}
	for _, n := range networks {
		slices.SortFunc(n.Allocations, func(a, c allocations) int { return a.Subnet.Compare(c.Subnet) })
		out.Networks = append(out.Networks, n)
	}
	slices.SortFunc(out.Networks, func(a, c *networkAllocations) int { return cmp.Compare(a.ID, c.ID) })
	return marshal("dhcp_allocation_pool", out)
}

func marshal(what string, content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("write tree %s: %w", what, err)
	}
	return raw, nil
}

// moment is a time as yang:date-and-time, to the millisecond; empty for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
