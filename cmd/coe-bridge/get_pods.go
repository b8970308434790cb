package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// tracedPods are the pods of all namespaces, or of some, with the stages that have
// them.
type tracedPods struct {
	Namespaces []struct {
		Name        string      `json:"name"`
		Terminating bool        `json:"terminating"`
		Pods        []tracedPod `json:"pod,omitempty"`
	} `json:"namespace,omitempty"`
}

type tracedPod struct {
	UID       string   `json:"uid"`
	Name      string   `json:"name,omitempty"`
	Origin    string   `json:"origin"`
	NodeName  string   `json:"node-name,omitempty"`
	Node      string   `json:"node,omitempty"`
	Addresses []string `json:"ip-address,omitempty"`
	Reached   string   `json:"reached"`
	Missing   string   `json:"missing,omitempty"`
	Stages    []stage  `json:"stage"`
}

type stage struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`
	Time     string `json:"time,omitempty"`
	Revision string `json:"revision,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// shownPod is a row of coe-bridge get pods.
type shownPod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Node      string   `json:"node"`
	Addresses []string `json:"addresses"`
	Source    string   `json:"source"`
	State     string   `json:"state"`
	Problems  []string `json:"problems,omitempty"`
}

func readPods(ctx context.Context, c *client) (table, any, error) {
	var (
		all tracedPods
		st  status
	)
	if err := c.get(ctx, confirmed, "coe-status:pods", &all); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	shown := showPods(all, st.reasons())
	t := table{
		columns: []string{"NAMESPACE", "NAME", "UID", "NODE", "ADDRESS", "SOURCE", "STATE"},
		empty:   "no pods; coe-bridge apply -f FILE makes some, and serve --kubeconfig follows those of a cluster",
	}
	for _, p := range shown {
		state := p.State
		if len(p.Problems) > 0 {
			state += ": " + p.Problems[0]
		}
		t.rows = append(t.rows, []string{
			p.Namespace, p.Name, p.UID, p.Node, strings.Join(p.Addresses, ","), p.Source, state,
		})
	}
	return t, shown, nil
}

func showPods(all tracedPods, problems map[string][]string) []shownPod {
	shown := []shownPod{}
	for _, ns := range all.Namespaces {
		for _, p := range ns.Pods {
			shown = append(shown, shownPod{
				Namespace: ns.Name, Name: p.Name, UID: p.UID, Node: cmp.Or(p.NodeName, p.Node),
				Addresses: listed(p.Addresses), Source: p.Origin,
				State: p.state(problems[p.UID]), Problems: problems[p.UID],
			})
		}
	}
	slices.SortFunc(shown, func(a, b shownPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// state is how far a pod is, in a word.
func (p tracedPod) state(problems []string) string {
	switch {
	case p.Missing == "" && p.Reached != "confirmed":
		return "host network or finished"
	case p.Missing == "":
		return "confirmed"
	case len(problems) > 0 && problems[0] != string(coe.NotEnforced):
		return "problem"
	}
	return "waiting"
}

// namespace is the namespace that is meant where a client sent none.
func namespace(sent string) string { return cmp.Or(sent, coe.DefaultNamespace) }
