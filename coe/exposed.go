package coe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ExposedPort is a port on which every node answers for a service.
type ExposedPort struct {
	// Address is an external address of the service, or its cluster address; zero for all IPv4 addresses of the nodes, :: for all IPv6
	// addresses. To, Endpoints and Direct are of the same family.
	Address netip.Addr `json:"address,omitzero"`
	// Own: nodes lead only their own programs, not other clients. Address is the cluster address.
	Own       bool   `json:"own,omitempty"`
	Protocol  string `json:"protocol"` // "tcp", "udp", "sctp"
	Port      uint16 `json:"port"`
	Namespace string `json:"namespace"` // of the service
	// Health is set for a port on which nodes answer themselves; To and the fields after it are zero then.
	Health *ReadyCount `json:"health,omitempty"`
	// To is the cluster address of the service, with its port.
	To netip.AddrPort `json:"to,omitzero"`
	// Restricted: only clients in Sources reach an external address.
	Restricted bool           `json:"restricted,omitempty"`
	Sources    []netip.Prefix `json:"sources,omitempty"`
	// Local: clients reach only Endpoints of the node that they ask.
	Local bool `json:"local,omitempty"`
	// Refuses: the port is local and has no endpoint on any node, so nodes refuse clients. Otherwise clients wait for an
	// endpoint on the node that they ask.
	Refuses bool `json:"refuses,omitempty"`
	// Affinity is how many seconds a client keeps its endpoint of Endpoints or Direct after a connection; 0: no affinity.
	Affinity uint32 `json:"affinity,omitempty"`
	// Endpoints are the endpoints that are pods, by node, if Local. Endpoints of a cluster address can be addresses of the
	// node too. Otherwise they are what a node leads clients to instead of Direct, because of hints of the endpoints.
	Endpoints map[netip.Addr][]netip.AddrPort `json:"endpoints,omitempty"`
	// Shared: every node has Endpoints of all nodes, for its own programs. They are at most MaxExposedEndpoints. Every: they are all
	// endpoints that serve the port.
	Shared bool `json:"shared,omitempty"`
	Every  bool `json:"every,omitempty"`
	// Inside are the endpoints on all nodes that are pods, to which every node leads pods and its own programs. They are only known if Local,
	// and if nodes balance, at most MaxExposedEndpoints.
	Inside []InsideEndpoint `json:"inside,omitempty"`
	// Direct are the endpoints on all nodes, to which every node leads clients; only if not Local. Without any, nodes
	// lead clients to To.
	Direct []netip.AddrPort `json:"direct,omitempty"`
}

// InsideEndpoint is an endpoint, with the node of its pod.
type InsideEndpoint struct {
	At   netip.AddrPort `json:"at"`
	Node netip.Addr     `json:"node"`
}

// ReadyCount says which nodes have endpoints of a service, for load balancers.
type ReadyCount struct {
	Service string `json:"service"` // its name
	// Ready is how many ready endpoints are pods on each node.
	Ready map[netip.Addr]int `json:"ready,omitempty"`
}

// Name identifies the port: "tcp/30080", "tcp/30080/::", "tcp/80/192.0.2.10", "own/tcp/80/10.96.0.10", or "health/30081".
func (p *ExposedPort) Name() string {
	number := strconv.Itoa(int(p.Port))
	switch {
	case p.Own:
		return "own/" + p.Protocol + "/" + number + "/" + p.Address.String()
	case p.Health != nil:
		return "health/" + number
	case p.Address.IsValid():
		return p.Protocol + "/" + number + "/" + p.Address.String()
	}
	return p.Protocol + "/" + number
}

// PortRange is a range of ports. The zero value has none.
type PortRange struct{ First, Last uint16 }

// Contains reports whether the range has a port.
func (r PortRange) Contains(port uint16) bool { return port != 0 && r.First <= port && port <= r.Last }

// String returns the range as ParsePortRange reads it.
func (r PortRange) String() string {
	if r == (PortRange{}) {
		return "(none)"
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Overlaps reports whether both ranges have a port.
func (r PortRange) Overlaps(o PortRange) bool {
	return r != PortRange{} && o != PortRange{} && r.First <= o.Last && o.First <= r.Last
}

// MarshalText implements encoding.TextMarshaler.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *PortRange) UnmarshalText(text []byte) (err error) {
	*r, err = ParsePortRange(string(text))
	return err
}

// ParsePortRange reads a range such as "30000-32767".
func ParsePortRange(text string) (r PortRange, err error) {
	if _, err = fmt.Sscanf(text, "%d-%d", &r.First, &r.Last); err != nil || r.First == 0 || r.First > r.Last || r.String() != text {
		return PortRange{}, fmt.Errorf("%q: want two ports in ascending order, such as 30000-32767", text)
	}
	return r, nil
}

// maxPortRanges bounds the result of ParsePorts: each range is a part of ACLs.
const maxPortRanges = 100

// ParsePorts reads ports and ranges of ports, such as "80" and "8000-8999". It returns the fewest ranges, sorted.
func ParsePorts(texts []string) (all []PortRange, err error) {
	for _, text := range texts {
		of := text
		if !strings.Contains(text, "-") {
			of = text + "-" + text
		}
		r, err := ParsePortRange(of)
		if err != nil {
			return nil, fmt.Errorf("%q: want a port, or two in ascending order, such as 80 or 8000-8999", text)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	merged := all[:0]
	for _, r := range all {
		switch last := len(merged) - 1; {
		case last >= 0 && r.Overlaps(merged[last]):
			return nil, fmt.Errorf("%s and %s overlap", r, merged[last])
		case last >= 0 && r.First == merged[last].Last+1:
			merged[last].Last = r.Last
		default:
			merged = append(merged, r)
		}
	}
	if len(merged) > maxPortRanges {
		return nil, fmt.Errorf("%d ranges of ports: want at most %d", len(merged), maxPortRanges)
	}
	return merged, nil
}
