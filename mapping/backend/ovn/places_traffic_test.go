package ovn_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// placesWorld is the pods of liveModel, and a service whose endpoints depend on the place of the client.
type placesWorld struct {
	t   *testing.T
	lab *ovnhost.Lab
	b   *ovn.Backend
}

// VIPs of the service, and its pods: two on host1, one on host2.
var (
	near4          = netip.MustParseAddrPort("10.96.0.20:80")
	near6          = netip.MustParseAddrPort("[fd00:96::20]:80")
	hostOf         = func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 0, host}) }
	onHost1        = []int{0, 1}
	onHost2        = []int{2}
	everywhere     = []int{0, 1, 2}
	nowhere        = []int{}
	six1           = []int{7}
	nodesOfLive    = []netvirt.Object{netvirt.Node{Address: hostOf(1), HostName: "host1"}, netvirt.Node{Address: hostOf(2), HostName: "host2"}}
	affinityOfLive = uint32(100)
)

// offered is the endpoints of a VIP: livePods, for clients on host1, on host2 and elsewhere.
type offered struct{ host1, host2, elsewhere []int }

// model returns the model of liveModel with the service.
func (w *placesWorld) model(isolated bool, affinity uint32, four, six offered) netvirt.Model {
	m := liveModel(isolated)
	m.Add(nodesOfLive...)
	m.Add(netvirt.Service{
		UID: "near", Namespace: "a", Name: "near", Affinity: affinity,
		Places: netvirt.NewPlaceList([]netip.Addr{hostOf(1)}, []netip.Addr{hostOf(2)}),
	})
	list := func(pods []int) netvirt.EndpointList {
		var all []netip.AddrPort
		for _, p := range pods {
			all = append(all, netip.AddrPortFrom(netip.MustParseAddr(livePods[p].address), 8080))
		}
		return netvirt.NewEndpointList(all...)
	}
	for vip, o := range map[netip.AddrPort]offered{near4: four, near6: six} {
		m.Add(netvirt.ServiceVIP{
			Service: "near", Namespace: "a", Protocol: netvirt.TCP, VIP: vip,
			Endpoints: list(o.elsewhere), Near: netvirt.NewNearList(list(o.host1), list(o.host2)),
		})
	}
	return m
}

// write writes a model, and waits until the hosts have it.
func (w *placesWorld) write(m netvirt.Model) {
	w.t.Helper()
	write(w.t, w.b, m)
	require.NoError(w.t, w.lab.Sync(w.t.Context()))
}

// reaches requires that a client reaches exactly these pods, at least once each. Without pods, its
// packets are dropped.
func (w *placesWorld) reaches(from livePod, vip netip.AddrPort, pods []int) {
	w.t.Helper()
	if len(pods) == 0 {
		var err net.Error
		require.ErrorAs(w.t, w.connect(from, vip), &err, from.iface())
		require.True(w.t, err.Timeout(), "%s: %v", from.iface(), err)
		return
	}
	missing := map[string]bool{}
	for _, p := range pods {
		missing[livePods[p].name] = true
	}
	expected := fmt.Sprint(missing)
	for deadline := time.Now().Add(patience.Patience); len(missing) > 0; {
		require.Less(w.t, time.Now(), deadline, "%s reaches not all of %s", from.iface(), expected)
		name := page(w.t, w.lab, from, vip)
		require.Contains(w.t, expected, name+":", from.iface())
		delete(missing, name)
	}
	for range 20 {
		require.Contains(w.t, expected, page(w.t, w.lab, from, vip)+":", from.iface())
	}
}

// refused waits until a client is refused.
func (w *placesWorld) refused(from livePod, vip netip.AddrPort) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return errors.Is(w.connect(from, vip), syscall.ECONNREFUSED) }, patience.Patience, 10*time.Millisecond, from.iface())
}

func (w *placesWorld) connect(from livePod, vip netip.AddrPort) error {
	return connect(w.t.Context(), w.lab, from.iface(), vip.Addr().String(), vip.Port())
}

// TestPlacesTraffic: on a real OVN, clients reach exactly the endpoints of their place: pods of all
// namespaces that share the transit, and pods of the same namespace if it is isolated.
func TestPlacesTraffic(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := &placesWorld{t: t, lab: lab, b: withLayout(t, lab, ovn.LayoutELAN)}
	local := offered{onHost1, onHost2, everywhere}
	local6 := offered{six1, nowhere, six1}
	w.write(w.model(false, 0, local, local6))
	for n, p := range livePods {
		p.plug(t, w.lab, n)
		require.NoError(t, w.lab.Serve(p.iface(), 8080, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(out, p.name)
		})))
	}
	each := func(do func(p livePod, four bool)) {
		for _, p := range livePods {
			do(p, netip.MustParseAddr(p.address).Is4())
		}
	}
	at := func(p livePod, o offered) []int {
		if p.host == 1 {
			return o.host1
		}
		return o.host2
	}
	each(func(p livePod, four bool) {
		if four {
			w.reaches(p, near4, at(p, local))
		} else {
			w.reaches(p, near6, at(p, local6))
		}
		if four {
			require.Contains(t, []string{"other-host", "routed"}, page(t, w.lab, p, vip), "a service without places")
		}
	})

	// The endpoint on host2 moves to host1.
	moved := offered{onHost1, nowhere, onHost1}
	w.write(w.model(false, 0, moved, local6))
	each(func(p livePod, four bool) {
		if four {
			w.reaches(p, near4, at(p, moved))
		}
	})

	// The last endpoint is gone.
	w.write(w.model(false, 0, offered{}, local6))
	w.refused(livePods[0], near4)
	w.reaches(livePods[2], near4, nowhere) // the other VIP drops on this host

	w.write(w.model(false, 0, offered{}, offered{}))
	w.refused(livePods[2], near4)

	// A client keeps its endpoint.
	w.write(w.model(false, affinityOfLive, local, local6))
	first := page(t, w.lab, livePods[0], near4)
	for range 20 {
		require.Equal(t, first, page(t, w.lab, livePods[0], near4))
	}

	// A node that is not known is elsewhere.
	unknown := w.model(false, 0, local, local6)
	delete(unknown, nodesOfLive[1].Key())
	w.write(unknown)
	w.reaches(livePods[2], near4, everywhere)
	w.reaches(livePods[0], near4, onHost1)

	w.write(w.model(true, 0, moved, local6))
	each(func(p livePod, four bool) {
		if four && p.ns == "a" {
			w.reaches(p, near4, at(p, moved))
		}
	})
	require.Error(t, w.connect(livePods[5], near4), "a service of another namespace")
}
