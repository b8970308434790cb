package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// exposure has the settings of the bridge that say which ports nodes answer on.
type exposure struct {
	mapping flags.Mapping
	nodes   flags.Nodes
}

func (e *exposure) register(cmd *cobra.Command) {
	e.mapping.RegisterIsolation(cmd)
	e.nodes.Register(cmd)
}

// shownService is the service to which a node port or an external address leads.
type shownService struct {
	Name string `json:"name"` // NAMESPACE/NAME
	// Port is the port of the service, as NUMBER/PROTOCOL.
	Port                  string `json:"port"`
	ExternalTrafficPolicy string `json:"externalTrafficPolicy"`
	// Way is "node port" or "external address".
	Way string `json:"way"`
}

func (s *shownService) String() string {
	return fmt.Sprintf("%s of service %s, externalTrafficPolicy %s", s.Way, s.Name, s.ExternalTrafficPolicy)
}

// askExposed asks about each endpoint to which a port of a node or of an external address leads a client outside
// the cluster or a program of a node. The result is nil if nothing leads there. It reports problems of services at the address to w.
func askExposed(ctx context.Context, w io.Writer, c *cluster, settings *exposure, from, to string) (*shownAnswers, error) {
	target, port, err := splitPort(to)
	if err != nil {
		return nil, err
	}
	asked, err := netip.ParseAddr(strings.Trim(target, "[]"))
	if err != nil || !c.leads(asked.Unmap()) {
		return nil, nil
	}
	asked = asked.Unmap()
	cfg := plan.Config{}
	if cfg.Mapping, err = settings.mapping.Settings(); err != nil {
		return nil, err
	}
	if cfg.Nodes, err = settings.nodes.Config(nil); err != nil {
		return nil, err
	}
	all, err := plan.ExposedPorts(ctx, c.set, cfg)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all.Ports, func(p plan.Exposure) bool {
		every := isNodePort(p) && p.To.Addr().Is4() == asked.Is4() && c.isNode(asked)
		return p.Protocol == port.Protocol && p.Port == port.Number && (p.Address == asked || every)
	})
	if at < 0 {
		noteWhy(w, c, all, asked, port, cfg.Nodes.ServedPorts())
		return nil, nil
	}
	client, err := clientOf(c, all, from, asked)
	if err != nil {
		return nil, err
	}
	return judgeExposed(c, all, &all.Ports[at], asked, client, fmt.Sprintf("%s:%d/%s", target, port.Number, port.Protocol)), nil
}

// isNodePort reports whether a port is one of every address of the nodes of a family.
func isNodePort(p plan.Exposure) bool { return !p.Address.IsValid() || p.Address.IsUnspecified() }

// leads reports whether nodes may lead packets to an address elsewhere.
func (c *cluster) leads(a netip.Addr) bool { return c.isNode(a) || c.set.ServiceAt(a) != nil }

func (c *cluster) isNode(a netip.Addr) bool {
	end := c.At(a)[0]
	return end.Pod() == nil && end.Node() != ""
}

// noteWhy notes why nothing leads from a port elsewhere, if a service wants the port, or if it is one of the ports of --node-ports.
func noteWhy(w io.Writer, c *cluster, all *plan.Exposed, asked netip.Addr, port policy.Port, served coe.PortRange) {
	if !noteProblems(w, c, all, asked, port) && c.isNode(asked) && served.Contains(port.Number) {
		fmt.Fprintf(w, "note: no service has the node port %d/%s\n", port.Number, port.Protocol)
	}
}

// noteProblems notes the problems of services that want the port. It reports whether a service wants it.
func noteProblems(w io.Writer, c *cluster, all *plan.Exposed, asked netip.Addr, port policy.Port) (isWanted bool) {
	owner := c.set.ServiceAt(asked)
	for _, s := range c.set.Services {
		owns := owner != nil && owner.Namespace == s.Namespace && owner.Name == s.Name
		wants, number := false, int32(port.Number)
		for _, p := range s.Spec.Ports {
			protocol := strings.ToLower(cmp.Or(string(p.Protocol), "TCP"))
			wants = wants || protocol == port.Protocol && (owns && p.Port == number || c.isNode(asked) && p.NodePort == number)
		}
		isWanted = isWanted || wants
		for _, p := range all.Problems {
			if wants && p.Namespace == s.Namespace && p.Name == s.Name {
				fmt.Fprintf(w, "note: service %s/%s: %s: %s\n", output.OneLine(s.Namespace), output.OneLine(s.Name), p.Reason, output.OneLine(p.Message))
			}
		}
	}
	return isWanted
}

// clientOf returns a client outside the cluster, or a node whose program is the client, of an address.
func clientOf(c *cluster, all *plan.Exposed, from string, asked netip.Addr) (policy.End, error) {
	ends, err := endsOf(c, from)
	if err != nil {
		return policy.End{}, err
	}
	if pod := ends[0].Pod(); pod != nil && !pod.HostNetwork {
		return policy.End{}, errors.New("pods are not followed through nodes: name the pods of the service with --to")
	}
	at := slices.IndexFunc(ends, func(e policy.End) bool { return e.Addr().IsValid() && e.Addr().Is4() == asked.Is4() })
	if at < 0 {
		return policy.End{}, fmt.Errorf("%s: it is not of the same family as %s", from, asked)
	}
	client := ends[at]
	if client.Node() != "" && (!all.Nodes[client.Addr()].IsValid() || c.isNode(asked) && !all.Nodes[asked].IsValid()) {
		return policy.End{}, fmt.Errorf("node %s is followed only with internal addresses of nodes, in --from and --to", client.Node())
	}
	return client, nil
}

// judgeExposed judges the connections of a client to the endpoints of a port.
func judgeExposed(c *cluster, all *plan.Exposed, p *plan.Exposure, asked netip.Addr, client policy.End, to string) *shownAnswers {
	shown := &shownAnswers{
		From: client.Addr().String(), To: to,
		Service: &shownService{
			Name: p.Namespace + "/" + p.Service.Name, Port: fmt.Sprintf("%d/%s", p.To.Port(), p.Protocol),
			ExternalTrafficPolicy: "Cluster", Way: "node port",
		},
	}
	external := !isNodePort(*p)
	if external {
		shown.Service.Way = "external address"
	}
	if p.Service.Local {
		shown.Service.ExternalTrafficPolicy = "Local"
	}
	source, endpoints := leadsOutside(all, p, asked, client)
	if client.Node() != "" {
		source, endpoints = leadsProgram(all, p, asked, client)
	}
	switch {
	case p.Restricted && !slices.ContainsFunc(p.Sources, func(s netip.Prefix) bool { return s.Contains(client.Addr()) }):
		shown.Why = "no loadBalancerSourceRanges of the service has the client"
		return shown
	case len(endpoints) == 0 && p.Local && !p.Refuses && !external:
		shown.Why = "the service has no endpoint on the node that is asked, so nobody answers"
		return shown
	case len(endpoints) == 0:
		shown.Why = "the service has no endpoint"
		return shown
	}
	shown.Allowed = true
	for _, e := range endpoints {
		port := policy.Port{Protocol: p.Protocol, Number: e.Port()}
		for _, end := range c.At(e.Addr()) {
			shown.add(source, end, port, c.Judge(source, end, port))
			last := &shown.Answers[len(shown.Answers)-1]
			last.from, last.ToPort, last.to = client.Addr().String(), e.Port(), nameOf(end)
		}
	}
	return shown
}

// leadsOutside returns what endpoints see of a client outside that asks a port, and these endpoints. An endpoint on another node
// than the asked one sees the edge address of that node.
func leadsOutside(all *plan.Exposed, p *plan.Exposure, asked netip.Addr, client policy.End) (policy.End, []netip.AddrPort) {
	switch {
	case !p.Local:
		return policy.Outside(edgeOf(all, asked)), p.All
	case isNodePort(*p):
		node, internal := all.Nodes[asked]
		if !internal {
			node = all.External[asked]
		}
		return client, p.Endpoints[node]
	}
	var endpoints []netip.AddrPort // any node may be asked
	for _, here := range p.Endpoints {
		endpoints = append(endpoints, here...)
	}
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return client, endpoints
}

// leadsProgram returns what endpoints see of a program of a node that asks a port, and these endpoints. Its own node leads it to a
// shared port, at the first internal address of a node. Otherwise the program reaches the cluster address at its own node, or
// is a client of the asked node.
func leadsProgram(all *plan.Exposed, p *plan.Exposure, asked netip.Addr, client policy.End) (policy.End, []netip.AddrPort) {
	node, first := all.Nodes[asked], all.Nodes[client.Addr()]
	own := node == first || !isNodePort(*p)
	led := p.Shared && asked == node
	switch {
	case own && led && p.Every:
		return client, p.All
	case own:
		return client.From(all.Addresses[client.Addr()].Service), p.All
	case p.Local && (led || client.Addr() != first): // the asked node keeps a second address too
		return client, p.Endpoints[node]
	case p.Local:
		return policy.Outside(edgeOf(all, asked)), p.Endpoints[node]
	}
	return policy.Outside(edgeOf(all, asked)), p.All
}

// edgeOf returns the edge address of a node; for the address of no node that of the first node with one of its family.
func edgeOf(all *plan.Exposed, asked netip.Addr) (edge netip.Addr) {
	if a, found := all.Addresses[asked]; found {
		return a.Edge
	}
	for _, a := range all.Addresses {
		if a.Edge.Is4() == asked.Is4() && (!edge.IsValid() || edge.Less(a.Edge)) {
			edge = a.Edge
		}
	}
	return edge
}
