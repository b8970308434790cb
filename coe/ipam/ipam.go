// Package ipam makes and records choices (docs/architecture.md, rule 8): the lease of every pod
// interface (address, MAC address, name), the blocks and the VNI of every elan-instance, the
// route distinguisher of every vpn-instance, and the addresses of services that request none. It
// writes a choice to the journal first, and then puts it into the Store as a fact.
//
// The package knows no protocol, no backend and no Kubernetes. The journal.Journal is all that it knows of
// the datastore; package journal has the form of the records. Only one Assigner may use a journal: the leader's.
package ipam

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/coe/vips"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config configures an Assigner.
type Config struct {
	// Isolated gives every namespace its own address space (isolation "namespace"). Otherwise
	// all namespaces share one.
	Isolated bool
	// NodeBlocks gives the blocks of pools to nodes: the namespaces of a node share them. Otherwise each elan has its own
	// blocks. Leases keep their addresses when it changes. It needs one address space.
	NodeBlocks bool
	// ReuseDelay is the time for which a released address rests. Until then only its former
	// owner can get it again. Default 30 s.
	ReuseDelay time.Duration
	// VNIs of elan-instances. Default 70000 to 16777215.
	VNIFrom, VNITo uint32
	// Numbers of route distinguishers of vpn-instances. Default 2 to 65535.
	RDFrom, RDTo uint32

	// Nodes says how nodes are joined with the network.
	Nodes ranges.NodesConfig
	// VIPs stores the claims of services' addresses. It is apart from the Assigner's own
	// Journal because earlier releases cannot read claims. If nil, claims are not stored.
	VIPs journal.Journal

	// PortName replaces netvirt.PortName in tests. Port names are short hashes, so different
	// interfaces can have equal names.
	PortName func(interfaceName, podUID string) string
	// InUse, if not nil, lists the pod interfaces and the management ports of coe-bridge in
	// the backend. Sync calls it when records are damaged, and when the journal has no lease:
	// at a first start, or when the datastore was lost. It must have its own deadline and end
	// with ctx. An address that is not in the backend, and that a source reports only later,
	// does not count as in use.
	InUse func(ctx context.Context) ([]inuse.Interface, []inuse.Node, error)
	// Repool, if not nil, calls SetPools if pools depend on nodes that have changed. Sync calls it after it has read the
	// pods, so that the nodes of all of them have their pools when it chooses.
	Repool func()
	// Forget, if not nil, has the chassis of a deleted node deleted that its agent has reported. Sync calls it until the Store
	// has no such report, and keeps the record of the node until then, also after a restart. It must not wait.
	Forget func(node netip.Addr)
	// Confirmed, if not nil, lists the interfaces that the backend has confirmed. A confirmed
	// interface without a record of a lease means that the record was lost.
	Confirmed func(ctx context.Context) ([]coe.LeaseKey, error)
	// Now is the clock; default time.Now. It only stamps records and messages, so it may be set
	// while the program runs and differ from the clocks of other leaders.
	Now func() time.Time
	// Elapsed returns the monotonic time since a fixed moment. Default: since New.
	Elapsed func() time.Duration
}

func (c Config) withDefaults() Config {
	c.ReuseDelay = cmp.Or(c.ReuseDelay, 30*time.Second)
	if c.VNITo == 0 {
		c.VNIFrom, c.VNITo = 70000, 16777215
	}
	if c.RDTo == 0 {
		c.RDFrom, c.RDTo = 2, 65535
	}
	if c.PortName == nil {
		c.PortName = netvirt.PortName
	}
	if c.VIPs == nil {
		c.VIPs = forgetful{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Elapsed == nil {
		begun := time.Now()
		c.Elapsed = func() time.Duration { return time.Since(begun) }
	}
	return c
}

// domain is the address space of a namespace's pods.
func (c Config) domain(namespace string) string {
	if c.Isolated {
		return namespace
	}
	return serviceDomain
}

// serviceDomain is the address space of services. Without isolation it is also the address space
// of pods. No namespace has this name.
const serviceDomain = ""

// Assigner makes and records choices. New creates an Assigner, and Load must be called before
// the first Sync. Its methods may be called concurrently; they run one at a time.
type Assigner struct {
	cfg     Config
	store   *state.Store
	journal journal.Journal
	log     *slog.Logger

	// syncing is held during a whole Load or Sync. mu guards the fields below. It is not held
	// while Config.InUse and Config.Repool are called.
	syncing sync.Mutex
	mu      sync.Mutex
	// stale is set while the memory may differ from the journal: before the first Load, and
	// after a failed Commit.
	stale bool
	pools []dhcppool.Pool
	// serviceCIDRs has the ranges of cluster addresses that SetServiceRanges was given, and whether there may be others.
	serviceCIDRs struct {
		ranges  []netip.Prefix
		partial bool
	}
	// poolsWhole is set once all pools are known.
	poolsWhole bool
	warned     bool // a warning of services that nodes cannot reach was logged
	// repooled are the networks whose blocks must be compared with their pools.
	repooled map[string]bool
	// requesting are the namespaces of Store.Requesting, until a Sync of these namespaces has
	// succeeded.
	requesting map[string]bool
	// unasked is set while Config.InUse must still be called. adopting is set while the
	// journal has journal.AdoptingRecord.
	unasked, adopting bool
	known, claimed    atomic.Bool // InUseKnown
	// unclaimed are the namespaces that have not claimed their services' addresses
	// since New. It is nil until the store is complete.
	unclaimed map[string]bool
	// waiting has the refusals, by namespace.
	waiting map[string]*refused
	// freed is set when an address or an identifier became free for which a refused interface
	// may wait. It is cleared when a Sync has returned the waiting namespaces.
	freed    bool
	reserved ranges.Reserved // reserveAgain
	vips     *vips.Claims
	rests    rests
	*memory
}

// New returns an Assigner without records.
func New(cfg Config, store *state.Store, records journal.Journal, log *slog.Logger) *Assigner {
	a := &Assigner{
		cfg: cfg.withDefaults(), store: store, journal: records, log: log,
		stale: true, waiting: map[string]*refused{},
		repooled: map[string]bool{}, requesting: map[string]bool{},
	}
	a.rests = rests{&a.cfg, map[string]rest{}}
	a.clear()
	a.vips = vips.New(a.cfg.VIPs)
	return a
}

// clear empties the memory.
func (a *Assigner) clear() {
	a.memory = newMemory(a.cfg)
	if a.cfg.NodeBlocks {
		a.alloc.GatewayFits = a.gatewayFits
	}
}

// Load reads the journal into the store. A damaged record is set aside, logged, and
// reported as a problem of the store's cluster. Load fails only if the journal cannot be
// read, and then changes nothing.
func (a *Assigner) Load(ctx context.Context) error {
	a.syncing.Lock()
	defer a.syncing.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.load(ctx)
}

// Sync updates the leases of the namespaces from the store. It claims leases for new pods. Once
// the store is complete, it also releases the leases of deleted pods.
//
// affected are the namespaces to Sync next. A given namespace is affected if Sync may be able to
// choose more for it now. Another namespace is also affected if one of its facts has changed.
// again is the time after which to Sync the given namespaces again, even if they do not change:
// their next released address is then free. 0 means never.
// When the store becomes complete, the caller must Sync every namespace that the store lists.
//
// No pod gets an address that another pod of the store requests, in any namespace, or that is in
// use. Sync fails until Config.InUse has answered.
//
// After an error, the next Sync also returns the namespaces that were affected by the failed one.
func (a *Assigner) Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error) {
	a.syncing.Lock()
	defer a.syncing.Unlock()
	if err := a.freshen(ctx); err != nil {
		return nil, 0, err
	}
	for _, ns := range a.store.Requesting() {
		a.requesting[ns] = true
	}
	var inUse []inuse.Interface
	var nodes []inuse.Node
	ask := a.unasked && (len(namespaces)+len(a.requesting) > 0 || a.store.Complete())
	if ask && a.cfg.InUse != nil {
		if inUse, nodes, err = a.cfg.InUse(ctx); err != nil {
			return nil, 0, fmt.Errorf("read the addresses in use from the backend: %w; no address is given until the backend answers", err)
		}
	}
	return a.sync(ctx, namespaces, ask, inUse, nodes)
}

// InUseKnown reports whether every interface in use has a lease or is known to be deleted, and
// every service has claimed its addresses. Until then an object without a lease or a claim may be
// in use, and no object may be removed from the backend.
func (a *Assigner) InUseKnown() bool { return a.known.Load() && a.claimed.Load() }

// freshen makes the memory agree with the journal.
func (a *Assigner) freshen(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stale {
		return nil
	}
	return a.load(ctx)
}

func (a *Assigner) sync(ctx context.Context, namespaces []string, adopt bool, inUse []inuse.Interface, nodes []inuse.Node) (affected []string, again time.Duration, err error) {
	r := a.newRound(namespaces)
	if a.cfg.Repool != nil {
		a.cfg.Repool()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if adopt {
		err = adoption{r}.run(ctx, inUse, nodes)
	}
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		a.stale = true // the journal may have records that the store does not
		a.freed = true
		return nil, 0, err
	}
	clear(a.requesting)
	return r.affected(), r.again(), nil
}
