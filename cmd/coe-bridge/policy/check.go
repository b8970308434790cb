package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

func newCheck() *cobra.Command {
	var (
		in       input
		out      output.Format
		settings exposure
		from, to string
	)
	cmd := &cobra.Command{
		Use:   "check --from NS/POD|ADDRESS --to NS/POD|ADDRESS:PORT[/PROTOCOL]",
		Short: "Say whether a connection is allowed, and by which rule",
		Long: `check says whether the network policies allow a connection, and names the rule
that allows it, or the policies that isolate the pod. The protocol is tcp (the default),
udp or sctp. An IPv6 address with a port is in brackets: [fd00::8]:80.

An address that a pod or a node has stands for that pod or node. Egress is judged by the
pod that serves a connection: instead of a service, name one of its pods.

A node port, and a port of an external address, lead a client outside the cluster, or a
program of a node, to pods. For a program give an internal address of its node. check
follows the port and asks about each pod, with the source address that it sees. The
connection is "allowed" if all these pods allow it. Give the settings of the bridge, such as
--external-addresses.

For a pod that an EgressIP selects, and a destination outside the cluster, check says which
source address the destination sees.

If both pods have IPv4 and IPv6 addresses, the policies are asked about both. The exit
status is 0 if every answer is "allowed", 3 if one is "denied", and 1 after an error.`,
		Example: `  coe-bridge policy check -f cluster.yaml --from shop/web --to shop/db:5432
  coe-bridge policy check -f cluster.yaml --from 192.0.2.7 --to shop/web:80/tcp -o json
  coe-bridge policy check -f cluster.yaml --from shop/web --to [2001:db8::53]:53/udp
  coe-bridge policy check -f cluster.yaml --from 203.0.113.7 --to 192.168.33.11:30080
  coe-bridge policy check -f cluster.yaml --from 192.168.33.12 --to 192.168.33.11:30080
  coe-bridge policy check --kubeconfig ~/.kube/config -f new-policy.yaml --from shop/web --to shop/db:5432`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return errors.New("policy check: want --from NAMESPACE/POD or --from ADDRESS, and --to NAMESPACE/POD:PORT or --to ADDRESS:PORT")
			}
			c, err := in.read(cmd)
			if err != nil {
				return err
			}
			shown, err := askExposed(cmd.Context(), cmd.ErrOrStderr(), c, &settings, from, to)
			if err == nil && shown == nil {
				shown, err = ask(c, from, to)
			}
			if err != nil {
				return fmt.Errorf("policy check: %w", err)
			}
			if err := out.Print(cmd.OutOrStdout(), shown.table(), shown); err != nil {
				return err
			}
			if !shown.Allowed {
				return output.Exit{Status: 3}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "who connects: a pod as NAMESPACE/POD, or an address")
	cmd.Flags().StringVar(&to, "to", "", "what it connects to: a pod as NAMESPACE/POD or an address, with the port and the protocol")
	_ = cmd.RegisterFlagCompletionFunc("from", in.complete)
	_ = cmd.RegisterFlagCompletionFunc("to", in.complete)
	in.register(cmd)
	settings.register(cmd)
	out.Register(cmd)
	return cmd
}

// ask asks about each pair of addresses of the same family.
func ask(c *cluster, from, to string) (*shownAnswers, error) {
	target, port, err := splitPort(to)
	if err != nil {
		return nil, err
	}
	sources, err := endsOf(c, from)
	if err != nil {
		return nil, err
	}
	targets, err := endsOf(c, target)
	if err != nil {
		return nil, err
	}
	shown := &shownAnswers{Allowed: true, From: from, To: fmt.Sprintf("%s:%d/%s", target, port.Number, port.Protocol)}
	for _, s := range sources {
		for _, t := range targets {
			if policy.SameFamily(s, t) {
				shown.add(s, t, port, c.Judge(s, t, port))
				shown.LeavesBy = cmp.Or(shown.LeavesBy, leavesBy(c, s, t))
			}
		}
	}
	if len(shown.Answers) == 0 {
		return nil, fmt.Errorf("%s and %s have no addresses of the same family", from, target)
	}
	return shown, nil
}

// endsOf returns the ends that a text names: NAMESPACE/POD or an address.
func endsOf(c *cluster, text string) ([]policy.End, error) {
	if _, err := netip.ParsePrefix(text); err == nil {
		return nil, fmt.Errorf("%s is a prefix: give one address", text)
	}
	if strings.Contains(text, "/") {
		return podEnds(c, text)
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return nil, fmt.Errorf("%q: want a pod as NAMESPACE/POD, or an address", text)
	}
	addr = addr.WithZone("").Unmap()
	ends := c.At(addr)
	if service := c.set.ServiceAt(addr); service != nil && ends[0].Pod() == nil && ends[0].Node() == "" {
		return nil, fmt.Errorf("%s is an address of service %s/%s: name one of its pods", addr, service.Namespace, service.Name)
	}
	if len(ends) > 1 {
		return nil, fmt.Errorf("%s is the address of several pods: name one of %s", text, strings.Join(names(ends), ", "))
	}
	return ends, nil
}

func names(ends []policy.End) []string {
	var all []string
	for _, e := range ends {
		all = append(all, nameOf(e))
	}
	return all
}

// splitPort splits TARGET:PORT[/PROTOCOL].
func splitPort(text string) (target string, port policy.Port, err error) {
	wrong := fmt.Errorf("--to %q: want NAMESPACE/POD:PORT[/PROTOCOL] or ADDRESS:PORT[/PROTOCOL], with a number as PORT, like shop/db:5432/tcp or [fd00::8]:53/udp", text)
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", port, wrong
	}
	target = text[:colon]
	if strings.Contains(target, ":") && !strings.HasPrefix(target, "[") {
		return "", port, wrong // an IPv6 address without brackets
	}
	number, protocol, found := strings.Cut(text[colon+1:], "/")
	if port.Protocol = strings.ToLower(protocol); !found {
		port.Protocol = "tcp"
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || !slices.Contains([]string{"tcp", "udp", "sctp"}, port.Protocol) {
		return "", port, wrong
	}
	port.Number = uint16(n)
	return target, port, nil
}

// shownAnswers is the output of check as JSON and YAML show it.
type shownAnswers struct {
	Allowed bool   `json:"allowed"` // in all families, and by all endpoints
	From    string `json:"from"`
	To      string `json:"to"`
	// Service is set if To leads to a service, and Why says why it leads nowhere.
	Service *shownService `json:"service,omitempty"`
	Why     string        `json:"why,omitempty"`
	// LeavesBy is set if a pod leaves the cluster with an egress address.
	LeavesBy *shownEgress  `json:"leavesBy,omitempty"`
	Answers  []shownAnswer `json:"answers"`
}

// shownEgress is the EgressIP with whose address a pod leaves the cluster.
type shownEgress struct {
	EgressIP string `json:"egressIP"`
	// Address is what the destination sees. It can be the former one while the bridge refuses a changed one.
	Address netip.Addr `json:"address"`
}

// leavesBy returns the EgressIP by which a connection from a pod leaves the cluster; nil for none. The destination is no
// pod, node or service. If several EgressIPs select the pod, the oldest one has it.
func leavesBy(c *cluster, from, to policy.End) *shownEgress {
	pod := from.Pod()
	if pod == nil || pod.HostNetwork || to.Pod() != nil || to.Node() != "" || !to.Addr().Is4() || to.Addr().IsLinkLocalUnicast() {
		return nil
	}
	for _, e := range c.set.EgressIPs {
		if e.Namespaces.Matches(c.namespaces[pod.Namespace]) && e.Pods.Matches(coe.PodLabels(c.namespaces[pod.Namespace], pod.Labels)) {
			return &shownEgress{e.Name, e.Address}
		}
	}
	return nil
}

type shownAnswer struct {
	Allowed     bool      `json:"allowed"`
	FromAddress string    `json:"fromAddress,omitempty"`
	ToAddress   string    `json:"toAddress,omitempty"`
	ToPort      uint16    `json:"toPort,omitempty"` // of an endpoint
	Egress      shownSide `json:"egress"`
	Ingress     shownSide `json:"ingress"`
	from, to    string
}

// shownSide is what the policies of one end say.
type shownSide struct {
	Allowed bool          `json:"allowed"`
	Reason  policy.Reason `json:"reason"`
	Policy  string        `json:"policy,omitempty"`
	Rule    string        `json:"rule,omitempty"` // the field of the policy
	// Isolating are the policies that isolate the pod.
	Isolating []string `json:"isolating,omitempty"`
	hints     string
}

func (s *shownAnswers) add(from, to policy.End, port policy.Port, v policy.Verdict) {
	s.Allowed = s.Allowed && v.Allowed
	s.Answers = append(s.Answers, shownAnswer{
		Allowed: v.Allowed, FromAddress: addressOf(from), ToAddress: addressOf(to),
		Egress: showSide(coe.Egress, v.Egress), Ingress: showSide(coe.Ingress, v.Ingress),
		from: nameOf(from), to: nameOf(to),
	})
	last := &s.Answers[len(s.Answers)-1]
	last.Egress.hints = hints(coe.Egress, v.Egress, to, to, port)
	last.Ingress.hints = hints(coe.Ingress, v.Ingress, from, to, port)
}

// hints says why rules that deny a connection may match less than their author expects.
func hints(d coe.Direction, s policy.Side, peer, to policy.End, port policy.Port) string {
	if s.Reason != policy.Denied {
		return ""
	}
	var found []string
	for _, p := range s.Isolating {
		for _, r := range p.Side(d).Rules {
			for i := range r.Peers {
				if r.Peers[i].Block != nil && peer.Pod() != nil && !peer.Addr().IsValid() {
					found = append(found, fmt.Sprintf("the address of %s is unknown: no ipBlock matches", nameOf(peer)))
				}
			}
			for i := range r.Ports {
				// In an egress rule the name can be meant for other destinations.
				if named := &r.Ports[i]; d == coe.Ingress && named.Name != "" && named.Protocol == port.Protocol && len(numbersOf(named, to.Pod())) == 0 {
					found = append(found, fmt.Sprintf("%s has no port %s/%s", nameOf(to), named.Name, named.Protocol))
				}
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return " (" + strings.Join(slices.Compact(found), "; ") + ")"
}

func showSide(d coe.Direction, s policy.Side) shownSide {
	shown := shownSide{Allowed: s.Reason != policy.Denied, Reason: s.Reason}
	if s.Policy != nil {
		shown.Policy, shown.Rule = policyName(s.Policy), ruleField(s.Policy, d, s.Rule)
	}
	for _, p := range s.Isolating {
		shown.Isolating = append(shown.Isolating, policyName(p))
	}
	return shown
}

// policyName is the name of a policy for people.
func policyName(p *coe.PolicySpec) string {
	if p.Kind == coe.AccessList {
		return "access-list " + p.Name
	}
	return p.Namespace + "/" + p.Name
}

// ruleField is the field of a rule in its NetworkPolicy, or its entry in its access list.
func ruleField(p *coe.PolicySpec, d coe.Direction, index int) string {
	if p.Kind == coe.AccessList {
		return fmt.Sprintf("ace %q", p.Side(d).Rules[index].Name)
	}
	return fmt.Sprintf("spec.%s[%d]", d, index)
}

func addressOf(e policy.End) string {
	if !e.Addr().IsValid() {
		return ""
	}
	return e.Addr().String()
}

// nameOf is the name of an end: of the pod or the node, or its address.
func nameOf(e policy.End) string {
	switch p := e.Pod(); {
	case p != nil:
		return p.Namespace + "/" + p.Name
	case e.Node() != "":
		return "node " + e.Node()
	}
	return addressOf(e)
}

func (s *shownAnswers) table() output.Table {
	t := output.Table{
		Title:   fmt.Sprintf("%s: %s to %s", verdictWord(s.Allowed), s.From, s.To),
		Columns: []string{"DIRECTION", "OF", "ADDRESS", "VERDICT", "WHY"}, Empty: s.Why,
	}
	if s.Service != nil {
		t.Title += fmt.Sprintf(" (%s)", s.Service)
	}
	if s.LeavesBy != nil {
		t.Title += fmt.Sprintf(" (leaves with the egress address %s, EgressIP %s)", s.LeavesBy.Address, output.OneLine(s.LeavesBy.EgressIP))
	}
	for _, a := range s.Answers {
		at := a.ToAddress
		if a.ToPort != 0 {
			at = fmt.Sprintf("%s:%d", at, a.ToPort)
		}
		t.Rows = append(t.Rows,
			[]string{string(coe.Egress), a.from, a.FromAddress, verdictWord(a.Egress.Allowed), a.Egress.why(coe.Egress)},
			[]string{string(coe.Ingress), a.to, at, verdictWord(a.Ingress.Allowed), a.Ingress.why(coe.Ingress)})
	}
	return t
}

func verdictWord(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// withKind returns the name of a policy as policyName gives it, after its kind.
func withKind(name string) string {
	if strings.HasPrefix(name, "access-list ") {
		return name
	}
	return "policy " + name
}

func (s shownSide) why(d coe.Direction) string {
	switch s.Reason {
	case policy.Itself:
		return "a pod always reaches itself"
	case policy.OwnNode:
		return "a pod and its own node always reach each other"
	case policy.NotPoliced:
		return "policies do not apply to nodes, pods on the host network and addresses outside"
	case policy.NotIsolated:
		return fmt.Sprintf("no policy isolates it for %s", d)
	case policy.ByRule:
		return fmt.Sprintf("%s of %s", s.Rule, withKind(s.Policy))
	}
	return "isolated, and no rule allows it: " + strings.Join(s.Isolating, ", ") + s.hints
}
