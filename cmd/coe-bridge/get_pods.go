package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

type pods struct {
	List []pod `json:"pods"`
}

type pod struct {
	UID       string `json:"uid"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"network-NS,omitempty"`
	Node      string `json:"host-ip-address,omitempty"`
	Interface []struct {
		UID     string `json:"uid"`
		Address string `json:"ip-address,omitempty"`
	} `json:"interface,omitempty"`
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
		all   pods
		given leases
		have  elanInterfaces
		st    status
	)
	if err := c.get(ctx, wanted, "pod:coe", &all); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:leases", &given); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "elan:elan-interfaces", &have); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	shown := showPods(all, given, have, st)
	t := table{
		columns: []string{"NAMESPACE", "NAME", "UID", "NODE", "ADDRESS", "SOURCE", "STATE"},
		empty:   "no pods; POST one to /restconf/config/pod:coe",
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

func showPods(all pods, given leases, have elanInterfaces, st status) []shownPod {
	there := map[string]bool{}
	for _, i := range have.List {
		there[i.Name] = true
	}
	byPod := map[string][]lease{}
	for _, l := range given.List {
		if l.Released == "" {
			byPod[l.PodUID] = append(byPod[l.PodUID], l)
		}
	}
	problems := st.reasons()
	shown := []shownPod{}
	for _, p := range all.List {
		one := shownPod{
			Namespace: namespace(p.Namespace), Name: p.Name, UID: p.UID, Node: p.Node,
			Addresses: []string{}, Source: "restconf", State: "waiting", Problems: problems[p.UID],
		}
		confirmed := len(byPod[p.UID]) > 0
		for _, l := range byPod[p.UID] {
			one.Addresses = append(one.Addresses, l.Addresses...)
			confirmed = confirmed && there[l.Name]
		}
		switch {
		case confirmed:
			one.State = "confirmed"
		case len(one.Problems) > 0:
			one.State = "problem"
		}
		shown = append(shown, one)
	}
	slices.SortFunc(shown, func(a, b shownPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// namespace is the namespace that is meant where a client sent none.
func namespace(sent string) string { return cmp.Or(sent, coe.DefaultNamespace) }
