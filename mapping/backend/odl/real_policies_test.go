package odl_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// policed is a model with three pods, and a rule for the first of them: its group may reach some ports.
type policed struct {
	t       *testing.T
	c       *realodl.Controller
	b       *odl.Backend
	model   netvirt.Model
	a, d, e pluggedPod // web:pod-1, web:pod-2 and shop:pod-1
}

// realPolicies tests with packets what ACLs do: TCP connections that find no listener are refused if
// they pass, and time out else.
func realPolicies(t *testing.T, c *realodl.Controller) {
	requireIdle(t, c)
	w := &policed{t: t, c: c, b: open(t, realConfig(t, c, "")), model: podsOf("web", "shop")}
	podOn(w.model, "web", "pod-2", 0, 3)
	write(t, w.b, w.model)
	w.a, w.d, w.e = plugIn(t, c, w.model, "web:pod-1"), plugIn(t, c, w.model, "web:pod-2"), plugIn(t, c, w.model, "shop:pod-1")
	requireReach(t, c, w.d, w.a)
	requireReach(t, c, w.e, w.a)

	w.add(
		netvirt.ACL{Name: "web:isolated:ingress", Namespace: "web", Isolates: netvirt.Ingress},
		netvirt.ACL{Name: "web:pods", Namespace: "web"},
		netvirt.RemoteGroup{Name: "peers"},
		netvirt.ACE{ACL: "web:pods", Namespace: "web", Name: "rule", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: "peers", Ports: "tcp:80"},
		netvirt.InterfaceACL{Interface: w.a.name, Namespace: "web", SecurityGroups: "web:isolated:ingress,web:pods"},
		netvirt.InterfaceACL{Interface: w.d.name, Namespace: "web", RemoteGroups: "peers"},
	)
	w.passes(w.d, "80")
	w.fails(w.d, "81")
	w.fails(w.e, "80")
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

	w.add(
		netvirt.ACL{Name: "web:isolated:egress", Namespace: "web", Isolates: netvirt.Egress},
		netvirt.InterfaceACL{Interface: w.d.name, Namespace: "web", SecurityGroups: "web:isolated:egress"},
	)
	w.fails(w.d, "9005")

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

// add writes further objects, or others in place of those with the same keys.
func (w *policed) add(objects ...netvirt.Object) {
	w.t.Helper()
	w.model.Add(objects...)
	write(w.t, w.b, w.model)
}

// rule changes the ports of the rule.
func (w *policed) rule(ports netvirt.PortList) {
	w.t.Helper()
	rule := w.model[netvirt.ACE{ACL: "web:pods", Name: "rule"}.Key()].(netvirt.ACE)
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
	out, err := w.c.Lab.Exec(w.t.Context(), from.name, "nc", "-v", "-z", "-w", "2", w.a.address.String(), port)
	return err == nil || strings.Contains(out+err.Error(), "refused")
}
