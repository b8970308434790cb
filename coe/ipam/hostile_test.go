package ipam_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var hostileNodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}

// FuzzHostile creates states of a cluster as an attacker would: all objects of all kinds request
// the same few names and addresses. The objects change their requests, and the bridge restarts.
// No address and no name may ever have two owners.
func FuzzHostile(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		h := newHostile(t, seed)
		for range 6 {
			for range 12 {
				h.say()
			}
			h.mark(h.store.Namespaces()...)
			h.sync()
			h.laws()
		}
		h.restart()
		h.complete()
		h.repeat()
		h.mark(h.store.Namespaces()...)
		h.sync()
		h.laws()
	})
}

type hostile struct {
	*world
	*rand.Rand
	said map[string]func(*state.Tx) // the last report of each object
}

func newHostile(t *testing.T, seed uint64) *hostile {
	w := &world{
		TB: t, journal: newJournal(), vips: newJournal(), pools: storyPools[0], now: time.Unix(1000, 0),
		origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes}, nodes: hostileNodes,
	}
	w.restart()
	w.complete()
	return &hostile{w, rand.New(rand.NewPCG(seed, 0)), map[string]func(*state.Tx){}}
}

// address returns an address that several objects request. It belongs to nodes, to the node
// network, to services, to an external range, to a pool, or to none of these.
func (h *hostile) address() netip.Addr {
	all := []string{n1, n2, "100.96.0.1", "100.96.0.4", "10.96.0.1", "10.96.0.2", "192.0.2.1", "192.0.2.2", "192.168.10.2", "192.168.10.3", "192.168.10.10", "8.8.8.8", "127.0.0.1"}
	return netip.MustParseAddr(all[h.IntN(len(all))])
}

func (h *hostile) namespace() string {
	return []string{"default", "ns1", longNamespace, shortNamespace}[h.IntN(4)]
}

// say changes the report of one object.
func (h *hostile) say() {
	origin := []coe.Origin{coe.RESTCONF, coe.Kubernetes}[h.IntN(2)]
	n := h.IntN(5)
	gone := h.IntN(5) == 0
	uid := fmt.Sprint("object-", n)
	var key string
	var change func(*state.Tx)
	switch h.IntN(3) {
	case 0:
		p := newPod(uid, []string{n1, n2}[h.IntN(2)], in(h.namespace()))
		p.Name = []string{"same", uid}[h.IntN(2)]
		if h.IntN(2) == 0 {
			p.Interfaces = []coe.PodInterface{{UID: uid, Addresses: []netip.Addr{h.address()}}}
		}
		if h.IntN(3) == 0 {
			p.NodeName = fmt.Sprint("node-", h.IntN(3))
		}
		key, change = "pod", func(tx *state.Tx) {
			if tx.DeletePod(origin, uid); !gone {
				tx.PutPod(origin, p)
			}
		}
	case 1:
		s := &coe.Service{UID: uid, Name: fmt.Sprint("service-", h.IntN(2)), Namespace: h.namespace(), Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}}
		if h.IntN(2) == 0 {
			s.ClusterIPs = []netip.Addr{h.address()}
		}
		if h.IntN(2) == 0 {
			s.ExternalIPs = []netip.Addr{h.address()}
			s.LoadBalancerIPs = s.ExternalIPs[:h.IntN(2)]
		}
		key, change = "service", func(tx *state.Tx) {
			if tx.DeleteService(origin, uid); !gone {
				tx.PutService(origin, s)
			}
		}
	default:
		node := &coe.Node{UID: uid, HostName: fmt.Sprint("node-", h.IntN(3)), InternalIP: h.address()}
		key, change = "node", func(tx *state.Tx) {
			if tx.DeleteNode(origin, uid); !gone {
				tx.PutNode(origin, node)
			}
		}
	}
	h.said[fmt.Sprint(key, n, origin)] = change
	h.store.Update(change)
}

// repeat reports every object again, in random order.
func (h *hostile) repeat() {
	for _, change := range h.said {
		h.store.Update(change)
	}
}

// laws checks that every address and name has one owner, and that a refused pod has no
// interface.
func (h *hostile) laws() {
	addresses, names, vpns := map[netip.Addr]string{}, map[string]string{}, map[string]string{}
	elans, vnis := map[string]string{}, map[uint32]string{}
	rds := map[uint32]string{}
	vips := map[coe.VIP]string{}
	clusters := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), hostileNodes.Prefix}
	for _, ns := range h.store.Namespaces() {
		v := h.store.View(ns)
		if v.VPN != nil {
			only(h, vpns, v.VPN.Name, ns)
			only(h, rds, v.VPN.RD, ns)
		}
		for _, e := range v.ELANs {
			only(h, elans, e.Name, ns)
			only(h, vnis, e.VNI, e.Name)
		}
		for _, l := range v.Leases {
			for _, a := range l.Addresses {
				only(h, addresses, a.Address, fmt.Sprint(l.Key()))
				for _, p := range clusters {
					require.False(h, p.Contains(a.Address), "%s has %s of %s", l.Name, a.Address, p)
				}
			}
			if l.Released == 0 {
				only(h, names, l.Name, fmt.Sprint(l.Key()))
			}
		}
		for vip := range v.VIPs {
			only(h, vips, vip, ns)
		}
		h.rows(v)
	}
	for vip, ns := range vips {
		require.NotContains(h, addresses, vip.Address, "a service of %s has the address of a pod", ns)
		if vip.Port != 0 {
			require.NotContains(h, vips, coe.VIP{Address: vip.Address}, "%s has a port of a cluster address", ns)
		}
	}
}

// rows checks that a pod is not mapped if it has a problem that excludes it from the network.
func (h *hostile) rows(v coe.View) {
	model, problems := mapping.Map(v, mapping.Settings{Isolation: mapping.IsolationNone})
	refused := map[string]coe.Problem{}
	for _, p := range problems {
		switch p.Reason {
		case coe.AddressTaken, coe.AddressInvalid, coe.NoNode:
			if p.Kind == "pod" {
				refused[strings.SplitN(p.UID, "/", 2)[0]] = p
			}
		}
	}
	for _, o := range model {
		if i, ok := o.(*netvirt.Interface); ok {
			require.NotContains(h, refused, i.PodUID, "it has interface %s", i.Name)
		}
	}
}

// only checks that a thing has only one owner.
func only[K comparable](t require.TestingT, owners map[K]string, what K, owner string) {
	had, found := owners[what]
	require.False(t, found && had != owner, "%v is of %s and of %s", what, had, owner)
	owners[what] = owner
}

// TestNodeWithAClusterAddress: a captured node reports the cluster address of a service before
// the service exists. The service gets the address, also after it is deleted and created again.
func TestNodeWithAClusterAddress(t *testing.T) {
	for name, node := range map[string]*coe.Node{
		"internal": {UID: "n", HostName: "captured", InternalIP: addr("10.96.0.10")},
		"external": {UID: "n", HostName: "captured", InternalIP: addr("10.0.0.5"), ExternalIP: addr("10.96.0.10")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVIPWorld(t)
			w.store.Update(func(tx *state.Tx) { tx.PutNode(coe.Kubernetes, node) })
			w.sync()
			for _, uid := range []string{"dns", "again"} {
				w.putServices(newService("kube-system", uid, at("10.96.0.10")))
				require.Equal(t, []string{"10.96.0.10 0"}, w.holds("kube-system"))
				require.Empty(t, w.whyNot("kube-system", uid))
				require.Contains(t, w.store.Cluster().AddressProblems[0].Message, "the range of cluster addresses")
				w.removeServices(uid)
				require.Empty(t, w.holds("kube-system"))
			}
		})
	}
}

// TestManyExternalClaims: one tenant claims every TCP port of an external address. The
// claims are not compared with each other, which would take minutes here and at each load.
func TestManyExternalClaims(t *testing.T) {
	w := newVIPWorld(t)
	var all []*coe.Service
	for first := 0; first < math.MaxUint16; first += coe.MaxServicePorts {
		s := newService("a", fmt.Sprint("s", first), outside("192.0.2.1"))
		s.Ports = nil
		for p := first + 1; p <= min(first+coe.MaxServicePorts, math.MaxUint16); p++ {
			s.Ports = append(s.Ports, coe.ServicePort{Protocol: "tcp", Port: uint16(p)})
		}
		all = append(all, s)
	}
	w.putServices(append(all, newService("b", "late", outside("192.0.2.1")))...)
	w.restart()
	require.Len(t, w.holds("a"), math.MaxUint16)
	require.Empty(t, w.holds("b"))
}

// TestNamespaceNamedServices: a namespace has the name of the pool of services. Its pods get no
// addresses of that pool.
func TestNamespaceNamedServices(t *testing.T) {
	w := newWorld(t, pool("services", "10.97.0.0/24", "", "", ""), pool("default", "10.11.0.0/24", "", "", ""))
	p := newPod("p", "10.0.0.9", in("services"))
	w.put(p)
	w.sync()
	require.Equal(t, "10.11.0.2", w.address(p))
}
