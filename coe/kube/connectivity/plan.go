package connectivity

import (
	"net/netip"
	"slices"
	"strconv"
)

// planner collects checks.
type planner struct {
	facts  Facts
	checks []Check
}

// add adds the checks of a kind. Without any it adds one that is skipped for a reason.
func (p *planner) add(kind Kind, checks []Check, without string) {
	if len(checks) == 0 {
		checks = []Check{{Skip: without}}
	}
	for _, c := range checks {
		c.Kind = kind
		p.checks = append(p.checks, c)
	}
}

// role returns the pods of a role.
func (p *planner) role(role Role) (pods []Pod) {
	for _, pod := range p.facts.Pods {
		if pod.Role == role {
			pods = append(pods, pod)
		}
	}
	return pods
}

// end is what a probe connects to. Its checks are skipped if skip has a reason, and fail if problem has one.
type end struct {
	name, node    string
	addresses     []netip.Addr
	ports         map[Protocol]uint16
	skip, problem string
}

// both returns a port with the same number for each protocol.
func both(port uint16) map[Protocol]uint16 { return map[Protocol]uint16{TCP: port, UDP: port} }

func (p Pod) end() end { return end{p.Name, p.Node, p.Addresses, both(Port), p.skipReason(), ""} }

func (p *planner) serviceEnds() (ends []end) {
	for _, s := range p.facts.Services {
		ends = append(ends, end{s.Name, s.Node, s.Addresses, both(Port), p.serverSkip(s), s.Problem})
	}
	return ends
}

func (p *planner) nodeEnds() (ends []end) {
	for _, n := range p.facts.Nodes {
		ends = append(ends, end{n.Name, n.Name, n.Addresses, both(n.Port), "", ""})
	}
	return ends
}

// serverSkip returns why the server of a service cannot answer.
func (p *planner) serverSkip(s Service) string {
	for _, pod := range p.role(Server) {
		if pod.Node == s.Node {
			return pod.skipReason()
		}
	}
	return ""
}

func (p Pod) skipReason() string {
	if p.Problem == "" {
		return ""
	}
	return "pod " + p.Name + " does not run"
}

// known adds why a check from a pod to an end needs no probe.
func (c Check) known(from Pod, to end) Check {
	switch c.Skip = from.skipReason(); {
	case c.Skip != "":
	case to.problem != "":
		c.Problem = to.problem
	default:
		c.Skip = to.skip
	}
	return c
}

// between returns checks from a pod to an end, for each family that both have and each protocol.
func between(from Pod, to end, protocols ...Protocol) (checks []Check) {
	c := Check{From: from.Name, FromNode: from.Node, To: to.name, ToNode: to.node}
	if c = c.known(from, to); c.Skip != "" || c.Problem != "" {
		return []Check{c}
	}
	for _, f := range families {
		i := slices.IndexFunc(to.addresses, f.of)
		if i < 0 || !slices.ContainsFunc(from.Addresses, f.of) {
			continue
		}
		c.Family = f.name
		for _, c.Protocol = range protocols {
			c.Target = netip.AddrPortFrom(to.addresses[i], to.ports[c.Protocol]).String()
			checks = append(checks, c)
		}
	}
	return checks
}

// each returns the checks from each pod to each end.
func each(from []Pod, to []end, protocols ...Protocol) (checks []Check) {
	for _, pod := range from {
		for _, e := range to {
			checks = append(checks, between(pod, e, protocols...)...)
		}
	}
	return checks
}

func (p *planner) servers() (ends []end) {
	for _, pod := range p.role(Server) {
		ends = append(ends, pod.end())
	}
	return ends
}

func (p *planner) start() {
	var checks []Check
	for _, pod := range p.facts.Pods {
		checks = append(checks, Check{From: pod.Name, FromNode: pod.Node, Problem: pod.Problem})
	}
	for _, n := range p.facts.Unused {
		c := Check{FromNode: n.Name}
		if reason := "node " + n.Name + " " + n.Reason; n.IsBroken {
			c.Problem = reason
		} else {
			c.Skip = reason
		}
		checks = append(checks, c)
	}
	p.add(PodStart, checks, "")
}

// noFamily is the reason of a kind without checks.
const noFamily = "the pods have no address of the same family"

func (p *planner) pods() {
	var same, other []Check
	for _, c := range each(p.role(Client), p.servers(), TCP, UDP) {
		if c.FromNode == c.ToNode {
			same = append(same, c)
		} else {
			other = append(other, c)
		}
	}
	p.add(SameNode, same, noFamily)
	without := noFamily
	if len(p.facts.Nodes) == 1 {
		without = "the test has only one node"
	}
	p.add(OtherNode, other, without)
}

// fullPackets checks that packets as large as the MTU of the sender arrive. The sender's kernel sets DF,
// because they need no fragments.
func (p *planner) fullPackets() {
	var checks []Check
	for _, client := range p.role(Client) {
		for _, c := range each([]Pod{client}, p.servers(), UDP) {
			c.Bytes = min(client.MTU, maxBytes)
			if c.Skip == "" && c.UDPData() == 0 {
				c.Skip = "the MTU of pod " + client.Name + " is unknown"
			}
			checks = append(checks, c)
		}
	}
	p.add(FullPackets, checks, noFamily)
}

func (p *planner) services() {
	p.add(PodToService, each(p.role(Client), p.serviceEnds(), TCP, UDP), "no service has an address of a family of the pods")
}

func (p *planner) names() {
	if !p.facts.DNS {
		p.add(DNS, nil, "the cluster has no name server: no service of kube-system or openshift-dns has UDP port 53")
		return
	}
	var checks []Check
	for _, client := range p.role(Client) {
		for _, e := range p.serviceEnds() {
			c := Check{From: client.Name, FromNode: client.Node, To: e.name, ToNode: e.node, Protocol: TCP, Target: e.name + ":" + strconv.Itoa(Port)}
			checks = append(checks, c.known(client, e))
		}
	}
	p.add(DNS, checks, "the test has no service")
}

func (p *planner) hairpin() {
	var checks []Check
	for _, c := range each(p.role(Server), p.serviceEnds(), TCP) {
		if c.FromNode == c.ToNode {
			checks = append(checks, c)
		}
	}
	p.add(Hairpin, checks, "no service has an address of a family of the pods")
}

func (p *planner) nodes() {
	const without = "no pod has an address of a family of a node"
	p.add(PodToNode, each(p.role(Client), p.nodeEnds(), TCP), without)
	p.add(NodeToPod, each(p.role(Host), p.servers(), TCP), without)
	p.add(NodeToService, each(p.role(Host), p.serviceEnds(), TCP), "no service has an address of a family of a node")
}

// nodePorts checks that nodes reach node ports.
func (p *planner) nodePorts() {
	p.add(NodePort, each(p.role(Host), p.nodePortEnds(), TCP, UDP), "no node has an address of a family of the services")
}

// fromOutside checks that this machine reaches node ports.
func (p *planner) fromOutside() {
	if why := p.facts.Machine.Inside; why != "" {
		p.add(FromOutside, nil, why)
		return
	}
	machine := []Pod{{Name: ThisMachine, Addresses: p.facts.Machine.Addresses}}
	p.add(FromOutside, each(machine, p.nodePortEnds(), TCP, UDP), "this machine has no address of a family of the nodes and the services")
}

// nodePortEnds returns the node ports: each node serves a port of the server of the next node, in the families of the service.
func (p *planner) nodePortEnds() (ends []end) {
	for i, n := range p.nodeEnds() {
		n.ports = nil
		if len(p.facts.NodePorts) > 0 {
			s := p.facts.NodePorts[(i+1)%len(p.facts.NodePorts)]
			n.ports, n.skip, n.problem = s.NodePorts, p.serverSkip(s), s.Problem
			n.addresses = slices.DeleteFunc(slices.Clone(n.addresses), func(a netip.Addr) bool {
				return !slices.ContainsFunc(s.Addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
			})
		}
		if len(n.ports) == 0 && n.skip == "" {
			n.skip = "the services have no node port"
		}
		ends = append(ends, n)
	}
	return ends
}

func (p *planner) outside() {
	if p.facts.Outside == "" {
		p.add(Outside, nil, "no address is given: name one with --outside HOST:PORT")
		return
	}
	var checks []Check
	for _, client := range p.role(Client) {
		checks = append(checks, Check{
			From: client.Name, FromNode: client.Node, To: p.facts.Outside, Protocol: TCP, Target: p.facts.Outside, Skip: client.skipReason(),
		})
	}
	p.add(Outside, checks, "the test has no client")
}

// policies checks that the first policy denies the connections of all clients, and that the second
// allows only the first client.
func (p *planner) policies() {
	clients := p.role(Client)
	denied := each(clients, p.servers(), TCP)
	for i := range denied {
		denied[i].Stage, denied[i].Blocked = Denied, true
	}
	allowed := each(clients, p.servers(), TCP)
	for i, c := range allowed {
		allowed[i].Stage, allowed[i].Blocked = Allowed, c.From != clients[0].Name
	}
	p.add(PolicyDeny, denied, noFamily)
	p.add(PolicyAllow, allowed, noFamily)
}

// Select returns the checks of a stage. Later stages need the results of those before: a check of a
// policy is skipped unless its path has worked without one, because a broken path looks like a denied one.
func Select(checks []Check, stage Stage, before []Result) (selected []Check) {
	for _, c := range checks {
		if c.Stage != stage {
			continue
		}
		if stage != Open && c.Skip == "" {
			hasWorked := false
			for _, r := range before {
				if r.Stage == Open && r.Target == c.Target && r.Protocol == c.Protocol {
					hasWorked = hasWorked || r.Status == Passed && r.From == c.From
					c.RefusedOpen = c.RefusedOpen || r.Status == Failed && r.Cause == Refused
				}
			}
			if !hasWorked {
				c.Skip = "the path fails without a policy, or was not checked"
			}
		}
		selected = append(selected, c)
	}
	return selected
}
