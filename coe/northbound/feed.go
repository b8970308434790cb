package northbound

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// The lists that a Feed reads, in the form "module:container/list".
const (
	Pods          = "pod:coe/pods"
	Services      = "service:service-information/services"
	EndpointsList = "service:endpoints-info/endpoints"
	Nodes         = "k8s-node:k8s-nodes-info/k8s-nodes"
	Networks      = "dhcp_allocation_pool:dhcp_allocation_pool/network"
	Policies      = "k8s:k8s/network-policies/network-policy"
	Gateways      = "coe-gateways:gateways/gateway"
	Chassis       = "coe-agent:chassis/node"
	AccessLists   = "ietf-access-control-list:access-lists/acl"
)

// JoinKey joins the key values of an entry. In lists with several keys only the last value can
// contain a space.
func JoinKey(values ...string) string { return strings.Join(values, " ") }

// Entry is an entry of a list.
type Entry struct {
	List string // one of the lists above; others are ignored
	Key  string // see JoinKey
	Raw  []byte // nil if the entry was deleted
	// Damaged means that the stored value is not a JSON object.
	Damaged bool
	// Revision is the datastore's revision of the entry's last change.
	Revision int64
}

// Batch is the change of one revision of the datastore, or a snapshot.
type Batch struct {
	Revision int64
	// Snapshot means that Entries has all entries: known entries that are missing were
	// deleted.
	Snapshot bool
	Entries  []Entry
}

// Feed writes the entries of RESTCONF clients into a Store. It must not be used concurrently.
type Feed struct {
	store *state.Store
	pools func([]dhcppool.Pool)
	log   *slog.Logger

	known    map[string]map[string]bool // keys by list
	networks map[string][]dhcppool.Pool // by network-id
	// unreadable has the problems of unreadable entries, by list and key.
	unreadable map[[2]string]coe.Problem
}

// NewFeed returns a Feed for a Store. It calls pools with all pools whenever one has changed.
func NewFeed(store *state.Store, pools func([]dhcppool.Pool), log *slog.Logger) *Feed {
	return &Feed{
		store: store, pools: pools, log: log,
		known:    map[string]map[string]bool{},
		networks: map[string][]dhcppool.Pool{},

		unreadable: map[[2]string]coe.Problem{},
	}
}

// Apply applies a batch to the Store in one step. After the first snapshot the origin RESTCONF
// is complete.
func (f *Feed) Apply(b Batch) {
	entries := b.Entries
	if b.Snapshot {
		entries = append(f.missing(b.Entries), entries...)
	}
	before := maps.Clone(f.unreadable)
	for _, e := range entries {
		delete(f.unreadable, [2]string{e.List, e.Key})
	}
	f.applyPools(entries)
	f.store.Update(func(tx *state.Tx) {
		for _, e := range entries {
			f.apply(tx, e)
		}
		if !maps.Equal(before, f.unreadable) {
			tx.SetUnreadable(f.problems())
		}
		tx.SetRevision(b.Revision)
		if b.Snapshot {
			tx.SetComplete(coe.RESTCONF)
		}
	})
}

// missing returns deletions for the known entries that a snapshot does not have.
func (f *Feed) missing(snapshot []Entry) []Entry {
	there := map[string]map[string]bool{}
	for _, e := range snapshot {
		note(there, e)
	}
	var gone []Entry
	for list, keys := range f.known {
		for key := range keys {
			if !there[list][key] {
				gone = append(gone, Entry{List: list, Key: key})
			}
		}
	}
	return gone
}

func note(known map[string]map[string]bool, e Entry) {
	if e.Raw == nil {
		delete(known[e.List], e.Key)
		return
	}
	if known[e.List] == nil {
		known[e.List] = map[string]bool{}
	}
	known[e.List][e.Key] = true
}

// applyPools applies changes of pools, before the Store has the pods that may need them.
func (f *Feed) applyPools(entries []Entry) {
	changed := false
	for _, e := range entries {
		if e.List != Networks {
			continue
		}
		changed = true
		if e.Raw == nil {
			delete(f.networks, e.Key)
			continue
		}
		pools, err := read(e, Pools, func(p []dhcppool.Pool) string { return networkOf(p, e.Key) })
		if err != nil {
			f.refuse(e, err)
			continue
		}
		f.networks[e.Key] = pools
	}
	if !changed {
		return
	}
	var all []dhcppool.Pool
	for _, id := range slices.Sorted(maps.Keys(f.networks)) {
		all = append(all, f.networks[id]...)
	}
	f.pools(all)
}

func (f *Feed) apply(tx *state.Tx, e Entry) {
	note(f.known, e)
	switch e.List {
	case Pods:
		put(f, e, Pod, func(p *coe.Pod) string { return p.UID }, func(p *coe.Pod) {
			p.Reported = coe.Reported{At: time.Now(), Revision: strconv.FormatInt(e.Revision, 10)}
			tx.PutPod(coe.RESTCONF, p)
		},
			func() { tx.DeletePod(coe.RESTCONF, e.Key) })
	case Services:
		put(f, e, Service, func(s *coe.Service) string { return s.UID }, func(s *coe.Service) { tx.PutService(coe.RESTCONF, s) },
			func() { tx.DeleteService(coe.RESTCONF, e.Key) })
	case EndpointsList:
		put(f, e, Endpoints, func(s *coe.Endpoints) string { return s.UID }, func(s *coe.Endpoints) { tx.PutEndpoints(coe.RESTCONF, s) },
			func() { tx.DeleteEndpoints(coe.RESTCONF, e.Key) })
	case Nodes:
		put(f, e, Node, func(n *coe.Node) string { return n.UID }, func(n *coe.Node) { tx.PutNode(coe.RESTCONF, n) },
			func() { tx.DeleteNode(coe.RESTCONF, e.Key) })
	case Policies:
		put(f, e, NetworkPolicy, policyUID, func(p *coe.PolicySpec) { tx.PutPolicy(coe.RESTCONF, p) },
			func() { tx.DeletePolicy(coe.RESTCONF, e.Key) })
	case Gateways:
		f.applyGateway(tx, e)
	case Chassis:
		put(f, e, ChassisOf, func(c *coe.Chassis) string { return c.Node.String() }, tx.PutChassis, func() { deleteChassis(tx, e.Key) })
	case AccessLists:
		put(f, e, AccessList, policyUID, func(p *coe.PolicySpec) { tx.PutPolicy(coe.RESTCONF, p) },
			func() { tx.DeletePolicy(coe.RESTCONF, e.Key) })
	}
}

// applyGateway is put for a gateway. An entry that was never read pins what can be read of it, or all pods: pinned
// pods leave with a certain address, or not at all.
func (f *Feed) applyGateway(tx *state.Tx, e Entry) {
	put(f, e, Gateway, func(g *coe.Gateway) string { return g.Node.String() }, tx.PutGateway, func() { tx.DeleteGateway(e.Key) })
	if _, unreadable := f.unreadable[[2]string{e.List, e.Key}]; !unreadable || tx.HasGateway(e.Key) {
		return
	}
	if g := unreadableGateway(e); g != nil {
		tx.PutGateway(g)
	}
}

func policyUID(p *coe.PolicySpec) string { return p.UID }

// put reads an entry and puts it into the Store, or deletes it. An unreadable entry keeps its
// former value: RESTCONF rejects such entries, so no client has written it.
func put[T any](f *Feed, e Entry, parse func([]byte) (*T, error), key func(*T) string, say func(*T), gone func()) {
	if e.Raw == nil {
		gone()
		return
	}
	value, err := read(e, parse, key)
	if err != nil {
		f.refuse(e, err)
		return
	}
	say(value)
}

// read reads an entry, whose key must match its content.
func read[T any](e Entry, parse func([]byte) (T, error), key func(T) string) (value T, err error) {
	if e.Damaged {
		return value, errors.New("its value in the datastore is not a JSON object")
	}
	if value, err = parse(e.Raw); err == nil && key(value) != e.Key {
		err = fmt.Errorf("it is a copy of entry %q", key(value))
	}
	return value, err
}

// networkOf returns the network of pools; it is unknown for an entry without pools.
func networkOf(pools []dhcppool.Pool, key string) string {
	if len(pools) > 0 {
		return pools[0].Network
	}
	return key
}

// refuse records that an entry cannot be read.
func (f *Feed) refuse(e Entry, err error) {
	f.log.Error("cannot read an entry in the datastore", "list", e.List, "key", e.Key, "err", err)
	f.unreadable[[2]string{e.List, e.Key}] = coe.Problem{
		Kind: "record", UID: e.List + "=" + e.Key, Name: e.Key, Reason: coe.RecordDamaged,
		Message: fmt.Sprintf("cannot read the entry in the datastore: %v; write it again, or delete it", err),
	}
}

// problems returns the problems of unreadable entries, sorted.
func (f *Feed) problems() []coe.Problem {
	return slices.SortedFunc(maps.Values(f.unreadable), func(a, b coe.Problem) int { return strings.Compare(a.UID, b.UID) })
}
