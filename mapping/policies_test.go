package mapping_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
)

// FuzzPolicies changes a small cluster at random. After each change, the scopes that the Store
// marks are mapped again by a Mapper. The result must be that of mapping everything, and allow
// exactly the connections that mapping/policy allows.
func FuzzPolicies(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newPolicyWorld(t, seed)
		for range 8 {
			w.change()
			w.requireIncremental()
			w.requireJudgement(60)
		}
		w.requireAddition(60)
		w.requireNoOrder()
		w.clearPolicies()
		w.clearProfiles()
		w.requireIncremental()
		for k := range w.model() {
			if w.separates() {
				break
			}
			require.NotContains(t, []netvirt.Kind{netvirt.KindACL, netvirt.KindACE, netvirt.KindRemoteGroup, netvirt.KindInterfaceACL}, k.Kind, "no policy is left")
		}
	})
}

// policyWorld is a small cluster with policies in a Store, and its model.
type policyWorld struct {
	policytest.Generator
	t        *testing.T
	settings mapping.Settings
	store    *state.Store
	mapper   *mapping.Mapper
	marked   map[netvirt.Scope]bool
	mapped   map[netvirt.Scope]netvirt.Parts
	pods     []*policyPod
	policies []*coe.PolicySpec
	labels   map[string]coe.Labels // of namespaces
	born     int
}

// policyPod is a pod of a policyWorld.
type policyPod struct {
	uid, namespace string
	host, finished bool
	node, slot     int // slot determines the addresses
	families       int // 0: both, 1: IPv4, 2: IPv6, 3: none yet
	labels         coe.Labels
	ports          []coe.ContainerPort
}

var policyNamespaces = []string{"shop", "bank", "ops"}

const policyNodes = 3

// nodeNetwork has the addresses of management ports.
var nodeNetwork = nodenet.Range{Prefix: netip.MustParsePrefix("10.0.0.64/26")}

// address4 and address6 are addresses of nodes (from 0), pods (from 8) and others (from 24).
func address4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
func address6(n int) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)}) }

func newPolicyWorld(t *testing.T, seed uint64) *policyWorld {
	var addresses []netip.Addr
	for n := range 32 {
		addresses = append(addresses, address4(n), address6(n))
	}
	for number := range uint32(policyNodes + 1) {
		addresses = append(addresses, nodeNetwork.Address(number), nodeNetwork.ServiceAddress(number))
	}
	w := &policyWorld{
		Generator: policytest.New(seed, addresses...), t: t,
		settings: mapping.Settings{Isolation: mapping.IsolationNone},
		marked:   map[netvirt.Scope]bool{netvirt.Cluster: true}, mapped: map[netvirt.Scope]netvirt.Parts{}, labels: map[string]coe.Labels{},
	}
	switch w.IntN(6) {
	case 0, 1:
		w.settings.Isolation = mapping.IsolationNamespace
	case 2, 3:
		w.settings.Isolation = mapping.IsolationACLs
	}
	if w.settings.Isolation == mapping.IsolationNone && w.One(2) {
		w.settings.NodePorts = coe.PortRange{First: 80, Last: 81}
	}
	if w.settings.Isolation == mapping.IsolationNone && w.One(2) {
		w.settings.HostPorts = []coe.PortRange{{First: 82, Last: 82}, {First: 84, Last: 84}}
	}
	w.store = state.NewStore(func(c state.Changed) {
		for _, ns := range c.Namespaces {
			w.marked[netvirt.Scope(ns)] = true
		}
		w.marked[netvirt.Cluster] = w.marked[netvirt.Cluster] || c.Cluster || c.Blocks && w.separates()
	}, coe.Kubernetes)
	w.mapper = mapping.NewMapper(w.store, w.settings)
	w.store.Update(w.begin)
	for range 3 + w.IntN(6) {
		w.addPod()
	}
	for range w.IntN(9) {
		w.addPolicy()
	}
	return w
}

// begin creates nodes, namespaces and what is chosen for them.
func (w *policyWorld) begin(tx *state.Tx) {
	tx.SetComplete(coe.Kubernetes)
	tx.SetNetworks(&coe.Networks{Nodes: nodeNetwork})
	for n := range policyNodes {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: fmt.Sprint("n", n), HostName: fmt.Sprint("n", n), InternalIP: address4(n), ExternalIP: address6(n)})
		tx.PutNodeFact(&coe.NodeFact{Node: address4(n), Number: uint32(n + 1)})
		for _, ns := range policyNamespaces {
			elan := netvirt.ELANName(address4(n), ns)
			tx.PutELAN(ns, &coe.ELANFact{Name: elan, VNI: 70000})
			for _, prefix := range podPrefixes {
				tx.PutBlock(ns, &coe.Block{ELAN: elan, Prefix: prefix, Gateway: prefix.Addr().Next()})
			}
		}
	}
	for i, ns := range policyNamespaces {
		tx.PutVPN(&coe.VPNFact{Name: ns, Namespace: ns, RD: uint32(i + 2)})
		w.relabelNamespace(tx, ns)
	}
}

var podPrefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/27"), netip.MustParsePrefix("fd00::/64")}

func (w *policyWorld) relabelNamespace(tx *state.Tx, name string) {
	w.labels[name] = w.someLabels(6)
	tx.PutNamespace(coe.Kubernetes, &coe.Namespace{UID: name, Name: name, Labels: w.labels[name]})
}

// change changes one thing.
func (w *policyWorld) change() {
	switch w.IntN(9) {
	case 0:
		w.addPod()
	case 1:
		w.removePod()
	case 2, 3, 4:
		w.changePod()
	case 5, 6:
		w.addPolicy()
	case 7:
		if len(w.policies) > 0 {
			n := w.IntN(len(w.policies))
			w.deletePolicy(w.policies[n])
			w.policies = slices.Delete(w.policies, n, n+1)
		}
	case 8:
		w.store.Update(func(tx *state.Tx) { w.relabelNamespace(tx, policytest.Pick(w.Generator, policyNamespaces...)) })
	}
}

func (w *policyWorld) addPod() {
	w.born++
	p := &policyPod{
		uid: fmt.Sprintf("pod%02d", w.born), namespace: w.Namespace(), node: w.IntN(policyNodes), host: w.One(8), families: w.IntN(4),
		labels: w.someLabels(3), ports: w.ports(),
	}
	if p.slot = w.freeSlot(p); p.slot < 16 {
		w.pods = append(w.pods, p)
		w.put(p)
	}
}

// someLabels returns labels, and once in a number of calls with a security profile.
func (w *policyWorld) someLabels(in int) coe.Labels {
	labels := coe.NewLabels(w.Labels())
	if w.One(in) {
		labels = labels.WithProfiles(w.ProfileName())
	}
	return labels
}

func (w *policyWorld) ports() []coe.ContainerPort {
	return policytest.Some(w.Generator, 4, func() coe.ContainerPort {
		return coe.ContainerPort{Name: w.PortName(), Protocol: protocol(w.Protocol()), Port: w.Number()}
	})
}

func protocol(p corev1.Protocol) string { return strings.ToLower(string(p)) }

// freeSlot returns a slot that no other pod has. If namespaces are isolated, pods of different
// namespaces have the same slots.
func (w *policyWorld) freeSlot(p *policyPod) int {
	slot := 0
	for slices.ContainsFunc(w.pods, func(o *policyPod) bool {
		return o.slot == slot && (o.namespace == p.namespace || !w.settings.Isolated())
	}) {
		slot++
	}
	return slot
}

// addresses returns the pod's addresses.
func (p *policyPod) addresses() []netip.Addr {
	v4, v6 := address4(8+p.slot), address6(8+p.slot)
	return [][]netip.Addr{{v4, v6}, {v4}, {v6}, nil}[p.families]
}

// put puts a pod into the Store, with its lease.
func (w *policyWorld) put(p *policyPod) {
	pod := &coe.Pod{
		UID: p.uid, Name: p.uid, Namespace: p.namespace, NodeName: fmt.Sprint("n", p.node), HostIP: address4(p.node), NoNetwork: p.host || p.finished,
	}
	lease := &coe.Lease{
		PodUID: p.uid, InterfaceUID: p.uid, Namespace: p.namespace, Pod: p.uid, Name: netvirt.InterfaceName(p.namespace, p.uid, "", true),
		Primary: true, Node: pod.HostIP, MAC: "0a:58:00:00:00:01",
	}
	for _, a := range p.addresses() {
		prefix := podPrefixes[0]
		if a.Is6() {
			prefix = podPrefixes[1]
		}
		lease.Addresses = append(lease.Addresses, coe.LeasedAddress{Address: a, Network: prefix, Gateway: prefix.Addr().Next()})
	}
	w.store.Update(func(tx *state.Tx) {
		if !pod.NoNetwork {
			pod.Labels, pod.Ports = p.labels, coe.NewContainerPorts(p.ports...)
			tx.PutLease(lease)
		}
		tx.PutPod(coe.Kubernetes, pod)
	})
}

func (w *policyWorld) removePod() {
	if len(w.pods) == 0 {
		return
	}
	n := w.IntN(len(w.pods))
	p := w.pods[n]
	w.pods = slices.Delete(w.pods, n, n+1)
	w.store.Update(func(tx *state.Tx) {
		tx.DeletePod(coe.Kubernetes, p.uid)
		tx.DeleteLease(p.namespace, coe.LeaseKey{PodUID: p.uid, InterfaceUID: p.uid})
	})
}

func (w *policyWorld) changePod() {
	if len(w.pods) == 0 {
		return
	}
	p := policytest.Pick(w.Generator, w.pods...)
	switch w.IntN(5) {
	case 0, 1:
		p.labels = w.someLabels(3)
	case 2:
		p.ports = w.ports()
	case 3:
		p.families = w.IntN(4)
	case 4:
		p.finished = !p.host
	}
	w.put(p)
}

func (w *policyWorld) addPolicy() {
	w.born++
	var spec *coe.PolicySpec
	var err error
	if w.One(3) {
		spec, err = northbound.AccessList(w.AccessList(w.ProfileName()))
	} else {
		spec, err = kube.PolicySpec(w.Policy(fmt.Sprint("p", w.born%7))) // sometimes two of a name
	}
	require.NoError(w.t, err)
	spec.UID = fmt.Sprint("uid", w.born)
	w.policies = append(w.policies, spec)
	w.store.Update(func(tx *state.Tx) { tx.PutPolicy(coe.Kubernetes, spec) })
}

func (w *policyWorld) deletePolicy(p *coe.PolicySpec) {
	w.store.Update(func(tx *state.Tx) { tx.DeletePolicy(coe.Kubernetes, p.UID) })
}

// clearProfiles removes all names of security profiles: without access lists they isolate.
func (w *policyWorld) clearProfiles() {
	for _, p := range w.pods {
		p.labels = coe.Labels{}
		w.put(p)
	}
	w.store.Update(func(tx *state.Tx) {
		for name := range w.labels {
			w.labels[name] = coe.Labels{}
			tx.PutNamespace(coe.Kubernetes, &coe.Namespace{UID: name, Name: name})
		}
	})
}

func (w *policyWorld) clearPolicies() {
	for _, p := range w.policies {
		w.deletePolicy(p)
	}
	w.policies = nil
}

// requireIncremental maps the marked scopes, and requires that all scopes are mapped then.
func (w *policyWorld) requireIncremental() {
	for scope := range w.marked {
		w.mapped[scope], _ = w.mapper.Scope(scope)
	}
	clear(w.marked)
	for _, scope := range append([]netvirt.Scope{netvirt.Cluster}, "shop", "bank", "ops") {
		want, _ := mapping.Scope(w.store, scope, w.settings)
		require.Empty(w.t, netvirt.Diff(w.mapped[scope].Model(), want), "scope %s is not mapped again", scope)
	}
	for k, o := range w.model() {
		require.NotContains(w.t, k.Name, ",")
		for _, ref := range o.Refs() {
			require.Contains(w.t, w.model(), ref, "%s refers to it", k)
		}
	}
}

// model returns the model of all scopes.
func (w *policyWorld) model() netvirt.Model {
	all := netvirt.Model{}
	for _, parts := range w.mapped {
		maps.Copy(all, parts.Model())
	}
	return all
}

// requireNoOrder requires that neither the order of policies, peers and ports nor that of
// requirements decides.
func (w *policyWorld) requireNoOrder() {
	for _, ns := range policyNamespaces {
		v := w.store.View(ns)
		want, _ := mapping.Map(v, w.settings)
		mixed := *v.PolicySet
		mixed.Policies = nil
		for _, p := range v.PolicySet.Policies {
			p := *p
			p.Pods = w.mixedSelector(p.Pods)
			p.Ingress.Rules, p.Egress.Rules = w.mixedRules(p.Ingress.Rules), w.mixedRules(p.Egress.Rules)
			mixed.Policies = append(mixed.Policies, &p)
		}
		w.Shuffle(len(mixed.Policies), func(i, j int) {
			mixed.Policies[i], mixed.Policies[j] = mixed.Policies[j], mixed.Policies[i]
		})
		v.PolicySet = &mixed
		got, _ := mapping.Map(v, w.settings)
		require.Equal(w.t, want, got)
	}
}

func (w *policyWorld) mixedRules(rules []coe.PolicyRule) (mixed []coe.PolicyRule) {
	for _, r := range rules {
		peers := slices.Clone(r.Peers)
		slices.Reverse(peers)
		for i := range peers {
			peers[i].Pods = w.mixedSelector(peers[i].Pods)
		}
		ports := slices.Clone(r.Ports)
		slices.Reverse(ports)
		mixed = append(mixed, coe.PolicyRule{Peers: peers, Ports: ports, Family: r.Family})
	}
	return mixed
}

func (w *policyWorld) mixedSelector(s coe.Selector) (mixed coe.Selector) {
	for _, r := range slices.Backward(s.Requirements) {
		r.Values = append(slices.Clone(r.Values), r.Values...)
		slices.Reverse(r.Values)
		mixed.Requirements = append(mixed.Requirements, r)
	}
	return mixed
}

// requireAddition adds a policy, and removes it again. It requires that the policy opens only connections that it
// allows itself, and that the model is then the same as before.
func (w *policyWorld) requireAddition(questions int) {
	before := w.model()
	closed := newEnforcer(w.t, before)
	w.addPolicy()
	w.requireIncremental()
	added := w.policies[len(w.policies)-1]
	opened, now := newEnforcer(w.t, w.model()), policy.Compile(w.world(w.policies...))
	ends := w.ends(now)
	for range questions {
		from, to := policytest.Pick(w.Generator, ends...), policytest.Pick(w.Generator, ends...)
		port := policy.Port{Protocol: protocol(w.Protocol()), Number: w.Number()}
		if !policy.SameFamily(from, to) || w.settings.Isolated() && apart(from, to) || !opened.allowed(from, to, port) || closed.allowed(from, to, port) {
			continue
		}
		if added.Kind == coe.AccessList {
			continue // pods that named it before it existed were isolated
		}
		j := now.Judge(from, w.behind(now, from, to, port), port)
		require.True(w.t, slices.ContainsFunc([]*coe.PolicySpec{j.Egress.Policy, j.Ingress.Policy}, func(p *coe.PolicySpec) bool {
			return p != nil && p.UID == added.UID
		}), "policy %s opens %s to %s, %v, and allows it at neither end", added.Name, describe(from), describe(to), port)
	}
	w.deletePolicy(added)
	w.policies = w.policies[:len(w.policies)-1]
	w.requireIncremental()
	require.Equal(w.t, before, w.model(), "a removed policy leaves nothing")
}

// world returns the cluster with some policies as mapping/policy sees it.
func (w *policyWorld) world(policies ...*coe.PolicySpec) policy.World {
	world := policy.World{Policies: policies}
	for name, labels := range w.labels {
		world.Namespaces = append(world.Namespaces, policy.Namespace{Name: name, Labels: labels})
	}
	for n := range policyNodes {
		node := policy.Node{Name: fmt.Sprint("n", n), Addresses: []netip.Addr{address4(n), address6(n)}}
		if !w.settings.Isolated() {
			node.Addresses = append(node.Addresses, nodeNetwork.Address(uint32(n+1)), nodeNetwork.ServiceAddress(uint32(n+1)))
		}
		world.Nodes = append(world.Nodes, node)
	}
	for _, p := range w.pods {
		pod := policy.Pod{
			Namespace: p.namespace, Name: p.uid, Node: fmt.Sprint("n", p.node), Labels: p.labels, Ports: p.ports,
			HostNetwork: p.host, Finished: p.finished,
		}
		if !p.host {
			pod.Addresses = p.addresses()
		}
		world.Pods = append(world.Pods, pod)
	}
	return world
}

// requireJudgement asks for random connections, and requires that the model allows them if
// mapping/policy does.
func (w *policyWorld) requireJudgement(questions int) {
	c := policy.Compile(w.world(w.policies...))
	m := newEnforcer(w.t, w.model())
	ends := w.ends(c)
	for range questions {
		from, to := policytest.Pick(w.Generator, ends...), policytest.Pick(w.Generator, ends...)
		if !policy.SameFamily(from, to) || w.settings.Isolated() && apart(from, to) {
			continue
		}
		port := policy.Port{Protocol: protocol(w.Protocol()), Number: w.Number()}
		require.Equal(w.t, w.judges(c, from, to, port), m.allowed(from, to, port), "%s to %s, %v", describe(from), describe(to), port)
	}
}

// judges reports whether mapping/policy allows a connection, and ACLs do not keep its ends apart.
func (w *policyWorld) judges(c *policy.Cluster, from, to policy.End, port policy.Port) bool {
	return (!w.separates() || together(from, to)) && c.Allowed(from, w.behind(c, from, to, port), port)
}

// behind returns to, or an address outside if the port is a node port or a host port of a pod's own node: it leads
// elsewhere.
func (w *policyWorld) behind(c *policy.Cluster, from, to policy.End, port policy.Port) policy.End {
	leads := w.settings.NodePorts.Contains(port.Number) ||
		slices.ContainsFunc(w.settings.HostPorts, func(r coe.PortRange) bool { return r.Contains(port.Number) })
	if leads && c.Judge(from, to, port).Egress.Reason == policy.OwnNode {
		return policy.Outside(to.Addr())
	}
	return to
}

// ends returns the ends of possible connections.
func (w *policyWorld) ends(c *policy.Cluster) []policy.End {
	ends := slices.DeleteFunc(c.Pods(), func(e policy.End) bool { return !e.Addr().IsValid() })
	for n := range policyNodes {
		ends = append(ends, c.At(address4(n))[0], c.At(address6(n))[0], c.At(nodeNetwork.Address(uint32(n + 1)))[0])
		ends = append(ends, policy.Outside(nodeNetwork.EdgeAddress(uint32(n+1), policyNodes)))
	}
	for n := 24; n < 32; n++ {
		ends = append(ends, policy.Outside(address4(n)), policy.Outside(address6(n)))
	}
	return ends
}

// separates reports whether ACLs keep namespaces apart.
func (w *policyWorld) separates() bool { return w.settings.Isolation == mapping.IsolationACLs }

// together reports whether two ends are not pods, or pods of one namespace, or a pod and its own node.
func together(from, to policy.End) bool {
	own := func(pod, other policy.End) bool {
		for n := range policyNodes {
			addresses := []netip.Addr{address4(n), address6(n), nodeNetwork.Address(uint32(n + 1)), nodeNetwork.ServiceAddress(uint32(n + 1))}
			if pod.Pod().Node == fmt.Sprint("n", n) && slices.Contains(addresses, other.Addr()) {
				return true
			}
		}
		return false
	}
	switch a, b := interfaceOf(from), interfaceOf(to); {
	case a != "" && b != "":
		return from.Pod().Namespace == to.Pod().Namespace
	case a != "":
		return own(from, to)
	case b != "":
		return own(to, from)
	}
	return true
}

// apart reports whether two ends are pods of different namespaces.
func apart(from, to policy.End) bool {
	return interfaceOf(from) != "" && interfaceOf(to) != "" && from.Pod().Namespace != to.Pod().Namespace
}

func describe(e policy.End) string { return fmt.Sprintf("%s(%s)", interfaceOf(e), e.Addr()) }

// interfaceOf returns the name of the interface of an end; empty if it has none.
func interfaceOf(e policy.End) string {
	p := e.Pod()
	if p == nil || p.HostNetwork {
		return ""
	}
	return netvirt.InterfaceName(p.Namespace, p.Name, "", true)
}

// enforcer does what the ACLs of a model say.
type enforcer struct {
	acls    map[string]netvirt.ACL
	aces    map[string][]netvirt.ACE
	members map[string]netvirt.InterfaceACL
	groups  map[string][]netip.Prefix
}

func newEnforcer(t *testing.T, m netvirt.Model) enforcer {
	e := enforcer{map[string]netvirt.ACL{}, map[string][]netvirt.ACE{}, map[string]netvirt.InterfaceACL{}, map[string][]netip.Prefix{}}
	addresses := map[string][]netip.Prefix{}
	for _, o := range m {
		switch o := o.(type) {
		case netvirt.ACL:
			e.acls[o.Name] = o
		case netvirt.ACE:
			e.aces[o.ACL] = append(e.aces[o.ACL], o)
		case netvirt.InterfaceACL:
			e.members[o.Interface] = o
		case netvirt.RemoteGroup:
			e.groups[o.Name] = append(e.groups[o.Name], o.Prefixes.All()...)
		case netvirt.Adjacency:
			addresses[o.Interface] = append(addresses[o.Interface], netip.PrefixFrom(o.Address, o.Address.BitLen()))
		}
	}
	for name, member := range e.members {
		for _, group := range member.RemoteGroups.All() {
			o, found := m[netvirt.Key{Kind: netvirt.KindRemoteGroup, Name: group}].(netvirt.RemoteGroup)
			require.True(t, found, "%s names group %s", name, group)
			if o.Namespace != "" {
				require.Equal(t, o.Namespace, member.Namespace, "%s is a member of %s", name, group)
			}
			e.groups[group] = append(e.groups[group], addresses[name]...)
		}
	}
	return e
}

func (e enforcer) allowed(from, to policy.End, port policy.Port) bool {
	a, b := interfaceOf(from), interfaceOf(to)
	if a != "" && a == b {
		return true
	}
	return e.allows(netvirt.Egress, a, to.Addr(), port) && e.allows(netvirt.Ingress, b, from.Addr(), port)
}

// allows reports whether an interface allows a connection with a peer in a direction.
func (e enforcer) allows(d netvirt.Direction, name string, peer netip.Addr, port policy.Port) bool {
	isolated, withheld, yielding := false, false, false
	for _, name := range e.members[name].SecurityGroups.All() {
		acl := e.acls[name]
		if acl.Isolates == d {
			isolated = true
			withheld = withheld || acl.Withholds != "" && hasPort(acl.Withholds, port)
		}
		for _, ace := range e.aces[name] {
			if ace.Direction == d && e.matches(ace, peer, port) {
				if !acl.Yields {
					return true
				}
				yielding = true
			}
		}
	}
	return !isolated || yielding && !withheld
}

func (e enforcer) matches(ace netvirt.ACE, peer netip.Addr, port policy.Port) bool {
	if ace.Family == netvirt.IPv4 != peer.Is4() {
		return false
	}
	if ace.Remote != "" && !slices.ContainsFunc(e.groups[ace.Remote], func(p netip.Prefix) bool { return p.Contains(peer) }) {
		return false
	}
	return ace.Ports == "" || hasPort(ace.Ports, port)
}

func hasPort(list netvirt.PortList, port policy.Port) bool {
	return slices.ContainsFunc(list.All(), func(r netvirt.PortRange) bool {
		return string(r.Protocol) == port.Protocol && (r.Last == 0 || r.First <= port.Number && port.Number <= r.Last)
	})
}
