// Package ipam chooses what must be remembered: the lease of every pod
// interface (address, MAC address, name), the blocks and the VNI of every
// elan-instance, the route distinguisher of every vpn-instance, and addresses
// for services that request none (docs/architecture.md, rule 8). It writes a
// choice to the journal first, and then puts it into the Store as a fact.
//
// It knows no protocol, no backend and no Kubernetes, and of the datastore only
// the Journal. Only one Assigner may work on a journal: the leader's.
package ipam

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Journal is where what was chosen is remembered.
type Journal interface {
	// Load returns every record.
	Load(ctx context.Context) (map[string][]byte, error)
	// Commit makes all the changes or none, durably. An error may mean that they
	// were made all the same.
	Commit(ctx context.Context, puts map[string][]byte, deletes []string) error
	// MaxOps is how many puts and deletes one Commit may have.
	MaxOps() int
}

// Config is what an operator chooses.
type Config struct {
	// Isolated makes every namespace an address space of its own (isolation
	// "namespace"); else all share one.
	Isolated bool
	// ReuseDelay is how long an address rests, and waits for its owner to come
	// back, before another gets it. Default 30 s.
	ReuseDelay time.Duration
	// VNIs of elan-instances. Default 70000 to 16777215.
	VNIFrom, VNITo uint32
	// Numbers of route distinguishers of vpn-instances. Default 2 to 65535.
	RDFrom, RDTo uint32

	// Nodes says how nodes are joined with the network.
	Nodes NodesConfig
	// VIPs stores the claims of services' addresses. It is apart from the Assigner's own
	// Journal because earlier releases cannot read claims. If nil, claims are not stored.
	VIPs Journal

	// PortName replaces netvirt.PortName in tests. Port names are short hashes, so different
	// interfaces can have equal names.
	PortName func(interfaceName, podUID string) string
	// InUse, if not nil, lists the pod interfaces and the management ports that the backend
	// has of ours. Sync calls it when records are damaged, and when the journal has no
	// lease: at a first start, or when the datastore was lost. It must have its own
	// deadline and end with ctx. An address that the backend lacks, and that a source
	// reports only later, is not known to be in use.
	InUse func(ctx context.Context) ([]InUse, []NodeInUse, error)
	// Confirmed, if not nil, lists the interfaces that the backend was known to have. If
	// one of them has no lease record, the record was lost.
	Confirmed func(ctx context.Context) ([]coe.LeaseKey, error)
	// Now is the clock; default time.Now. It only stamps records and messages, so it may be set
	// while the program runs and differ from the clocks of other leaders.
	Now func() time.Time
	// Elapsed is the monotonic time since some moment; default: since New.
	Elapsed func() time.Duration
}

func (c Config) withDefaults() Config {
	if c.ReuseDelay == 0 {
		c.ReuseDelay = 30 * time.Second
	}
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

// serviceDomain is the address space of services. While nothing is isolated it
// is the space of pods too; no namespace has this name.
const serviceDomain = ""

// Assigner chooses and remembers. Make it with New and Load it before use. Its
// methods may be called by several goroutines; they wait for each other.
type Assigner struct {
	cfg     Config
	store   *coe.Store
	journal Journal
	log     *slog.Logger

	// syncing is held by Load and Sync throughout. mu guards what follows; it is
	// not held while the backend is asked.
	syncing sync.Mutex
	mu      sync.Mutex
	// stale is set until the memory agrees with the journal: before the first
	// Load and after a failed Commit.
	stale bool
	pools []dhcppool.Pool
	// poolsWhole is set once all pools are known.
	poolsWhole bool
	warned     bool // of services that nodes don't reach
	// repooled are the networks whose blocks must be compared with their pools.
	repooled map[string]bool
	// requesting are the namespaces of Store.Requesting, until a Sync of them
	// succeeded.
	requesting map[string]bool
	// unasked is set until what is in use was asked for, where it must be; adopting,
	// while the journal has the record that says so.
	unasked, adopting bool
	known, claimed    atomic.Bool // InUseKnown
	// unclaimed are the namespaces that have not claimed their services' addresses
	// since New. It is nil until the store is complete.
	unclaimed map[string]bool
	// waiting are the refusals of every namespace that has any.
	waiting map[string]*refused
	// freed is set when something came back that a refused interface may wait
	// for, until a Sync has returned.
	freed bool
	vips  *vips
	rests map[string]rest // by the record of what is released
	*memory
}

// New returns an Assigner that knows nothing yet.
func New(cfg Config, store *coe.Store, journal Journal, log *slog.Logger) *Assigner {
	a := &Assigner{
		cfg: cfg.withDefaults(), store: store, journal: journal, log: log,
		stale: true, waiting: map[string]*refused{},
		repooled: map[string]bool{}, requesting: map[string]bool{},
		rests: map[string]rest{},
	}
	a.memory = newMemory(a.cfg)
	a.vips = newVIPs(a.cfg.VIPs)
	return a
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

// Sync updates the leases of the namespaces from the store: it claims for new pods and, once
// the store is complete, releases the leases of deleted ones.
//
// affected are namespaces (given ones too, where that is needed) for which more
// may be chosen now, or for which something was changed beside those given.
// again is when to Sync the given namespaces next, even if they do not change: when released
// addresses are free again; 0 for never.
// When the store becomes complete, every namespace that it lists must be synced.
//
// No pod gets an address that another pod of the store requests, in any namespace, or that
// is in use. Sync fails until Config.InUse has answered.
//
// After an error, the next Sync returns the affected namespaces too.
func (a *Assigner) Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error) {
	a.syncing.Lock()
	defer a.syncing.Unlock()
	if err := a.freshen(ctx); err != nil {
		return nil, 0, err
	}
	for _, ns := range a.store.Requesting() {
		a.requesting[ns] = true
	}
	var inUse []InUse
	var nodes []NodeInUse
	ask := a.unasked && (len(namespaces)+len(a.requesting) > 0 || a.store.Complete())
	if ask && a.cfg.InUse != nil {
		if inUse, nodes, err = a.cfg.InUse(ctx); err != nil {
			return nil, 0, fmt.Errorf("addresses in use can't be read from the backend: %w; no address is given until it answers", err)
		}
	}
	return a.sync(ctx, namespaces, ask, inUse, nodes)
}

// InUseKnown reports whether every interface in use has a lease or is known to be gone,
// and every service has claimed its addresses. Until then an object without a lease or a
// claim may be in use, and nothing may be removed from the backend.
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

func (a *Assigner) sync(ctx context.Context, namespaces []string, adopt bool, inUse []InUse, nodes []NodeInUse) (affected []string, again time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.newRound(namespaces)
	if adopt {
		err = r.adopt(ctx, inUse, nodes)
	}
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		a.stale = true // the journal may hold what the store does not
		a.freed = true
		return nil, 0, err
	}
	clear(a.requesting)
	return r.affected(), r.again(), nil
}
