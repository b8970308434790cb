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
// the cluster. The result is nil if nothing leads there. It reports problems of services at the address to w.
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
		noteProblems(w, c, all, asked, port)
		return nil, nil
	}
	client, err := clientOutside(c, from, asked)
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

// noteProblems notes the problems of services that want the port.
func noteProblems(w io.Writer, c *cluster, all *plan.Exposed, asked netip.Addr, port policy.Port) {
	owner := c.set.ServiceAt(asked)
	for _, s := range c.set.Services {
		owns := owner != nil && owner.Namespace == s.Namespace && owner.Name == s.Name
		wants, number := false, int32(port.Number)
		for _, p := range s.Spec.Ports {
			protocol := strings.ToLower(cmp.Or(string(p.Protocol), "TCP"))
			wants = wants || protocol == port.Protocol && (owns && p.Port == number || c.isNode(asked) && p.NodePort == number)
		}
		for _, p := range all.Problems {
			if wants && p.Namespace == s.Namespace && p.Name == s.Name {
				fmt.Fprintf(w, "note: service %s/%s: %s: %s\n", output.OneLine(s.Namespace), output.OneLine(s.Name), p.Reason, output.OneLine(p.Message))
			}
		}
	}
}

// clientOutside returns the address of a client outside the cluster that asks an address.
func clientOutside(c *cluster, from string, asked netip.Addr) (netip.Addr, error) {
	ends, err := endsOf(c, from)
	if err != nil {
		return netip.Addr{}, err
	}
	if ends[0].Pod() != nil || ends[0].Node() != "" {
		return netip.Addr{}, errors.New("only clients outside the cluster are followed through nodes: for a pod or a node, name the pods of the service with --to")
	}
	client := ends[0].Addr()
	if client.Is4() != asked.Is4() {
		return netip.Addr{}, fmt.Errorf("%s: it is not of the same family as %s", from, asked)
	}
	return client, nil
}

// judgeExposed judges the connections of a client to the endpoints of a port. An endpoint on another node than the
// asked one sees the edge address of that node.
func judgeExposed(c *cluster, all *plan.Exposed, p *plan.Exposure, asked, client netip.Addr, to string) *shownAnswers {
	shown := &shownAnswers{
		From: client.String(), To: to,
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
	source, endpoints := policy.Outside(client), p.All
	if p.Local {
		endpoints = p.Endpoints[all.Nodes[asked]]
		if external { // any node may be asked
			endpoints = nil
			for _, here := range p.Endpoints {
				endpoints = append(endpoints, here...)
			}
			slices.SortFunc(endpoints, netip.AddrPort.Compare)
		}
	} else {
		source = policy.Outside(edgeOf(all, asked))
	}
	switch {
	case p.Restricted && !slices.ContainsFunc(p.Sources, func(s netip.Prefix) bool { return s.Contains(client) }):
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
			last.from, last.ToPort, last.to = client.String(), e.Port(), nameOf(end)
		}
	}
	return shown
}

// edgeOf returns the edge address of a node; for the address of no node that of the first node with one of its family.
func edgeOf(all *plan.Exposed, asked netip.Addr) (edge netip.Addr) {
	if e, found := all.Edges[asked]; found {
		return e
	}
	for _, e := range all.Edges {
		if e.Is4() == asked.Is4() && (!edge.IsValid() || edge.Less(e)) {
			edge = e
		}
	}
	return edge
}
