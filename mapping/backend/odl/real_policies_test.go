package odl_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// policed is a model with three pods, and a rule for the first of them: its group may reach some ports.
type policed struct {
	t       *testing.T
	c       *realodl.Controller
	b       *odl.Backend
	model   netvirt.Model
	a, d, e pluggedPod // web:pod-1, web:pod-2, and a pod of another namespace or the third of web
	to      netip.Addr // of the first pod
}

// newPoliced plugs in two pods of web and one of shop.
func newPoliced(t *testing.T, c *realodl.Controller) *policed {
	requireIdle(t, c)
	w := &policed{t: t, c: c, b: open(t, realConfig(t, c, "")), model: odltest.PodsOf("web", "shop")}
	odltest.PodOn(w.model, "web", "pod-2", 0, 3)
	write(t, w.b, w.model)
	w.a, w.d, w.e = plugIn(t, c, w.model, "web:pod-1"), plugIn(t, c, w.model, "web:pod-2"), plugIn(t, c, w.model, "shop:pod-1")
	w.to = w.a.address
	return w
}

// realPolicies tests with packets what ACLs do: TCP connections that find no listener are refused if
// they pass, and time out else.
func realPolicies(t *testing.T, c *realodl.Controller) {
	w := newPoliced(t, c)
	requireReach(t, c, w.d, w.a)
	requireReach(t, c, w.e, w.a)

	w.isolate("web", netvirt.IPv4)
	requireReach(t, c, w.a, w.e) // egress is open, and answers pass

	delete(w.model, netvirt.Key{Kind: netvirt.KindInterfaceACL, Name: w.d.name})
	w.add(netvirt.InterfaceACL{Interface: w.e.name, Namespace: "shop", RemoteGroups: "peers"})
	w.passes(w.e, "80")
	w.fails(w.d, "80")

	w.rule("tcp:8000-8010")
	w.passes(w.e, "8005")
	w.fails(w.e, "80")

	w.add(netvirt.RemoteGroup{Name: "peers", Prefixes: netvirt.NewPrefixList(netip.PrefixFrom(w.d.address, 32))})
	w.passes(w.d, "8005")
	w.passes(w.e, "8005")

	w.rule("sctp:8005") // Netvirt could only permit all ports
	w.fails(w.d, "8005")
	w.fails(w.e, "8005")

	w.rule("tcp:9005") // not a port of a removed rule, which Neon would still drop
	w.passes(w.d, "9005")
	w.again(w.a)
	w.passes(w.d, "9005")
	w.fails(w.d, "80")

	w.isolateEgress("web", "9005")

	for k := range w.model {
		if k.Kind == netvirt.KindInterfaceACL {
			delete(w.model, k)
		}
	}
	write(t, w.b, w.model)
	w.passes(w.d, "80")
	w.passes(w.e, "81")
	write(t, w.b, netvirt.Model{})
}

// accessLists is the path of the access lists of a type, which is the first part of their key.
const accessLists = "/restconf/config/ietf-access-control-list:access-lists/acl/ietf-access-control-list:ipv4-acl/"

// realDeletedList tests with packets that an access list that an external writer deletes is in force again on Neon, and that its rule can be
// changed afterwards. On Oxygen the changed rule has no effect (decision 46).
func realDeletedList(t *testing.T, c *realodl.Controller) {
	w := newPoliced(t, c)
	w.isolate("web", netvirt.IPv4)
	changed := watch(t, w.b)
	status, answer, err := c.Request(t.Context(), http.MethodDelete, accessLists+netvirtjson.GroupID(netvirt.ACL{Name: "web:pods"}.Key()), "")
	require.NoError(t, err)
	require.Less(t, status, 300, "%s", answer)
	told(t, changed)
	heal(t, w.b, w.model)
	w.works("80")
	w.rule("tcp:8000")
	w.works("8000")
	write(t, w.b, netvirt.Model{})
}

// works waits until the second pod reaches a port of the first pod, and no other port, the third pod reaches none, and the first pod reaches
// the third one. Each connection is a new one.
func (w *policed) works(port string) {
	w.t.Helper()
	w.passes(w.d, port)
	w.fails(w.d, "81")
	w.fails(w.e, port)
	requireReach(w.t, w.c, w.a, w.e)
}

// realIPv6Policies tests with packets what ACLs do for IPv6, between pods of an elan-instance that have addresses
// of both families.
func realIPv6Policies(t *testing.T, c *realodl.Controller) {
	requireIdle(t, c)
	plain := odltest.PodsOf()
	for at := range 3 {
		odltest.PodOn(plain, "six", fmt.Sprintf("pod-%d", at+1), 6, 2+at)
	}
	w := &policed{t: t, c: c, b: open(t, realConfig(t, c, "")), model: maps.Clone(plain)}
	for _, o := range plain {
		if a, is := o.(netvirt.Adjacency); is {
			a.Network, a.Gateway = netip.MustParsePrefix("fd00::/64"), netip.MustParseAddr("fd00::1")
			a.Address = ipv6Of(a.Address)
			w.model.Add(a, netvirt.MACEntry{Interface: a.Interface, Namespace: "six", MAC: a.MAC, Address: a.Address})
		}
	}
	write(t, w.b, w.model)
	var pods []pluggedPod
	for _, name := range []string{"six:pod-1", "six:pod-2", "six:pod-3"} {
		pod := plugIn(t, c, plain, name)
		for _, command := range [][]string{
			{"sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=0"},
			{"ip", "address", "add", ipv6Of(pod.address).String() + "/64", "dev", "eth0", "nodad"},
		} {
			_, err := c.Lab.Exec(t.Context(), name, command...)
			require.NoError(t, err)
		}
		pods = append(pods, pod)
	}
	w.a, w.d, w.e = pods[0], pods[1], pods[2]
	w.to = ipv6Of(w.a.address)
	w.passes(w.d, "80")
	w.passes(w.e, "81")

	w.isolate("six", netvirt.IPv6)
	w.to = w.a.address
	w.fails(w.d, "80") // the rule is about IPv6
	w.to = ipv6Of(w.a.address)

	w.add(netvirt.RemoteGroup{Name: "peers", Prefixes: netvirt.NewPrefixList(netip.PrefixFrom(ipv6Of(w.e.address), 128))})
	w.passes(w.e, "80")
	w.rule("tcp:8000-8010")
	w.passes(w.e, "8005")
	w.fails(w.e, "80")
	w.passes(w.d, "8005")

	w.isolateEgress("six", "8005")
	write(t, w.b, netvirt.Model{})
}

// ipv6Of returns the IPv6 address of a pod with an IPv4 address.
func ipv6Of(a netip.Addr) netip.Addr {
	v6 := netip.MustParseAddr("fd00::").As16()
	v6[15] = a.As4()[3]
	return netip.AddrFrom16(v6)
}

// isolate isolates the first pod of a namespace, except for port 80 of one family and the members of a group. The
// second pod is one.
func (w *policed) isolate(namespace string, f netvirt.Family) {
	w.t.Helper()
	isolated, pods := namespace+":isolated:ingress", namespace+":pods"
	w.add(
		netvirt.ACL{Name: isolated, Namespace: namespace, Isolates: netvirt.Ingress},
		netvirt.ACL{Name: pods, Namespace: namespace},
		netvirt.RemoteGroup{Name: "peers"},
		netvirt.ACE{ACL: pods, Namespace: namespace, Name: "rule", Direction: netvirt.Ingress, Family: f, Remote: "peers", Ports: "tcp:80"},
		netvirt.InterfaceACL{Interface: w.a.name, Namespace: namespace, SecurityGroups: netvirt.NewNameList(isolated, pods)},
		netvirt.InterfaceACL{Interface: w.d.name, Namespace: namespace, RemoteGroups: "peers"},
	)
	w.passes(w.d, "80")
	w.fails(w.d, "81")
	w.fails(w.e, "80")
}

// isolateEgress isolates the second pod of a namespace, which could connect to a port of the first one.
func (w *policed) isolateEgress(namespace, port string) {
	w.t.Helper()
	isolated := namespace + ":isolated:egress"
	w.add(
		netvirt.ACL{Name: isolated, Namespace: namespace, Isolates: netvirt.Egress},
		netvirt.InterfaceACL{Interface: w.d.name, Namespace: namespace, SecurityGroups: netvirt.NewNameList(isolated)},
	)
	w.fails(w.d, port)
}

// add writes further objects, or others in place of those with the same keys.
func (w *policed) add(objects ...netvirt.Object) {
	w.t.Helper()
	w.model.Add(objects...)
	write(w.t, w.b, w.model)
}

// rule changes the ports of the rule.
func (w *policed) rule(ports netvirt.PortList) {
	w.t.Helper()
	namespace, _, _, _ := netvirt.ParseInterfaceName(w.a.name)
	rule := w.model[netvirt.ACE{ACL: namespace + ":pods", Name: "rule"}.Key()].(netvirt.ACE)
	rule.Ports = ports
	w.add(rule)
}

// again unplugs a pod, waits until the controller has released its port, and plugs it in again.
func (w *policed) again(p pluggedPod) {
	w.t.Helper()
	port := w.model[netvirt.Key{Kind: netvirt.KindInterface, Name: p.name}].(netvirt.Interface).ParentInterface
	require.NoError(w.t, w.c.Lab.Unplug(w.t.Context(), ovnhost.Pod{Host: w.c.Lab.Hosts[0].Name, Name: p.name, PortName: port}))
	path := "/restconf/operational/ietf-interfaces:interfaces-state/interface/" + url.QueryEscape(p.name)
	require.Eventually(w.t, func() bool {
		status, _, err := w.c.Request(w.t.Context(), http.MethodGet, path, "")
		return err == nil && status == http.StatusNotFound && len(bindingsOf(w.t, w.c, p)) == 0
	}, realPatience, 100*time.Millisecond)
	plugIn(w.t, w.c, w.model, p.name)
}

// passes waits until a pod reaches a port of the first pod.
func (w *policed) passes(from pluggedPod, port string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.connects(from, port) }, realPatience, 100*time.Millisecond, "%s to port %s", from.name, port)
}

// fails waits until a pod does not reach a port of the first pod.
func (w *policed) fails(from pluggedPod, port string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return !w.connects(from, port) }, realPatience, 100*time.Millisecond, "%s to port %s", from.name, port)
}

func (w *policed) connects(from pluggedPod, port string) bool {
	out, err := w.c.Lab.Exec(w.t.Context(), from.name, "nc", "-v", "-z", "-w", "2", w.to.String(), port)
	return err == nil || strings.Contains(out+err.Error(), "refused")
}
