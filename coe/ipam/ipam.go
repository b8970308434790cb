// Package ipam chooses what must be remembered: the lease of every pod
// interface (address, MAC address, name), the blocks and the VNI of every
// elan-instance, the route distinguisher of every vpn-instance, and addresses
// for services that bring none (architecture, decision 8). What is chosen is
// written to the journal first and put into the Store as facts after.
//
// It knows no protocol, no backend and no Kubernetes, and of the datastore only
// the Journal. There must be one Assigner at work on a journal, the leader's.
package ipam

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
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

// Config is what an operator chooses, and the rules for names.
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

	// ELANName, VPNName and InterfaceName are the rules of mapping/netvirt.
	ELANName      func(node netip.Addr, namespace string) string
	VPNName       func(namespace string) string
	InterfaceName func(namespace, pod, uid string, primary bool) string
	// Now is the clock; default time.Now.
	Now func() time.Time
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
	if c.Now == nil {
		c.Now = time.Now
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
// is that of pods too; no namespace has this name.
const serviceDomain = ""

// Assigner chooses and remembers. Make it with New and Load it before use. Its
// methods may be called by several goroutines; they wait for each other.
type Assigner struct {
	cfg     Config
	store   *coe.Store
	journal Journal
	log     *slog.Logger

	mu sync.Mutex
	// stale is set until the memory agrees with the journal: before the first
	// Load and after a failed Commit.
	stale bool
	pools []dhcppool.Pool
	// repooled is set until the blocks were compared with the pools.
	repooled bool
	// waiting are the refusals of every namespace that has any.
	waiting map[string]*refused
	// freed is set when something came back that a refused interface may wait
	// for, until a Sync has told.
	freed bool
	// said are the cluster addresses that sources gave to services, by namespace
	// and uid; saidBy counts who has one.
	said   map[string]map[string][]netip.Addr
	saidBy map[netip.Addr]int
	rounds uint64 // how many Syncs there were
	*memory
}

// New returns an Assigner that knows nothing yet. The functions for names in cfg
// must be set.
func New(cfg Config, store *coe.Store, journal Journal, log *slog.Logger) *Assigner {
	a := &Assigner{
		cfg: cfg.withDefaults(), store: store, journal: journal, log: log,
		stale: true, waiting: map[string]*refused{},
		said: map[string]map[string][]netip.Addr{}, saidBy: map[netip.Addr]int{},
	}
	a.memory = newMemory(a.cfg)
	return a
}

// Load reads the journal and fills the store with what it remembers. The error
// names the record that can't be read; nothing is changed then.
func (a *Assigner) Load(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.load(ctx)
}

// SetPools replaces the pools, which must be valid (dhcppool.Validate). Leases
// keep their addresses; what is chosen from now on follows the new pools. It
// returns the namespaces to Sync, sorted: those for which something may be
// chosen now, and those whose blocks have other DNS servers.
func (a *Assigner) SetPools(pools []dhcppool.Pool) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools, a.repooled = slices.Clone(pools), true
	_, served := a.alloc.Serving(coe.ServicePool)
	a.alloc.SetPools(a.pools)
	marked := map[string]bool{}
	if _, serves := a.alloc.Serving(coe.ServicePool); serves && !served {
		// A service with external addresses does well without one of the pool and
		// was not refused.
		for _, ns := range a.store.Namespaces() {
			marked[ns] = true
		}
	}
	for ns, r := range a.waiting {
		if r.any(healedByPools) {
			marked[ns] = true
		}
	}
	for _, b := range a.blocks {
		if !slices.Equal(a.dns(b.Block), b.DNS) {
			marked[b.namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(marked))
}

// dns are the DNS servers of a block: its pool's, or while that is gone those
// that it had.
func (a *Assigner) dns(b *coe.Block) []netip.Addr {
	p, found := a.alloc.Pool(b.Network, b.Subnet)
	if !found {
		return b.DNS
	}
	return p.DNS
}

// Sync brings the leases of the namespaces in accord with the store: it claims
// for what is new and, once the store is complete, releases what is gone.
//
// affected are namespaces (given ones too, where that is needed) for which more
// may be chosen now, or for which something was changed beside those given.
// again is when to Sync the given namespaces next, although nothing else is said
// of them: when what was released may be given again; 0 for no need.
// When the store becomes complete, every namespace that it lists must be synced.
//
// After an error nothing of what is affected is lost: the next Sync tells it.
func (a *Assigner) Sync(ctx context.Context, namespaces []string) (affected []string, again time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stale {
		if err := a.load(ctx); err != nil {
			return nil, 0, err
		}
	}
	r := a.newRound(namespaces)
	if err := r.run(ctx); err != nil {
		a.stale = true // the journal may hold what the store does not
		a.freed = true
		return nil, 0, err
	}
	return r.affected(), r.again(), nil
}
