package ipam_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var storyPools = [][]dhcppool.Pool{
	{specPool(), pool("services", "10.96.0.0/29", "", "", "")},
	{pool("default", "192.168.10.0/28", "", "", ""), pool("default", "fd00::/120", "", "", "")},
	{pool("192.168.33.12:default", "192.168.10.0/29", "", "", ""), pool("ns1", "192.168.10.64/26", "", "", "")},
	{pool("default", "192.168.10.4/30", "", "", ""), pool("services", "10.96.0.0/30", "", "", "")},
	{pool("192.168.33.12", "192.168.10.0/27", "", "", ""), pool("192.168.33.12", "fd00::/122", "", "", ""), pool("default", "192.168.10.32/28", "", "", "")},
	{},
}

// FuzzStory runs random stories. Pods of two origins are created, deleted, moved and
// changed, and some request addresses. Pools change, commits fail, and the bridge restarts.
// Blocks are for elans, then for nodes, and for elans again. The journal is lost, and the backend, which may be unreachable, is asked for the addresses
// in use. The test checks the laws after every Sync. At the end all pods must have converged,
// and after their deletion no record may be left.
func FuzzStory(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add([]byte("pods come and go and move, commits fail, and the bridge restarts"))
	f.Add([]byte("PODS COME AND GO AND MOVE, COMMITS FAIL, AND THE BRIDGE RESTARTS!"))
	f.Add([]byte("\f\xde\xfe\xf99000908x90"))                                                                 // a requested MAC address becomes free, and a restart
	f.Add([]byte("\x00\x05\x1c\x0a\x38\x0b\x54\x0c\x0b\x03\x0b\x07\x19\x05\x27\x09\x35\x0b\x43\x0d\x51\x0f")) // records are damaged
	f.Add([]byte("lose the journal; lose it again while the backend is away, and pods request addresses"))
	f.Add([]byte("\x00\x05\x1c\x0a\x38\x0b\x54\x0c\x0b\x03\x0b\x07\x19\x05\x27\x09\x35\x0b\x43\x0d\x51\x0f\x09\x01\x00\x03\x1c\x04\x09\x01\x0b\x03")) // the blocks change to nodes and back
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 400 {
			steps = steps[:400]
		}
		s := newStory(t, len(steps)%2 == 1)
		for i := 0; i+1 < len(steps); i += 2 {
			s.step(steps[i], steps[i+1])
		}
		s.end()
	})
}

type story struct {
	*world
	said     map[coe.Origin]map[string]*coe.Pod
	pods     map[string]*coe.Pod // as the store reports them
	services map[string]*coe.Service
	backend  backend
	// used has the last time at which the holder of an address had it.
	used map[spaceAddr]use
}

type spaceAddr struct {
	space string
	addr  netip.Addr
}

type use struct {
	by   coe.LeaseKey
	last time.Time
}

var errAway = errors.New("the backend is unreachable")

// backend is the backend of a story. It has the leases of the last moment at which the story was
// settled. It is unreachable for a number of questions.
type backend struct {
	rows []inuse.Interface
	away int
}

func (b *backend) inUse() ([]inuse.Interface, error) {
	if b.away > 0 {
		b.away--
		return nil, errAway
	}
	return b.rows, nil
}

func newStory(t *testing.T, isolated bool) *story {
	s := &story{
		world: &world{
			TB: t, journal: newJournal(), isolated: isolated, now: time.Unix(1000, 0), pools: storyPools[0],
			origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes},
		},
		said: map[coe.Origin]map[string]*coe.Pod{coe.RESTCONF: {}, coe.Kubernetes: {}},
		pods: map[string]*coe.Pod{}, services: map[string]*coe.Service{}, used: map[spaceAddr]use{},
	}
	s.inUse = s.backend.inUse
	s.journal.maxOps = 3 // a write then needs several transactions
	s.restart()
	s.complete()
	return s
}

func (s *story) step(what, x byte) {
	uid := fmt.Sprint("pod", x%6)
	origin := []coe.Origin{coe.RESTCONF, coe.Kubernetes}[what>>6&1]
	switch what % 14 {
	case 0, 1, 2, 3:
		s.say(origin, uid, madePod(uid, what/14, x))
	case 4:
		s.say(origin, uid, nil)
	case 5:
		s.putService(x)
	case 6:
		s.setPools(storyPools[int(x)%len(storyPools)]...)
	case 7:
		s.journal.failIn, s.journal.applied = int(x%4)+1, x%8 < 4
	case 8:
		s.now = s.now.Add(time.Duration(x) * time.Second / 4)
		if x >= 240 {
			s.setClock([]time.Duration{time.Hour, -time.Hour, -29 * time.Second, time.Second}[x&3])
		}
		s.mark(s.store.Namespaces()...)
	case 9:
		s.reboot(x&1 == 1 && !s.isolated)
	case 10:
		s.lose(x)
	case 11:
		s.hurt(what/14, x)
	default:
		s.settle()
	}
}

// madePod makes a pod from two bytes. They determine its node, if any, its namespace, its name,
// its MAC address and its interfaces.
func madePod(uid string, y, x byte) *coe.Pod {
	p := newPod(uid, []string{n1, n2}[y&1], in([]string{"default", "ns1"}[y>>1&1]))
	switch y >> 2 & 3 {
	case 2:
		p.Namespace = []string{longNamespace, shortNamespace}[y>>1&1]
	case 3:
		p.Name = "same"
	}
	if x>>6 == 3 {
		p.MAC = "02:00:00:00:00:01"
	}
	switch x >> 3 & 3 {
	case 1:
		p.Interfaces = []coe.PodInterface{{UID: uid}, {UID: uid + "-2"}}
	case 2:
		brought := []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 10, y % 20})}
		if x >= 128 {
			brought = append(brought, netip.AddrFrom16([16]byte{0: 0xfd, 15: y % 5}))
		}
		p.Interfaces = []coe.PodInterface{{UID: uid, Addresses: brought}}
	case 3:
		p.Interfaces = []coe.PodInterface{{UID: uid + "-2"}}
		p.NoNetwork = y == 16
		if y == 17 {
			p.HostIP = netip.Addr{}
		}
	}
	return p
}

// say reports a pod from an origin; nil deletes the pod.
func (s *story) say(origin coe.Origin, uid string, p *coe.Pod) {
	if p == nil {
		delete(s.said[origin], uid)
		s.store.Update(func(tx *state.Tx) { tx.DeletePod(origin, uid) })
	} else {
		s.said[origin][uid] = p
		s.store.Update(func(tx *state.Tx) { tx.PutPod(origin, p) })
	}
	delete(s.pods, uid)
	for _, o := range s.origins { // ascending precedence
		if p := s.said[o][uid]; p != nil {
			s.pods[uid] = p
		}
	}
}

func (s *story) putService(x byte) {
	svc := &coe.Service{UID: fmt.Sprint("svc", x%5), Namespace: []string{"default", "ns1"}[x>>3&1]}
	if x>>5 == 3 {
		svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, x % 8})}
	}
	s.services[svc.UID] = svc
	if x>>5 < 2 {
		delete(s.services, svc.UID)
	}
	s.store.Update(func(tx *state.Tx) {
		if s.services[svc.UID] == nil {
			tx.DeleteService(coe.RESTCONF, svc.UID)
		} else {
			tx.PutService(coe.RESTCONF, svc)
		}
	})
}

// reboot restarts the bridge. It reads the journal, and then the origins report all pods again. With other, nodes have the
// blocks if elans had them, and the other way round. TestEqualMACsAtChange tests the pods that lose their lease then.
func (s *story) reboot(other bool) {
	s.settle()
	if other && (s.nodeBlocks || !s.equalMACs()) {
		s.nodeBlocks = !s.nodeBlocks
	}
	before := s.chosen()
	s.restart()
	require.Equal(s, before, s.chosen())
	s.repeat()
	after := s.chosen()
	for record, fact := range before {
		if l, is := fact.(*coe.Lease); is && l.Released == 0 && s.serves(l.Key()) {
			require.Equal(s, l, after[record], "sticky")
		}
	}
}

// repeat reports all pods to a new store, one origin after the other, with Syncs in between.
func (s *story) repeat() {
	for _, o := range s.origins {
		s.store.Update(func(tx *state.Tx) {
			for _, p := range s.said[o] {
				tx.PutPod(o, p)
			}
			for _, svc := range s.services {
				tx.PutService(coe.RESTCONF, svc)
			}
		})
		s.mark("default")
		_ = s.trySync() // so some namespaces are synced before the store is complete
		s.laws()
	}
	s.complete()
	s.mark(s.store.Namespaces()...)
	s.settle()
}

// lose restarts the bridge with an empty journal. Existing pods keep the addresses that they have
// in the backend, even if the pools are set late and the backend is unreachable for a while.
func (s *story) lose(x byte) {
	s.settle()
	before, pools := s.living(), s.pools
	had := map[spaceAddr]bool{}
	for _, l := range before {
		for _, a := range l.Addresses {
			had[spaceAddr{s.space(l.Namespace), a.Address}] = true
		}
	}
	maps.DeleteFunc(s.used, func(at spaceAddr, _ use) bool { return !had[at] }) // the rests are lost with the journal
	s.backend = backend{s.inBackend(), int(x & 3)}
	if x>>2&1 == 1 {
		s.pools = nil
	}
	s.loseJournal()
	if x>>3&1 == 1 {
		s.store.Update(func(tx *state.Tx) { tx.SetComplete(coe.RESTCONF) })
		s.setPools(pools...)
	}
	s.repeat()
	s.setPools(pools...)
	s.settle()
	after := s.living()
	for key, want := range before {
		got := after[key]
		got.DeniedMAC, got.DeniedBy, want.DeniedMAC, want.DeniedBy = "", "", "", ""
		if !s.serves(key) {
			continue
		}
		if s.pods[key.PodUID].MAC != "" { // it may have become free meanwhile
			got.MAC, want.MAC = "", ""
		}
		require.Equal(s, want, got, "leases in use stay")
	}
}

// hurt restarts the bridge with a damaged record. Existing pods keep their leases.
func (s *story) hurt(what, x byte) {
	s.settle()
	before := s.living()
	had := map[spaceAddr]bool{}
	for _, l := range before {
		for _, a := range l.Addresses {
			had[spaceAddr{s.space(l.Namespace), a.Address}] = true
		}
	}
	maps.DeleteFunc(s.used, func(at spaceAddr, _ use) bool { return !had[at] }) // the damaged record may be a rest
	s.backend = backend{s.inBackend(), int(x & 1)}
	keys := sortedKeys(s.journal.records)
	if len(keys) == 0 {
		return
	}
	names := sortedKeys(damages)
	name, key := names[int(what)%len(names)], keys[int(x)%len(keys)]
	damages[name](s.journal.records, key, keys[(int(x)+1)%len(keys)])
	s.confirmed = keysOf(s.backend.rows)
	s.restart()
	s.repeat()
	s.confirmed = nil
	after := s.living()
	for lease, want := range before {
		got := after[lease]
		got.DeniedMAC, got.DeniedBy, want.DeniedMAC, want.DeniedBy = "", "", "", ""
		if !s.serves(lease) {
			continue
		}
		if s.pods[lease.PodUID].MAC != "" {
			got.MAC, want.MAC = "", ""
		}
		require.Equal(s, want, got, "%s is %s", key, name)
	}
	require.Empty(s, s.damaged())
	s.restart()
	require.Empty(s, s.damaged(), "%s was %s", key, name)
	s.repeat()
}

// chosen returns all facts of the store.
func (s *world) chosen() map[string]any {
	facts := map[string]any{}
	for _, ns := range s.store.Namespaces() {
		v := s.store.View(ns)
		for _, l := range v.Leases {
			facts[fmt.Sprint(ns, l.Key())] = l
		}
		for _, b := range v.Blocks {
			facts[fmt.Sprint(ns, b.ELAN, b.Prefix)] = b
		}
		for name, e := range v.ELANs {
			facts[fmt.Sprint(ns, name)] = e
		}
		for uid, f := range v.ServiceFacts {
			facts[fmt.Sprint(ns, uid)] = f
		}
		if v.VPN != nil {
			facts["vpn "+ns] = v.VPN
		}
	}
	return facts
}

// equalMACs reports whether two leases of a node have one MAC address.
func (s *world) equalMACs() bool {
	seen := map[string]bool{}
	for _, ns := range s.store.Namespaces() {
		for _, l := range s.store.View(ns).Leases {
			if seen[l.Node.String()+l.MAC] {
				return true
			}
			seen[l.Node.String()+l.MAC] = true
		}
	}
	return false
}

// serves reports whether a pod has a living lease.
func (s *story) serves(key coe.LeaseKey) bool {
	p := s.pods[key.PodUID]
	if p == nil || p.NoNetwork {
		return false
	}
	l := s.store.View(p.Namespace).Leases.Get(key)
	return l != nil && l.Released == 0
}

// settle syncs until no namespace is marked. It continues after failed commits.
func (s *story) settle() {
	for range 30 {
		if len(s.marked) == 0 {
			break
		}
		if err := s.trySync(); err != nil && !errors.Is(err, errAway) {
			require.ErrorIs(s, err, errJournal)
		}
		s.laws()
	}
	require.Empty(s, s.marked, "namespaces stay marked")
	s.backend.rows = s.inBackend()
}

func (s *story) space(ns string) string {
	if s.isolated {
		return ns
	}
	return ""
}

func (s *story) laws() {
	require.False(s, s.nodeBlocks && s.equalMACs(), "two interfaces of a node have one MAC address")
	held := map[spaceAddr]coe.LeaseKey{}
	names, macs := map[string]bool{}, map[string]bool{}
	vpns, rds := map[string]string{}, map[uint32]string{}
	hurt := len(s.damaged()) > 0
	carved := map[spaceAddr]string{} // the holders of all addresses of blocks
	for _, ns := range s.store.Namespaces() {
		v := s.store.View(ns)
		if v.VPN != nil {
			require.NotContains(s, vpns, v.VPN.Name, "two namespaces have one vpn-instance")
			require.NotContains(s, rds, v.VPN.RD, "two namespaces have one route distinguisher")
			vpns[v.VPN.Name], rds[v.VPN.RD] = ns, ns
		}
		blocks := map[string]*coe.Block{}
		for _, b := range v.Blocks {
			blocks[b.ELAN+" "+b.Prefix.String()] = b
			holder, prefix := b.ELAN, b.Prefix
			if b.Shared.IsValid() {
				node, _, err := netvirt.ParseELANName(b.ELAN)
				require.NoError(s, err)
				holder, prefix = node.String(), b.Shared
			}
			if b.Network == "" {
				continue // of a gateway, which several may have
			}
			for a := prefix.Addr(); prefix.Contains(a) && a.Is4(); a = a.Next() {
				at := spaceAddr{s.space(ns), a}
				require.Contains(s, []string{"", holder}, carved[at], "%v is in two blocks", a)
				carved[at] = holder
			}
		}
		for _, l := range v.Leases {
			key := l.Key()
			elan := l.Node.String() + ":" + ns
			require.True(s, hurt || v.VPN != nil && v.ELANs[elan] != nil, "the instances of %v", key)
			require.NotEmpty(s, l.Addresses)
			for _, a := range l.Addresses {
				at := spaceAddr{s.space(ns), a.Address}
				require.NotContains(s, held, at, "an address is held twice, by %v", key)
				held[at] = key
				b := blocks[elan+" "+a.Network.String()]
				require.True(s, hurt || b != nil, "the block of %v", a)
				require.True(s, b == nil || b.Gateway == a.Gateway)
				require.NotEqual(s, a.Address, a.Gateway)
				s.rested(at, key, l.Released == 0)
			}
			if l.Released == 0 {
				require.False(s, names[l.Name], "two interfaces are named %s", l.Name)
				names[l.Name] = true
			}
			require.False(s, macs[elan+l.MAC], "two interfaces of %s have MAC address %s", elan, l.MAC)
			macs[elan+l.MAC] = true
		}
		for uid, f := range v.ServiceFacts {
			at := spaceAddr{"", f.Address}
			require.NotContains(s, held, at)
			held[at] = coe.LeaseKey{PodUID: uid}
			s.rested(at, held[at], f.Released == 0)
		}
	}
}

// rested checks that an address has rested before it gets a new owner.
func (s *story) rested(at spaceAddr, key coe.LeaseKey, living bool) {
	if u, before := s.used[at]; before && u.by != key {
		require.GreaterOrEqual(s, s.now.Add(-s.skew).Sub(u.last), 30*time.Second, "%v goes from %v to %v", at, u.by, key)
	}
	if living {
		s.used[at] = use{key, s.now.Add(-s.skew)}
	}
}

// end checks that every pod is served or refused, and that the deletion of all pods frees every
// address.
func (s *story) end() {
	s.journal.failIn, s.backend.away = 0, 0
	for range 3 {
		s.wait(31 * time.Second)
	}
	s.laws()
	for _, p := range s.pods {
		if p.NoNetwork || !p.HostIP.IsValid() {
			continue
		}
		v := s.store.View(p.Namespace)
		for _, i := range p.AllInterfaces() {
			key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
			l, refused := v.Leases.Get(key), v.Refusals[key].Reason != ""
			served := l != nil && l.Released == 0 && l.Node == p.HostIP && l.Pod == p.Name
			require.NotEqual(s, served, refused, "%v is served or refused: %v %v", key, l, v.Refusals[key])
		}
	}
	commits := s.journal.commits
	s.mark(s.store.Namespaces()...)
	s.sync()
	require.Equal(s, commits, s.journal.commits, "a Sync without changes writes nothing")

	s.store.Update(func(tx *state.Tx) {
		for uid := range s.pods {
			tx.DeletePod(coe.RESTCONF, uid)
			tx.DeletePod(coe.Kubernetes, uid)
		}
		for uid := range s.services {
			tx.DeleteService(coe.RESTCONF, uid)
		}
	})
	s.sync()
	s.wait(31 * time.Second)
	require.Empty(s, s.journal.records)
	require.Empty(s, s.store.Namespaces())
}
