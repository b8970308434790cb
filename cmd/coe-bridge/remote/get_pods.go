package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// shownPod is a row of coe-bridge get pods.
type shownPod struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	Node      string       `json:"node"`
	Addresses []netip.Addr `json:"addresses"`
	Source    coe.Origin   `json:"source"`
	State     string       `json:"state"`
	Problems  []coe.Reason `json:"problems,omitempty"`
}

func readPods(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var (
		all status.Pods
		st  status.Status
	)
	if err := c.Get(ctx, client.Confirmed, "coe-status:pods", &all); err != nil {
		return output.Table{}, nil, err
	}
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return output.Table{}, nil, err
	}
	shown := showPods(all, reasons(&st))
	t := output.Table{
		Columns: []string{"NAMESPACE", "NAME", "UID", "NODE", "ADDRESS", "SOURCE", "STATE"},
		Empty:   "no pods; create some with coe-bridge apply -f FILE, or follow a cluster with serve --kubeconfig",
	}
	for _, p := range shown {
		state := p.State
		if len(p.Problems) > 0 {
			state += ": " + string(p.Problems[0])
		}
		t.Rows = append(t.Rows, []string{
			p.Namespace, p.Name, p.UID, p.Node, joined(p.Addresses), string(p.Source), state,
		})
	}
	return t, shown, nil
}

func showPods(all status.Pods, problems map[string][]coe.Reason) []shownPod {
	shown := []shownPod{}
	for _, ns := range all.Namespaces {
		for _, p := range ns.Pods {
			shown = append(shown, shownPod{
				Namespace: ns.Name, Name: p.Name, UID: p.UID, Node: cmp.Or(p.NodeName, text(p.Node)),
				Addresses: output.Listed(p.Addresses), Source: p.Origin,
				State: podState(&p, problems[p.UID]), Problems: problems[p.UID],
			})
		}
	}
	slices.SortFunc(shown, func(a, b shownPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// podState is the state of a pod in a word.
func podState(p *status.Pod, problems []coe.Reason) string {
	switch {
	case p.Missing == "" && p.Reached == trace.Source:
		return "host network or finished"
	case p.Missing == "", slices.Contains([]trace.Stage{trace.Confirmed, trace.Translated, trace.Bound}, p.Reached):
		return "confirmed"
	case len(problems) > 0 && problems[0] != coe.NotEnforced:
		return "problem"
	case p.Reached == trace.Written:
		return "programmed"
	}
	return "pending"
}

// text is an address; empty for none.
func text(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

// joined is a list with commas.
func joined[T fmt.Stringer](list []T) string {
	var texts []string
	for _, one := range list {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ",")
}
