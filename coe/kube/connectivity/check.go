// Package connectivity plans the checks of a cluster's network, and judges what their probes find. It is
// pure: connectivity/cluster creates the pods and runs the probes.
package connectivity

import (
	"fmt"
	"net/netip"
	"slices"
)

// Kind is the kind of a check.
type Kind string

// The kinds, in the order in which they are shown.
const (
	PodStart      Kind = "pod-start"
	SameNode      Kind = "same-node"
	OtherNode     Kind = "other-node"
	FullPackets   Kind = "mtu"
	PodToService  Kind = "service"
	DNS           Kind = "dns"
	Hairpin       Kind = "hairpin"
	PodToNode     Kind = "pod-to-node"
	NodeToPod     Kind = "node-to-pod"
	NodeToService Kind = "node-to-service"
	NodePort      Kind = "node-port"
	FromOutside   Kind = "from-outside"
	Outside       Kind = "outside"
	PolicyDeny    Kind = "policy-deny"
	PolicyAllow   Kind = "policy-allow"
)

// kinds are all kinds in their order, with what their checks check, and what to do about a failure. There
// FROM, TO and BOTH stand for the nodes of the path. Later kinds need what earlier kinds check.
var kinds = []struct {
	kind        Kind
	title, next string
}{
	{
		PodStart, "the pods of the test start",
		"run coe-bridge doctor on node FROM; repeat the test with --keep and look at kubectl describe pod and coe-bridge trace",
	},
	{SameNode, "pod to pod on its node", "check the switch of node FROM: run coe-bridge doctor there, and coe-bridge status"},
	{
		OtherNode, "pod to pod on another node",
		"let nodes BOTH exchange the packets of tunnels (Geneve: UDP port 6081, VXLAN: UDP port 4789), and run coe-bridge doctor on both",
	},
	{
		FullPackets, "packets as large as the MTU",
		"if small packets arrive: give pods a smaller MTU, or raise the MTU of the network between nodes, because tunnels add a header",
	},
	{
		PodToService, "pod to the cluster IP of a service",
		"if the same pods reach each other: check what serves cluster IPs (with coe-bridge: coe-bridge status and get problems; else kube-proxy)",
	},
	{DNS, "pod to a service by its name", "check the pods of the name server: kubectl -n kube-system get pods -l k8s-app=kube-dns"},
	{Hairpin, "pod to itself through its service", "check what serves cluster IPs, and its hairpin mode: a pod is not a client of its own service"},
	{PodToNode, "pod to node", "let a firewall of node TO accept packets of pods; with coe-bridge see docs/nodes.md"},
	{NodeToPod, "node to pod", "check the routes of node FROM to pods; with coe-bridge see docs/nodes.md"},
	{NodeToService, "node to the cluster IP of a service", "check the routes of node FROM to services; with coe-bridge see docs/nodes.md"},
	{NodePort, "node to a NodePort", "check what serves node ports (kube-proxy, or the network of pods); if nothing does, use --skip node-port,from-outside"},
	{
		FromOutside, "this machine to a NodePort",
		"if nodes reach their NodePorts: let firewalls between this machine and node TO accept them, or use --skip from-outside",
	},
	{Outside, "pod to an address outside of the cluster", "connect to the address from node FROM itself; if that works, check the route and NAT of pods"},
	{
		PolicyDeny, "a network policy denies all",
		"if the network enforces no policies, use --skip policy-deny,policy-allow; with coe-bridge: coe-bridge get problems",
	},
	{PolicyAllow, "a network policy allows one pod", "with coe-bridge: coe-bridge get problems, and coe-bridge policy explain"},
}

// Kinds returns all kinds, in the order in which they are shown.
func Kinds() (all []Kind) {
	for _, k := range kinds {
		all = append(all, k.kind)
	}
	return all
}

// Title says what the checks of a kind check.
func (k Kind) Title() string {
	for _, known := range kinds {
		if known.kind == k {
			return known.title
		}
	}
	return ""
}

// Stage is a state of the cluster in which checks run.
type Stage int

// The stages follow each other.
const (
	Open    Stage = iota // without network policies
	Denied               // a policy isolates the servers
	Allowed              // another policy allows the connections of the first client
)

// String describes the state of the cluster.
func (s Stage) String() string {
	return [...]string{"without network policies", "under a policy that denies all", "under a policy that allows one client"}[s]
}

// Protocol is the transport protocol of a probe.
type Protocol string

// The protocols.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// Check is one path that is tried. The zero Family and Protocol mean that the check has none.
type Check struct {
	Kind     Kind     `json:"check"`
	Family   string   `json:"family,omitempty"` // IPv4 or IPv6
	Protocol Protocol `json:"protocol,omitempty"`
	From     string   `json:"from,omitempty"` // the pod
	FromNode string   `json:"fromNode,omitempty"`
	To       string   `json:"to,omitempty"` // the pod, service or node
	ToNode   string   `json:"toNode,omitempty"`
	Target   string   `json:"target,omitempty"` // HOST:PORT
	// Bytes is the size of the packet, with its IP header, of FullPackets.
	Bytes int `json:"bytes,omitempty"`
	// Blocked reports that the connection must not succeed.
	Blocked bool `json:"blocked,omitempty"`

	Stage Stage `json:"-"`
	// Skip is the reason why the check is not run. Empty for a check that is run.
	Skip string `json:"-"`
	// Problem is the reason of a failure that is known without a probe.
	Problem string `json:"-"`
	// RefusedOpen reports, for a Blocked check, that the server refuses connections also without a policy.
	RefusedOpen bool `json:"-"`
}

// Role is what a pod is for.
type Role string

// The roles.
const (
	Client Role = "client" // connects
	Server Role = "server" // answers at Port
	Host   Role = "host"   // connects from the network of its node
)

// Port is the TCP and UDP port of servers and services.
const Port = 8080

// Facts are what the cluster has made of the objects of the test.
type Facts struct {
	Nodes []Node
	// Unused are the nodes on which no pod of the test can run.
	Unused []UnusedNode
	// AllNodes is the number of nodes of the cluster.
	AllNodes int
	Pods     []Pod
	Services []Service
	// NodePorts are services of the type NodePort.
	NodePorts []Service
	Machine   Machine
	// DNS reports whether the cluster has a name server.
	DNS bool
	// Outside is HOST:PORT outside of the cluster; empty if the user names none.
	Outside string
}

// Node is a node of the test.
type Node struct {
	Name      string
	Addresses []netip.Addr
	// Port is the TCP port of its kubelet, which pods connect to.
	Port uint16
}

// Machine is the machine on which the test runs.
type Machine struct {
	Addresses []netip.Addr
	// Inside is the reason why it does not count as a client outside of the cluster; empty if it does.
	Inside string
}

// ThisMachine is Check.From of the checks from Machine.
const ThisMachine = "this machine"

// UnusedNode is a node on which no pod of the test can run.
type UnusedNode struct {
	Name, Reason string
	// IsBroken reports that the node should run pods, but cannot.
	IsBroken bool
}

// Pod is a pod of the test.
type Pod struct {
	Name, Node string
	Role       Role
	Addresses  []netip.Addr
	// MTU is the MTU of its interface; 0 if it is unknown.
	MTU int
	// Problem is the reason why the pod does not run.
	Problem string
}

// Service is a service whose only endpoint is the server of a node.
type Service struct {
	Name, Node string
	Addresses  []netip.Addr
	// NodePorts has a port for each protocol.
	NodePorts map[Protocol]uint16
	// Problem is the reason why the API server has refused the service.
	Problem string
}

// families are the address families in the order of checks.
var families = [...]struct {
	name string
	of   func(netip.Addr) bool
	// headers is the size of the headers of IP and UDP.
	headers int
}{
	{"IPv4", netip.Addr.Is4, 20 + 8},
	{"IPv6", netip.Addr.Is6, 40 + 8},
}

// maxBytes is the largest packet of FullPackets, as large as jumbo frames. Only links within a machine
// have larger MTUs.
const maxBytes = 9216

// UDPData returns the size of the payload of a UDP packet of c.Bytes; 0 if the check does not set its size.
func (c Check) UDPData() int {
	for _, f := range families {
		if c.Family == f.name && c.Bytes > f.headers {
			return c.Bytes - f.headers
		}
	}
	return 0
}

// Way describes the path in a line.
func (c Check) Way() string {
	on := func(what, node string) string {
		if what == "" {
			return node
		}
		if node == "" || node == what {
			return what
		}
		return what + " on " + node
	}
	way := on(c.From, c.FromNode)
	if c.To != "" {
		way += " -> " + on(c.To, c.ToNode)
	}
	if c.Target != "" && c.Target != c.To {
		way += fmt.Sprintf(" (%s %s)", c.Protocol, c.Target)
	}
	return way
}

// Plan returns the checks that facts allow, without the kinds to skip. A kind that cannot be checked has
// one check, which is skipped with the reason.
func Plan(f Facts, skip []Kind) []Check {
	p := planner{facts: f}
	p.start()
	p.pods()
	p.fullPackets()
	p.services()
	p.names()
	p.hairpin()
	p.nodes()
	p.nodePorts()
	p.fromOutside()
	p.outside()
	p.policies()
	return slices.DeleteFunc(p.checks, func(c Check) bool { return c.Kind != PodStart && slices.Contains(skip, c.Kind) })
}
