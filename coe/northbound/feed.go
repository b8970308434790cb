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
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// The lists that a Feed reads, as "module:container/list".
const (
	Pods          = "pod:coe/pods"
	Services      = "service:service-information/services"
	EndpointsList = "service:endpoints-info/endpoints"
	Nodes         = "k8s-node:k8s-nodes-info/k8s-nodes"
	Networks      = "dhcp_allocation_pool:dhcp_allocation_pool/network"
	Policies      = "k8s:k8s/network-policies/network-policy"
	AccessLists   = "ietf-access-control-list:access-lists/acl"
)

// JoinKey joins the key values of an entry. No value of the lists with several keys
// but the last one can hold a space.
func JoinKey(values ...string) string { return strings.Join(values, " ") }

// Entry is one entry of one list.
type Entry struct {
	List string // one of the lists above; others are passed over
	Key  string // of JoinKey
	Raw  []byte // nil for an entry that is gone
	// Damaged: the datastore holds no JSON object for the entry.
	Damaged bool
	// Revision is the datastore's at the entry's last change.
	Revision int64
}

// Batch is what one revision of the datastore changed, or all that is there.
type Batch struct {
	Revision int64
	// Snapshot: the entries are all there are; what was known and is not among
	// them is gone.
	Snapshot bool
	Entries  []Entry
}

// Feed tells a Store what RESTCONF clients have written. It is for one goroutine.
type Feed struct {
	store *coe.Store
	pools func([]dhcppool.Pool)
	log   *slog.Logger

	known    map[string]map[string]bool // keys by list
	networks map[string][]dhcppool.Pool // by network-id
	// unreadable are the problems of the entries that can't be read, by list and key.
	unreadable map[[2]string]coe.Problem
}

// NewFeed returns a feed for the store. pools is called with all pools whenever
// one changed.
func NewFeed(store *coe.Store, pools func([]dhcppool.Pool), log *slog.Logger) *Feed {
	return &Feed{
		store: store, pools: pools, log: log,
		known:    map[string]map[string]bool{},
		networks: map[string][]dhcppool.Pool{},

		unreadable: map[[2]string]coe.Problem{},
	}
}

// Apply tells the store what a batch changed, in one step. After the first
// snapshot the store knows that RESTCONF has said all.
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
	f.store.Update(func(tx *coe.Tx) {
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

// missing are deletions of what is known and not in a snapshot.
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

// applyPools hands on the pools, before the store tells of the pods that may
// want them.
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

func (f *Feed) apply(tx *coe.Tx, e Entry) {
	note(f.known, e)
	switch e.List {
	case Pods:
		put(f, e, Pod, func(p *coe.Pod) string { return p.UID }, func(p *coe.Pod) {
			p.Said = coe.Said{At: time.Now(), Revision: strconv.FormatInt(e.Revision, 10)}
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
		put(f, e, NetworkPolicy, policyUID, func(p *coe.Policy) { tx.PutPolicy(coe.RESTCONF, p) },
			func() { tx.DeletePolicy(coe.RESTCONF, e.Key) })
	case AccessLists:
		put(f, e, AccessList, policyUID, func(p *coe.Policy) { tx.PutPolicy(coe.RESTCONF, p) },
			func() { tx.DeletePolicy(coe.RESTCONF, e.Key) })
	}
}

func policyUID(p *coe.Policy) string { return p.UID }

// put reads an entry and says it, or says that it is gone. One that can't be read
// keeps what was said of it before: the writer was told what is wrong with it, so
// this is no client's doing.
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

// read reads an entry, which must be the one of its key.
func read[T any](e Entry, parse func([]byte) (T, error), key func(T) string) (value T, err error) {
	if e.Damaged {
		return value, errors.New("the datastore holds no JSON object for it")
	}
	if value, err = parse(e.Raw); err == nil && key(value) != e.Key {
		err = fmt.Errorf("it is a copy of entry %q", key(value))
	}
	return value, err
}

// networkOf is the network of pools; an entry without pools tells none.
func networkOf(pools []dhcppool.Pool, key string) string {
	if len(pools) > 0 {
		return pools[0].Network
	}
	return key
}

// refuse notes that an entry can't be read.
func (f *Feed) refuse(e Entry, err error) {
	f.log.Error("entry in the datastore can't be read", "list", e.List, "key", e.Key, "err", err)
	f.unreadable[[2]string{e.List, e.Key}] = coe.Problem{
		Kind: "record", UID: e.List + "=" + e.Key, Name: e.Key, Reason: coe.RecordDamaged,
		Message: fmt.Sprintf("the entry in the datastore can't be read: %v; write it again, or delete it", err),
	}
}

// problems lists the entries that can't be read, sorted.
func (f *Feed) problems() []coe.Problem {
	return slices.SortedFunc(maps.Values(f.unreadable), func(a, b coe.Problem) int { return strings.Compare(a.UID, b.UID) })
}
