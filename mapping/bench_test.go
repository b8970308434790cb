package mapping_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// BenchmarkMapDiff changes one pod of a namespace, maps the namespace and computes the
// difference from the model before: with a Mapper and DiffParts, as reconcile.Loop does, and
// for comparison without them.
func BenchmarkMapDiff(b *testing.B) {
	settings := mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
	for _, pods := range []int{50, 250, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			benchmarkMapDiff(b, pods, mapping.NewMapper(nil, settings).Map, netvirt.DiffParts)
		})
		b.Run(fmt.Sprintf("whole/pods=%d", pods), func(b *testing.B) {
			whole := func(v coe.View) (netvirt.Model, []coe.Problem) { return mapping.Map(v, settings) }
			benchmarkMapDiff(b, pods, whole, netvirt.Diff)
		})
	}
}

// BenchmarkServices maps a namespace with 200 services of 10 endpoints in a cluster of 50 nodes in three
// zones: services whose endpoints are the same for all clients, and services whose endpoints depend on
// the place of the client.
func BenchmarkServices(b *testing.B) {
	for name, vary := range map[string]func(*coe.Service, *coe.Endpoints){
		"plain": func(*coe.Service, *coe.Endpoints) {},
		"local": func(s *coe.Service, _ *coe.Endpoints) { s.InternalLocal = true },
		"zones": func(_ *coe.Service, e *coe.Endpoints) {
			for i := range e.Places {
				e.Places[i].Hints = &coe.Hints{Zones: []string{fmt.Sprint("zone-", i%3)}}
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			v := servicesView(200, 10, 50)
			for i, s := range v.Services {
				vary(s, v.Endpoints[i])
			}
			m := mapping.NewMapper(nil, mapping.Settings{})
			b.ReportAllocs()
			for b.Loop() {
				if _, problems := m.Map(v); len(problems) > 0 {
					b.Fatal(problems)
				}
			}
		})
	}
}

// servicesView returns a namespace with services.
func servicesView(services, endpoints, nodes int) coe.View {
	v := coe.View{Namespace: "default", Nodes: map[netip.Addr]*coe.Node{}}
	for n := range nodes {
		addr := netip.AddrFrom4([4]byte{192, 168, 0, byte(n)})
		v.Nodes[addr] = &coe.Node{UID: addr.String(), HostName: fmt.Sprint("node-", n), InternalIP: addr, Zone: fmt.Sprint("zone-", n%3)}
	}
	for i := range services {
		name := fmt.Sprintf("service-%03d", i)
		v.Services = append(v.Services, &coe.Service{
			UID: name, Name: name, Namespace: "default", ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})},
			Ports: []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80}},
		})
		e := &coe.Endpoints{
			UID: name, Name: name, Namespace: "default", PortsByName: true, Ports: []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: 8080}},
		}
		for n := range endpoints {
			e.Addresses = append(e.Addresses, netip.AddrFrom4([4]byte{10, byte(i), 0, byte(n)}))
			e.Places = append(e.Places, coe.Place{Node: fmt.Sprint("node-", (i+n)%nodes)})
		}
		v.Endpoints = append(v.Endpoints, e)
	}
	return synth.WithVIPs(v)
}

// BenchmarkPolicies changes the labels of one pod of a namespace with 20 policies, maps the
// namespace and computes the difference; and the same after a change of the policies. Each
// policy selects a tenth of the pods, and allows another tenth.
func BenchmarkPolicies(b *testing.B) {
	settings := mapping.Settings{}
	for _, pods := range []int{250, 10_000} {
		for name, replaced := range map[string]bool{"label": false, "policies": true} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, pods), func(b *testing.B) {
				v := synth.View(pods)
				v.PolicySet = policySet(v.Namespace, 20)
				for i, p := range v.Pods {
					p.Labels = app(i)
				}
				m := mapping.NewMapper(nil, settings)
				have, problems := m.Map(v)
				require.Empty(b, problems)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					changed := *v.Pods[i%pods]
					changed.Labels = app(i%pods + i/pods + 1)
					v.Pods[i%pods] = &changed
					if replaced {
						set := *v.PolicySet
						v.PolicySet = &set
					}
					want, _ := m.Map(v)
					if changes := netvirt.DiffParts(have, want); len(changes) != 1 {
						b.Fatalf("%d changes, want 1", len(changes))
					}
					have = want
				}
			})
		}
	}
}

func app(i int) coe.Labels { return coe.NewLabels(map[string]string{"app": fmt.Sprint(i % 10)}) }

func policySet(namespace string, policies int) *coe.PolicySet {
	set := &coe.PolicySet{Complete: true}
	for n := range policies {
		selects := func(i int) coe.Selector {
			return coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{fmt.Sprint(i % 10)}}}}
		}
		set.Policies = append(set.Policies, &coe.PolicySpec{
			Policy: coe.Policy{Namespace: namespace, Name: fmt.Sprintf("policy%02d", n), Kind: coe.NetworkPolicy},
			Pods:   selects(n),
			Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{
				Peers: []coe.PolicyPeer{{Pods: selects(n + 1)}}, Ports: []coe.PolicyPort{{Protocol: "tcp", First: 80, Last: 80}},
			}}},
		})
	}
	return set
}

func benchmarkMapDiff[M any](b *testing.B, pods int, mapOf func(coe.View) (M, []coe.Problem), diff func(have, want M) []netvirt.Change) {
	v := synth.View(pods)
	have, problems := mapOf(v)
	require.Empty(b, problems)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		synth.ChangePod(v, i)
		want, _ := mapOf(v)
		if changes := diff(have, want); len(changes) != 2 {
			b.Fatalf("%d changes, want 2", len(changes))
		}
		have = want
	}
}
