package policy

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

func newExplain() *cobra.Command {
	var (
		in        input
		out       output.Format
		rows      bool
		settings  flags.Mapping
		nodePorts flags.NodePorts
	)
	cmd := &cobra.Command{
		Use:   "explain NS/POD",
		Short: "List all policies and rules that apply to a pod",
		Long: `explain lists the network policies that select a pod, with their rules. A
direction without a policy is open. A direction with policies is open only for what one of
their rules allows.

A named port of an ingress rule is listed with the pod's own numbers. In an egress rule each
destination has its own numbers.

With --rows it also lists the rows that the bridge makes of them in OVN: the port groups of
the pod with their ACLs, the address sets that these ACLs name, and the address sets that
have an address of the pod. JSON and YAML always have them. They are computed; explain reads
no database.`,
		Example: `  coe-bridge policy explain -f cluster.yaml shop/db
  coe-bridge policy explain --kubeconfig ~/.kube/config shop/db --rows
  coe-bridge policy explain --kubeconfig ~/.kube/config shop/db -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s: name one pod as NAMESPACE/POD", strings.Join(append([]string{"policy explain"}, args...), " "))
			}
			return nil
		},
		ValidArgsFunction: in.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := in.read(cmd)
			if err != nil {
				return err
			}
			ends, err := podEnds(c, args[0])
			if err != nil {
				return fmt.Errorf("policy explain: %w", err)
			}
			shown := showRules(args[0], ends[0])
			if rows || out != "table" {
				if shown.Rows, err = readRows(cmd, c, settings, nodePorts, args[0]); err != nil {
					return err
				}
			}
			if err := out.Print(cmd.OutOrStdout(), shown.table(), shown); err != nil {
				return err
			}
			if out != "table" || !rows {
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout())
			return rowTable(shown.Rows).Print(cmd.OutOrStdout())
		},
	}
	in.register(cmd)
	cmd.Flags().BoolVar(&rows, "rows", false, "list the rows in OVN too")
	settings.RegisterIsolation(cmd)
	nodePorts.Register(cmd)
	out.Register(cmd)
	return cmd
}

// shownRules is the output of explain as JSON and YAML show it.
type shownRules struct {
	Pod         string      `json:"pod"`
	Node        string      `json:"node,omitempty"`
	HostNetwork bool        `json:"hostNetwork"` // no policy applies to the pod
	Ingress     []shownRule `json:"ingress"`
	Egress      []shownRule `json:"egress"`
	// Rows are the rows of OVN for the pod's policies.
	Rows *plan.PolicyRows `json:"rows"`
}

// shownRule is a rule of a policy that isolates the pod. If the policy has no rules, only its
// name is set.
type shownRule struct {
	Policy string   `json:"policy"`
	Rule   string   `json:"rule,omitempty"`  // the field of the policy
	Peers  []string `json:"peers,omitempty"` // if there are none, everyone
	Ports  []string `json:"ports,omitempty"` // if there are none, all
}

func showRules(pod string, end policy.End) shownRules {
	return shownRules{
		Pod: pod, Node: end.Pod().Node, HostNetwork: end.Pod().HostNetwork,
		Ingress: rulesOf(end, coe.Ingress), Egress: rulesOf(end, coe.Egress),
	}
}

func rulesOf(end policy.End, d coe.Direction) []shownRule {
	shown := []shownRule{}
	for _, p := range end.Policies(d) {
		rules := p.Side(d).Rules
		if len(rules) == 0 {
			shown = append(shown, shownRule{Policy: policyName(p)})
		}
		for i := range rules {
			one := shownRule{Policy: policyName(p), Rule: ruleField(p, d, i)}
			for j := range rules[i].Peers {
				one.Peers = append(one.Peers, peerText(p, &rules[i].Peers[j])+familyText(&rules[i], j))
			}
			if len(one.Peers) == 0 && rules[i].Family != 0 {
				one.Peers = []string{fmt.Sprintf("everyone by IPv%d", rules[i].Family)}
			}
			for j := range rules[i].Ports {
				one.Ports = append(one.Ports, portText(&rules[i].Ports[j], end.Pod(), d))
			}
			shown = append(shown, one)
		}
	}
	return shown
}

// familyText describes the family of a rule, if its peer does not have one.
func familyText(r *coe.PolicyRule, peer int) string {
	if r.Family == 0 || r.Peers[peer].Block != nil {
		return ""
	}
	return fmt.Sprintf(" by IPv%d", r.Family)
}

// peerText describes a peer of a policy.
func peerText(of *coe.PolicySpec, p *coe.PolicyPeer) string {
	if p.Block != nil {
		return p.Block.String()
	}
	text := "all pods"
	if profile := p.Pods.Profile(); profile != "" {
		return "pods with the security profile " + profile
	}
	if pods := p.Pods.String(); pods != "" {
		text = "pods with " + pods
	}
	switch {
	case p.Namespaces == nil:
		return text + " of namespace " + of.Namespace
	case len(p.Namespaces.Requirements) == 0:
		return text + " of all namespaces"
	}
	return text + " of namespaces with " + p.Namespaces.String()
}

// portText describes a port of a rule, of ingress with the pod's own numbers of a name.
func portText(p *coe.PolicyPort, pod *policy.Pod, d coe.Direction) string {
	if p.Name == "" {
		first, last := p.First, p.Last
		if last == 0 {
			first, last = 1, 65535
		}
		return policy.PortRange{Protocol: p.Protocol, First: first, Last: last}.String()
	}
	text := p.Name + "/" + p.Protocol
	if d == coe.Egress {
		return text
	}
	numbers := numbersOf(p, pod)
	if len(numbers) == 0 {
		return text + " (the pod has no such port)"
	}
	return text + " (" + strings.Join(numbers, ", ") + ")"
}

// numbersOf returns the numbers that a pod has for a named port of a rule.
func numbersOf(p *coe.PolicyPort, pod *policy.Pod) []string {
	var numbers []string
	for _, own := range pod.Ports {
		if own.Name == p.Name && own.Protocol == p.Protocol {
			numbers = append(numbers, fmt.Sprint(own.Port))
		}
	}
	return numbers
}

func (s shownRules) table() output.Table {
	t := output.Table{
		Title:   s.Pod + ": connections with itself and with its own node are always allowed",
		Columns: []string{"DIRECTION", "POLICY", "RULE", "PORTS", "PEERS"},
	}
	if s.HostNetwork {
		t.Title = s.Pod + " is on the host network: it counts as its node, and no policy applies to it"
	}
	t.Rows = append(ruleRows(coe.Ingress, s.Ingress), ruleRows(coe.Egress, s.Egress)...)
	return t
}

func ruleRows(d coe.Direction, rules []shownRule) [][]string {
	if len(rules) == 0 {
		return [][]string{{string(d), "", "", "all", "everyone"}}
	}
	var rows [][]string
	for _, r := range rules {
		if r.Rule == "" {
			rows = append(rows, []string{string(d), r.Policy, "", "", "nobody"})
			continue
		}
		ports, peers := "all", []string{"everyone"}
		if len(r.Ports) > 0 {
			ports = strings.Join(r.Ports, ", ")
		}
		if len(r.Peers) > 0 {
			peers = r.Peers
		}
		rows = append(rows, []string{string(d), r.Policy, r.Rule, ports, peers[0]})
		for _, peer := range peers[1:] {
			rows = append(rows, []string{" ", " ", " ", " ", peer})
		}
	}
	return rows
}
