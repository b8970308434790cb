package trace

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const podUID = "8f2a6d5e-0000-4000-8000-000000000001"

var (
	chosenAt = time.UnixMilli(1_700_000_000_123)
	saidAt   = time.Unix(1_700_000_000, 0)
	laterAt  = time.Unix(1_700_000_009, 0)
)

// world returns a namespace with one pod that all stages have.
func world() *Namespace {
	node, addr := netip.MustParseAddr("192.168.33.12"), netip.MustParseAddr("10.11.0.3")
	block := &coe.Block{ELAN: netvirt.ELANName(node, "shop"), Prefix: netip.MustParsePrefix("10.11.0.0/29"), Gateway: netip.MustParseAddr("10.11.0.1")}
	lease := &coe.Lease{
		PodUID: podUID, InterfaceUID: podUID, Namespace: "shop", Pod: "web", Name: "shop:web", Primary: true,
		Node: node, MAC: "0a:58:0a:0b:00:03", Chosen: chosenAt.UnixMilli(),
		Addresses: []coe.LeasedAddress{{Address: addr, Network: block.Prefix, Gateway: block.Gateway}},
	}
	n := &Namespace{
		View: coe.View{
			Namespace: "shop",
			Pods: []*coe.Pod{{
				UID: podUID, Name: "web", Namespace: "shop", NodeName: "worker-1", HostIP: node,
				Reported: coe.Reported{At: saidAt, Revision: "4711"},
			}},
			Leases: coe.Leases{lease},
			Blocks: []*coe.Block{block},
			ELANs:  map[string]*coe.ELANFact{block.ELAN: {Name: block.ELAN, VNI: 70000}},
			VPN:    &coe.VPNFact{Name: "shop", Namespace: "shop", RD: 2},
		},
		Origin:    func(string) coe.Origin { return coe.Kubernetes },
		Supported: netvirt.NewKindSet(netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindMACEntry, netvirt.KindVPNInterface, netvirt.KindAdjacency),
		MappedAt:  laterAt, Wanted: 8, ReachedAt: laterAt, Reached: 7,
		Confirmed: func(*coe.Lease) (time.Time, int64, bool) { return laterAt, 12, true },
	}
	n.mapAll()
	n.Has = func(k netvirt.Key) netvirt.Object { return n.Model[k] }
	n.Lacks = func(netvirt.Object) string { return "" }
	n.Network = func(*coe.Lease) *Progress { return nil }
	return n
}

func (n *Namespace) mapAll() { n.Model, n.Problems = mapping.Map(n.View, mapping.Settings{}) }

func (n *Namespace) only(t *testing.T) Pod {
	pods := n.Pods()
	require.Len(t, pods, 1)
	require.Len(t, pods[0].Steps, 6)
	return pods[0]
}

func TestAllStages(t *testing.T) {
	p := world().only(t)
	require.Empty(t, p.Missing)
	require.Equal(t, Confirmed, p.Reached())
	require.Equal(t, []Step{
		{Source, true, saidAt, true, "4711", "reported by kubernetes, on node worker-1"},
		{Address, true, chosenAt, true, "", "10.11.0.3 by gateway 10.11.0.1, 0a:58:0a:0b:00:03"},
		{Mapped, true, laterAt, false, "8", "interface shop:web"},
		{Wanted, true, laterAt, false, "8", "5 objects"},
		{Written, true, laterAt, false, "7", ""},
		{Confirmed, true, laterAt, true, "12", ""},
	}, p.Steps)
}

func TestFirstMissingStage(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Namespace)
		missing Stage
		says    string
	}{
		{"no node", func(n *Namespace) {
			n.View.Pods[0] = &coe.Pod{UID: podUID, Name: "web", Namespace: "shop", NodeName: "worker-9"}
			n.View.Leases = nil
			n.mapAll()
		}, Address, "NoNode: the address of the pod's node worker-9 is not known: no source knows such a node, or it has no address yet; send the node with its address, or the pod with host-ip-address"},
		{"no node named", func(n *Namespace) {
			n.View.Pods[0] = &coe.Pod{UID: podUID, Name: "web", Namespace: "shop"}
			n.View.Leases = nil
			n.mapAll()
		}, Address, "send host-ip-address, or wait for the scheduler"},
		{"being chosen", func(n *Namespace) {
			n.View.Leases = nil
			n.mapAll()
		}, Address, "Waiting: an address is being chosen"},
		{"refused", func(n *Namespace) {
			n.View.Leases = nil
			n.View.Refusals = map[coe.LeaseKey]coe.Refusal{{PodUID: podUID, InterfaceUID: podUID}: {Reason: coe.PoolExhausted, Message: "pool 10.11.0.0/29 is full"}}
			n.mapAll()
		}, Address, "PoolExhausted: pool 10.11.0.0/29 is full"},
		{"released", func(n *Namespace) {
			for i, l := range n.View.Leases {
				gone := *l
				gone.Released = 1
				n.View.Leases[i] = &gone
			}
			n.mapAll()
		}, Address, "Waiting: "},
		{"not mapped", func(n *Namespace) {
			n.View.VPN = nil
			n.mapAll()
		}, Mapped, "Waiting: "},
		{"rejected", func(n *Namespace) {
			n.Problems = append(n.Problems, coe.Problem{Kind: "interface", UID: "shop:web", Reason: coe.BackendRejected, Message: "name taken"})
		}, Wanted, "the backend rejects interface shop:web: BackendRejected: name taken"},
		{"not written", func(n *Namespace) {
			n.Has = func(netvirt.Key) netvirt.Object { return nil }
		}, Written, "the backend does not have the wanted interface shop:web"},
		{"backend away", func(n *Namespace) {
			n.Has = func(netvirt.Key) netvirt.Object { return nil }
			n.Failure = "write to backend: connection refused"
		}, Written, "connection refused"},
		{"not confirmed", func(n *Namespace) {
			n.Confirmed = func(*coe.Lease) (time.Time, int64, bool) { return time.Time{}, 0, false }
		}, Confirmed, "shop:web is not confirmed yet"},
		{"not in the network", func(n *Namespace) {
			n.Confirmed = func(*coe.Lease) (time.Time, int64, bool) { return time.Time{}, 0, false }
			n.Lacks = func(o netvirt.Object) string {
				if o.Key().Kind == netvirt.KindVPNInterface {
					return "flows not programmed"
				}
				return ""
			}
		}, Confirmed, "vpn-interface shop:web: flows not programmed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := world()
			c.change(n)
			p := n.only(t)
			require.Equal(t, c.missing, p.Missing, p.Steps)
			waits := false
			for _, s := range p.Steps {
				switch {
				case s.Stage == c.missing:
					require.False(t, s.Done)
					require.Contains(t, s.Detail, c.says)
					waits = true
				case waits:
					require.Equal(t, Step{Stage: s.Stage, Detail: "waits for " + string(c.missing)}, s)
				default:
					require.True(t, s.Done, s.Stage)
				}
			}
		})
	}
}

func TestNoNetwork(t *testing.T) {
	n := world()
	n.View.Pods[0] = &coe.Pod{UID: podUID, Name: "web", Namespace: "shop", NoNetwork: true}
	n.View.Leases = nil
	n.mapAll()
	p := n.only(t)
	require.Empty(t, p.Missing)
	require.Equal(t, Source, p.Reached())
	require.Contains(t, p.Steps[0].Detail, "it has no network of its own")
	require.Equal(t, []Step{{Stage: Address}, {Stage: Mapped}, {Stage: Wanted}, {Stage: Written}, {Stage: Confirmed}}, p.Steps[1:])
}

// The network's stages come after confirmed, and each is the last of all interfaces.
func TestNetworkStages(t *testing.T) {
	at := func(seconds int) time.Time { return laterAt.Add(time.Duration(seconds) * time.Second) }
	done := func(stage Stage, seconds int) Step { return Step{Stage: stage, Done: true, At: at(seconds), Own: true} }
	unknown := Step{Stage: Bound, Done: true, Own: true}
	missing := Step{Stage: Bound, Own: true, Detail: "no node has claimed the port"}
	for _, c := range []struct {
		name                   string
		interface1, interface2 *Progress
		written                Step
		network                []Step
		missing                Stage
	}{
		{
			"two interfaces",
			&Progress{at(1), []Step{done(Translated, 2), done(Bound, 5)}},
			&Progress{at(3), []Step{done(Translated, 4), done(Bound, 4)}},
			Step{Written, true, at(3), true, "7", ""}, []Step{done(Translated, 4), done(Bound, 5)}, "",
		},
		{
			"unknown times",
			&Progress{time.Time{}, []Step{done(Bound, 5)}}, &Progress{at(3), []Step{unknown}},
			Step{Written, true, laterAt, false, "7", ""}, []Step{unknown}, "",
		},
		{
			"one is missing",
			&Progress{at(1), []Step{done(Translated, 2), done(Bound, 5), done(Installed, 6)}},
			&Progress{at(3), []Step{done(Translated, 4), missing, {Stage: Installed}}},
			Step{Written, true, at(3), true, "7", ""},
			[]Step{done(Translated, 4), missing, {Stage: Installed, Detail: "waits for bound"}}, Bound,
		},
		{"one is not known", &Progress{at(1), []Step{done(Translated, 2)}}, nil, Step{Written, true, laterAt, false, "7", ""}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := world()
			second := *n.View.Leases[0]
			second.InterfaceUID = "second"
			pod := *n.View.Pods[0]
			pod.Interfaces = []coe.PodInterface{{UID: podUID}, {UID: "second"}}
			n.View.Pods[0], n.View.Leases = &pod, append(n.View.Leases, &second)
			n.Network = func(l *coe.Lease) *Progress {
				if l.InterfaceUID == "second" {
					return c.interface2
				}
				return c.interface1
			}
			p := n.Pods()[0]
			require.Equal(t, c.written, p.Steps[4])
			require.Equal(t, c.network, append([]Step(nil), p.Steps[6:]...))
			require.Equal(t, c.missing, p.Missing)
		})
	}
}
