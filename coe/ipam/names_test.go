package ipam_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// An older release named the vpn-instance of longNamespace like shortNamespace.
var (
	longNamespace  = strings.Repeat("long-", 12)
	shortNamespace = netvirt.VPNNames(longNamespace)[1]
)

func TestNamespacesWithOneOlderName(t *testing.T) {
	w := newWorld(t, specPool())
	long, short := newPod("long", n1, in(longNamespace)), newPod("short", n1, in(shortNamespace))
	w.put(long, short)
	w.sync()
	require.NotEqual(t, w.store.View(longNamespace).VPN.Name, w.store.View(shortNamespace).VPN.Name)
	before := w.chosen()
	w.restart()
	require.Empty(t, w.damaged())
	require.Equal(t, before, w.chosen())
}

// TestOlderNameIsKept: a namespace with a long name keeps the name of its vpn-instance from an
// older release. The namespace with this name is refused until the long one is deleted.
func TestOlderNameIsKept(t *testing.T) {
	w := newWorld(t, specPool())
	long, short := newPod("long", n1, in(longNamespace)), newPod("short", n1, in(shortNamespace))
	w.put(long)
	w.sync()
	name := w.store.View(longNamespace).VPN.Name
	delete(w.journal.records, "vpn/"+name)
	w.journal.records["vpn/"+shortNamespace] = fmt.Appendf(nil, `{"name":%q,"namespace":%q,"rd":7}`, shortNamespace, longNamespace)
	w.restart()
	require.Empty(t, w.damaged())
	w.put(long, short)
	w.complete()
	w.sync()
	require.Equal(t, &coe.VPNFact{Name: shortNamespace, Namespace: longNamespace, RD: 7}, w.store.View(longNamespace).VPN)
	require.NotEmpty(t, w.address(long))
	require.Equal(t, coe.NameTaken, w.refusal(short).Reason)
	require.Contains(t, w.refusal(short).Message, "vpn-instance "+shortNamespace+" belongs to namespace "+longNamespace)
	require.Nil(t, w.store.View(shortNamespace).VPN)

	another := newPod("another", n2, in(longNamespace))
	w.put(another)
	w.sync()
	require.NotEmpty(t, w.address(another))

	w.remove(long, another)
	w.sync()
	w.wait(31 * time.Second)
	require.NotEmpty(t, w.address(short))
	require.Equal(t, shortNamespace, w.store.View(shortNamespace).VPN.Name)
	w.put(long)
	w.sync()
	require.Equal(t, netvirt.VPNName(longNamespace), w.store.View(longNamespace).VPN.Name)
}

// TestJournalOfTwoNamespacesWithOneName: an older release wrote the vpn-instances of two
// namespaces to one record. After the load each namespace has its own vpn-instance.
func TestJournalOfTwoNamespacesWithOneName(t *testing.T) {
	w := newWorld(t, specPool())
	long, short := newPod("long", n1, in(longNamespace)), newPod("short", n1, in(shortNamespace))
	w.put(long, short)
	w.sync()
	addresses := []string{w.address(long), w.address(short)}
	delete(w.journal.records, "vpn/"+w.store.View(longNamespace).VPN.Name)
	w.restart()
	require.Equal(t, []string{"vpn/" + netvirt.VPNName(longNamespace)}, w.damaged())
	w.put(long, short)
	w.complete()
	w.sync()
	require.Empty(t, w.damaged())
	require.Equal(t, addresses, []string{w.address(long), w.address(short)})
	require.NotEqual(t, w.store.View(longNamespace).VPN.RD, w.store.View(shortNamespace).VPN.RD)
}

// TestRouteDistinguisherOfTwo: two records have the same route distinguisher. The first
// vpn-instance keeps it.
func TestRouteDistinguisherOfTwo(t *testing.T) {
	w := newWorld(t, specPool())
	a, b := newPod("a", n1, in("one")), newPod("b", n1, in("two"))
	w.put(a, b)
	w.sync()
	w.journal.records["vpn/two"] = []byte(`{"name":"two","namespace":"two","rd":2}`)
	w.journal.records["elan/"+n1+":two"] = []byte(`{"name":"` + n1 + `:two","vni":70000}`)
	w.restart()
	require.Equal(t, []string{"elan/" + n1 + ":two", "vpn/two"}, w.damaged())
	w.put(a, b)
	w.complete()
	w.sync()
	require.Equal(t, uint32(2), w.store.View("one").VPN.RD)
	require.NotEqual(t, uint32(2), w.store.View("two").VPN.RD)
	require.NotEqual(t, uint32(70000), w.store.View("two").ELANs[n1+":two"].VNI)
	require.Empty(t, w.damaged())
}

// TestPortsWithOneName: the names of ports are short hashes, so two can be equal. A pod is
// refused if its port would have the name of another pod's port. It does not replace that port.
func TestPortsWithOneName(t *testing.T) {
	w := newWorld(t, specPool())
	w.portName = func(name, _ string) string { return name[:len("default:p")] }
	w.restart()
	w.complete()
	first, second := newPod("p1", n1), newPod("p2", n1)
	w.put(first, second)
	w.sync()
	require.NotEmpty(t, w.address(first))
	require.Equal(t, coe.NameTaken, w.refusal(second).Reason)
	require.Contains(t, w.refusal(second).Message, "pod default/p1 (p1)")
	w.remove(first)
	w.sync()
	w.wait(31 * time.Second)
	require.NotEmpty(t, w.address(second))
	w.put(first)
	w.sync()
	require.Equal(t, coe.NameTaken, w.refusal(first).Reason)
	require.NotEmpty(t, w.address(second))
}
