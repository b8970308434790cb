package ipam_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// world has a store, a journal and an assigner. Its clock changes only when a test sets it.
type world struct {
	testing.TB
	store    *state.Store
	journal  *memoryJournal
	vips     *memoryJournal // of claims of service addresses; nil if they are not recorded
	assigner *ipam.Assigner
	pools    []dhcppool.Pool
	isolated bool
	// nodeBlocks: nodes have the blocks.
	nodeBlocks bool
	physical   physical.Networks
	now        time.Time
	skew       time.Duration // the sum of all settings of the clock
	// marked are the changed and the affected namespaces, which wait for a Sync.
	marked map[string]bool
	again  time.Duration
	vnis   uint32 // the number of VNIs; 0 means the default
	// origins are the origins of the store; default: only RESTCONF.
	origins []coe.Origin
	// nodes is the network of management ports; zero for none.
	nodes        nodenet.Range
	noMasquerade []netip.Prefix
	// nodePorts: nodes have a port in each of their elan-instances.
	nodePorts bool
	// inUse returns the interfaces in the backend; nil for a world without a backend.
	inUse    func() ([]inuse.Interface, error)
	portName func(name, uid string) string
	repool   func()
	forget   func(netip.Addr)
	// confirmed are the interfaces that the backend has confirmed.
	confirmed []coe.LeaseKey
	// ports are the management ports in the backend. They need an inUse.
	ports []inuse.Node
}

func newWorld(t testing.TB, pools ...dhcppool.Pool) *world {
	w := &world{TB: t, journal: newJournal(), pools: pools, now: time.Unix(1000, 0)}
	w.restart()
	w.complete()
	return w
}

// restart creates a new store and a new assigner with the same journal. The store does not have
// the earlier reports.
func (w *world) restart() {
	w.marked = map[string]bool{}
	if w.origins == nil {
		w.origins = []coe.Origin{coe.RESTCONF}
	}
	w.store = state.NewStore(func(c state.Changed) {
		w.mark(c.Namespaces...)
		if c.Cluster {
			w.mark("") // as the bridge does
		}
	}, w.origins...)
	w.assigner = w.newAssigner()
	require.NoError(w, w.assigner.Load(w.Context()))
	w.setPools(w.pools...)
}

func (w *world) newAssigner() *ipam.Assigner {
	cfg := ipam.Config{
		Isolated: w.isolated, NodeBlocks: w.nodeBlocks, VNIFrom: min(w.vnis, 1), VNITo: w.vnis,
		Nodes: ranges.NodesConfig{
			Network: w.nodes, Ports: w.nodePorts, Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
			NoMasquerade: w.noMasquerade, External: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, NodePorts: coe.PortRange{First: 30000, Last: 32767},
			Physical: w.physical,
		},
		Now:     func() time.Time { return w.now },
		Elapsed: func() time.Duration { return w.now.Sub(time.Unix(0, 0)) - w.skew },
	}
	if w.vips != nil {
		cfg.VIPs = w.vips
	}
	cfg.PortName = w.portName
	cfg.Repool, cfg.Forget = w.repool, w.forget
	cfg.Confirmed = func(context.Context) ([]coe.LeaseKey, error) { return w.confirmed, nil }
	if w.inUse != nil {
		cfg.InUse = func(context.Context) ([]inuse.Interface, []inuse.Node, error) {
			interfaces, err := w.inUse()
			return interfaces, w.ports, err
		}
	}
	return ipam.New(cfg, w.store, w.journal, slog.New(slog.DiscardHandler))
}

// loseJournal restarts the world with an empty journal.
func (w *world) loseJournal() {
	w.journal.records = map[string][]byte{}
	w.restart()
}

func (w *world) complete() {
	w.store.Update(func(tx *state.Tx) {
		for _, o := range w.origins {
			tx.SetComplete(o)
		}
	})
}

func (w *world) mark(namespaces ...string) {
	for _, ns := range namespaces {
		w.marked[ns] = true
	}
}

func (w *world) setPools(pools ...dhcppool.Pool) {
	w.pools = pools
	require.NoError(w, dhcppool.Validate(pools, !w.isolated))
	w.mark(w.assigner.SetPools(pools)...)
}

// inBackend returns the interfaces that a backend would have for the living leases in the store.
func (w *world) inBackend() (all []inuse.Interface) {
	for _, ns := range w.store.Namespaces() {
		v := w.store.View(ns)
		for _, l := range v.Leases {
			if l.Released == 0 {
				elan := netvirt.ELANName(l.Node, ns)
				u := inuse.Interface{
					PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Namespace: l.Namespace, Pod: l.Pod,
					Primary: l.Primary, Node: l.Node, MAC: l.MAC, Addresses: l.Addresses,
					VNI: v.ELANs[elan].VNI, VPN: v.VPN.Name, RD: v.VPN.RD, Shared: map[netip.Addr]netip.Prefix{},
				}
				for _, b := range v.Blocks {
					if w.nodeBlocks && b.ELAN == elan && b.Shared.IsValid() {
						u.Shared[b.Gateway] = b.Shared
					}
				}
				all = append(all, u)
			}
		}
	}
	return all
}

// damaged returns the records that are set aside.
func (w *world) damaged() (records []string) {
	for _, p := range w.store.Cluster().Damaged {
		require.Equal(w, coe.RecordDamaged, p.Reason)
		records = append(records, p.UID)
	}
	return records
}

func (w *world) put(pods ...*coe.Pod) {
	w.store.Update(func(tx *state.Tx) {
		for _, p := range pods {
			tx.PutPod(coe.RESTCONF, p)
		}
	})
}

func (w *world) remove(pods ...*coe.Pod) {
	w.store.Update(func(tx *state.Tx) {
		for _, p := range pods {
			tx.DeletePod(coe.RESTCONF, p.UID)
		}
	})
}

// trySync syncs the marked namespaces once.
func (w *world) trySync() error {
	namespaces := sorted(w.marked)
	namespaces = slices.DeleteFunc(namespaces, func(ns string) bool { return ns == "" })
	affected, again, err := w.assigner.Sync(w.Context(), namespaces)
	if err != nil {
		return err
	}
	w.marked, w.again = map[string]bool{}, again
	w.mark(affected...)
	return nil
}

// sync syncs until no namespace is marked.
func (w *world) sync() {
	w.Helper()
	for range 20 {
		if len(w.marked) == 0 {
			return
		}
		require.NoError(w, w.trySync())
	}
	require.Fail(w, "namespaces stay marked", "%v", w.marked)
}

// wait advances the clock and syncs every namespace, as a caller of Sync does after again.
func (w *world) wait(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	w.mark(w.store.Namespaces()...)
	w.sync()
}

func (w *world) lease(p *coe.Pod) *coe.Lease {
	w.Helper()
	l := w.leases(p)
	require.Len(w, l, 1, "refusals: %v", w.store.View(p.Namespace).Refusals)
	return l[0]
}

// leases returns the living leases of a pod, in the order of its interfaces.
func (w *world) leases(p *coe.Pod) []*coe.Lease {
	v := w.store.View(p.Namespace)
	var leases []*coe.Lease
	for _, i := range p.AllInterfaces() {
		if l := v.Leases.Get(coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}); l != nil && l.Released == 0 {
			leases = append(leases, l)
		}
	}
	return leases
}

func (w *world) address(p *coe.Pod) string {
	w.Helper()
	return w.lease(p).Addresses[0].Address.String()
}

func (w *world) refusal(p *coe.Pod) coe.Refusal {
	return w.store.View(p.Namespace).Refusals[coe.LeaseKey{PodUID: p.UID, InterfaceUID: p.AllInterfaces()[0].UID}]
}

func pool(network, subnet, from, to, gateway string) dhcppool.Pool {
	return dhcppool.Pool{Network: network, Subnet: netip.MustParsePrefix(subnet), From: addr(from), To: addr(to), Gateway: addr(gateway)}
}

func specPool() dhcppool.Pool {
	return pool("default", "192.168.10.0/24", "192.168.10.3", "192.168.10.50", "192.168.10.2")
}

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// newPod returns a pod in namespace "default" on a node. Its UID is also its name.
func newPod(uid, node string, change ...func(*coe.Pod)) *coe.Pod {
	p := &coe.Pod{UID: uid, Name: uid, Namespace: coe.DefaultNamespace, HostIP: addr(node)}
	for _, c := range change {
		c(p)
	}
	return p
}

func in(ns string) func(*coe.Pod)      { return func(p *coe.Pod) { p.Namespace = ns } }
func named(name string) func(*coe.Pod) { return func(p *coe.Pod) { p.Name = name } }

// wanting adds an interface to a pod that requests addresses. It skips empty addresses.
func wanting(addrs ...string) func(*coe.Pod) {
	return func(p *coe.Pod) {
		i := coe.PodInterface{UID: p.UID + "-if"}
		for _, a := range addrs {
			if a != "" {
				i.Addresses = append(i.Addresses, addr(a))
			}
		}
		p.Interfaces = []coe.PodInterface{i}
	}
}
func withMAC(mac string) func(*coe.Pod) { return func(p *coe.Pod) { p.MAC = mac } }

func sorted(set map[string]bool) []string { return sortedKeys(set) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func manyPods(n, nodes, namespaces int) []*coe.Pod {
	pods := make([]*coe.Pod, n)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("00000000-0000-4000-8000-%012d", i), fmt.Sprintf("10.100.0.%d", i%nodes+1), in(fmt.Sprint("ns", i%namespaces)))
	}
	return pods
}
