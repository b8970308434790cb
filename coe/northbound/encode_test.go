package northbound_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/yang"
)

// anyEntities generates arbitrary entities.
type anyEntities struct{ *rand.Rand }

func newEntities(seed uint64) anyEntities { return anyEntities{rand.New(rand.NewPCG(seed, 0))} }

// some generates up to three values.
func some[T any](r anyEntities, one func() T) []T {
	var out []T
	for range r.IntN(4) {
		out = append(out, one())
	}
	return out
}

// maybe generates a value or nothing.
func maybe[T any](r anyEntities, one func() T) (out T) {
	if r.IntN(3) > 0 {
		out = one()
	}
	return out
}

func (r anyEntities) uid() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint32(), r.Uint64()>>16)
}

func (r anyEntities) name() string {
	return []string{"web", "x.y-z", `q"u\o<t>e&`, "naïve", "行", "tab\there", "\u2028", "😀"}[r.IntN(8)]
}

func (r anyEntities) v4() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
}

func (r anyEntities) address() netip.Addr {
	if r.IntN(2) == 0 {
		return r.v4()
	}
	a := [16]byte{0: 0xfd, 15: byte(r.IntN(256))}
	a[r.IntN(16)] = byte(r.IntN(256))
	return netip.AddrFrom16(a)
}

// families generates up to two addresses of different families.
func (r anyEntities) families() []netip.Addr {
	out := some(r, r.address)
	return slices.CompactFunc(out[:min(2, len(out))], func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
}

func (r anyEntities) port() uint16     { return uint16(1 + r.IntN(65535)) }
func (r anyEntities) protocol() string { return []string{"tcp", "udp", "sctp"}[r.IntN(3)] }

func (r anyEntities) pod() *coe.Pod {
	return &coe.Pod{
		UID: r.uid(), Name: maybe(r, r.name), Namespace: r.name(), NodeName: maybe(r, r.name), HostIP: maybe(r, r.address),
		MAC: maybe(r, func() string { return "0a:58:0a:00:00:01" }), NoNetwork: r.IntN(2) == 0,
		Reported: coe.Reported{Revision: "17"}, Labels: coe.Labels{}.WithProfiles(some(r, r.name)...),
		Interfaces: some(r, func() coe.PodInterface {
			return coe.PodInterface{
				UID: r.uid(), Addresses: r.families(), SegmentationID: maybe(r, r.Uint32),
				NetworkType: maybe(r, func() string { return []string{"FLAT", "VLAN", "VXLAN", "GRE"}[r.IntN(4)] }),
			}
		}),
	}
}

func (r anyEntities) service() *coe.Service {
	return &coe.Service{
		UID: r.uid(), Name: maybe(r, r.name), Namespace: r.name(), ClusterIPs: r.families(), Headless: r.IntN(2) == 0,
		ExternalIPs: some(r, r.v4), PodEndpoints: some(r, r.uid), Affinity: r.Uint32(),
		Ports: some(r, func() coe.ServicePort {
			return coe.ServicePort{
				Name: maybe(r, r.name), Protocol: r.protocol(), Port: r.port(),
				TargetPort: maybe(r, func() string { return "8080" }), NodePort: maybe(r, r.port),
			}
		}),
	}
}

func (r anyEntities) endpoints() *coe.Endpoints {
	return &coe.Endpoints{
		UID: r.uid(), Name: maybe(r, r.name), Namespace: r.name(), Addresses: some(r, r.address), Terminating: some(r, r.address),
		PortsByName: r.IntN(2) == 0,
		Ports: some(r, func() coe.EndpointPort {
			return coe.EndpointPort{Name: maybe(r, r.name), Protocol: r.protocol(), Port: r.port()}
		}),
	}
}

func (r anyEntities) node() *coe.Node {
	return &coe.Node{
		UID: r.uid(), HostName: maybe(r, r.name), InternalIP: maybe(r, r.address), ExternalIP: maybe(r, r.address),
		PodCIDRs: some(r, func() netip.Prefix { return netip.PrefixFrom(r.v4(), 24).Masked() }),
	}
}

// sayablePod returns p without fields that the model lacks. The functions below do the same for
// the other entities.
func sayablePod(p *coe.Pod) *coe.Pod {
	out := *p
	out.NodeName, out.NoNetwork, out.Reported, out.DHCP = "", false, coe.Reported{}, true
	out.Interfaces = slices.Clone(p.Interfaces)
	for i := range out.Interfaces {
		out.Interfaces[i].Addresses = atMostOne(out.Interfaces[i].Addresses)
	}
	return &out
}

func sayableService(s *coe.Service) *coe.Service {
	out := *s
	out.Headless, out.Affinity, out.ClusterIPs = false, 0, atMostOne(s.ClusterIPs)
	out.Ports = slices.Clone(s.Ports)
	for i := range out.Ports {
		out.Ports[i].Protocol = "tcp"
	}
	return &out
}

func sayableEndpoints(e *coe.Endpoints) *coe.Endpoints {
	out := *e
	out.Terminating, out.PortsByName = nil, false
	out.Ports = slices.Clone(e.Ports)
	for i := range out.Ports {
		out.Ports[i].Protocol = "tcp"
	}
	return &out
}

func sayableNode(n *coe.Node) *coe.Node {
	out := *n
	out.PodCIDRs = atMostOne(n.PodCIDRs)
	return &out
}

func atMostOne[T any](all []T) []T {
	if len(all) == 0 {
		return nil
	}
	return all[:1]
}

// Encoding and decoding returns the same entity, except for fields that the model lacks. The
// encoding is canonical by the YANG modules.
func FuzzEncode(f *testing.F) {
	schema, err := yang.Load()
	require.NoError(f, err)
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := newEntities(seed)
		law(t, schema, northbound.Pods, northbound.AppendPod, northbound.Pod, sayablePod, r.pod())
		law(t, schema, northbound.Services, northbound.AppendService, northbound.Service, sayableService, r.service())
		law(t, schema, northbound.EndpointsList, northbound.AppendEndpoints, northbound.Endpoints, sayableEndpoints, r.endpoints())
		law(t, schema, northbound.Nodes, northbound.AppendNode, northbound.Node, sayableNode, r.node())
	})
}

func law[T any](t *testing.T, schema *yang.Schema, list string, write func([]byte, *T) []byte, read func([]byte) (*T, error), sayable func(*T) *T, said *T) {
	t.Helper()
	raw := write([]byte("before"), said)
	raw, ok := bytes.CutPrefix(raw, []byte("before"))
	require.True(t, ok)
	got, err := read(raw)
	require.NoError(t, err, "%s", raw)
	require.Equal(t, sayable(said), got, "%s", raw)

	module, path, _ := strings.Cut(list, ":")
	top, name, _ := strings.Cut(path, "/")
	node := schema.Module(module).Child(top)
	entries, err := schema.DecodeJSON([]byte(`{"`+module+`:`+name+`":[`+string(raw)+`]}`), node, "", yang.Strict)
	require.NoError(t, err, "%s", raw)
	require.NoError(t, schema.Validate(entries[0], "", nil))
	stored, err := yang.DecodeObject(raw, entries[0].Node)
	require.NoError(t, err)
	require.Equal(t, entries[0], stored, "the values are canonical, in schema order")
}

// A leaf-list has no duplicates, even if a service has.
func TestLeafListsAreSets(t *testing.T) {
	a, b := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	raw := northbound.AppendService(nil, &coe.Service{UID: "u", ExternalIPs: []netip.Addr{a, a, b, a}, PodEndpoints: []string{"e", "e"}})
	require.JSONEq(t, `{"uid":"u","external-ip-address":["203.0.113.1","203.0.113.2"],"endpoints":["e"]}`, string(raw))
}

// libyang accepts the encoding.
func TestYanglintTakesWhatIsWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("needs yanglint")
	}
	lint, err := exec.LookPath("yanglint")
	require.NoError(t, err, "install the Debian package libyang-tools")
	var pods, services, endpoints, nodes []string
	for seed := range uint64(200) {
		r := newEntities(seed)
		pods = append(pods, string(northbound.AppendPod(nil, r.pod())))
		services = append(services, string(northbound.AppendService(nil, r.service())))
		endpoints = append(endpoints, string(northbound.AppendEndpoints(nil, r.endpoints())))
		nodes = append(nodes, string(northbound.AppendNode(nil, r.node())))
	}
	list := func(entries []string) string { return "[" + strings.Join(entries, ",") + "]" }
	document := `{"pod:coe":{"pods":` + list(pods) + `},
		"service:service-information":{"services":` + list(services) + `},"service:endpoints-info":{"endpoints":` + list(endpoints) + `},
		"k8s-node:k8s-nodes-info":{"k8s-nodes":` + list(nodes) + `}}`
	const modules = "../../yang/"
	judge := func(document string) error {
		file := filepath.Join(t.TempDir(), "data.json")
		require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
		return exec.CommandContext(t.Context(), lint, "-t", "data", "-f", "json", "-p", modules,
			modules+"pod.yang", modules+"coe-profiles.yang", modules+"service.yang", modules+"k8s-node.yang", file).Run()
	}
	require.NoError(t, judge(document))
	require.Error(t, judge(strings.Replace(document, `"segmentation-id":`, `"segmentation-id":-`, 1)), "libyang rejects invalid documents")
}
