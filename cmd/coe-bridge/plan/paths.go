package plan

import (
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// shownPath is a policy.Change as JSON and YAML show it.
type shownPath struct {
	From   shownGroup `json:"from"`
	To     shownGroup `json:"to"`
	Family string     `json:"family,omitempty"` // ipv4 or ipv6, if only one of them changes
	Opened []string   `json:"opened"`           // FIRST[-LAST]/PROTOCOL; all of a protocol are PROTOCOL
	Closed []string   `json:"closed"`
}

// shownGroup has pods, nodes without the pods' own, and addresses outside of the cluster.
type shownGroup struct {
	AllPods  bool        `json:"allPods"`
	Pods     []shownPods `json:"pods,omitempty"` // unless all
	AllNodes bool        `json:"allNodes"`
	Nodes    []string    `json:"nodes,omitempty"` // unless all
	Outside  []string    `json:"outside,omitempty"`
}

type shownPods struct {
	Namespace string   `json:"namespace"`
	All       bool     `json:"all"`
	Names     []string `json:"names,omitempty"` // unless all
}

func showPaths(changes []policy.Change) []shownPath {
	shown := []shownPath{}
	for _, c := range changes {
		shown = append(shown, shownPath{
			From: showGroup(c.From), To: showGroup(c.To), Family: familyWord(c.Family),
			Opened: portTexts(c.Opened), Closed: portTexts(c.Closed),
		})
	}
	return shown
}

func familyWord(family int) string {
	if family == 0 {
		return ""
	}
	return fmt.Sprint("ipv", family)
}

func portTexts(ranges []policy.PortRange) []string {
	texts := []string{}
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return texts
}

func showGroup(g policy.Group) shownGroup {
	shown := shownGroup{AllPods: g.AllPods, AllNodes: g.AllNodes}
	if !g.AllPods {
		for _, of := range g.Namespaces {
			one := shownPods{Namespace: of.Namespace, All: of.All}
			if !of.All {
				one.Names = of.Pods
			}
			shown.Pods = append(shown.Pods, one)
		}
	}
	if !g.AllNodes {
		shown.Nodes = g.Nodes
	}
	for _, b := range g.Blocks {
		shown.Outside = append(shown.Outside, b.String())
	}
	return shown
}

// The limits of the table. JSON and YAML have no limits.
const (
	maxPaths = 100
	maxLines = 8 // of one end of a path
	maxNames = 4 // in a line
)

// pathTable is the paths as a table, with a line for each namespace of an end.
func pathTable(changes []policy.Change) output.Table {
	t := output.Table{
		Title:   "connections that network policies would close and open:",
		Columns: []string{"CHANGE", "FROM", "TO", "PORTS"},
		Empty:   "none",
	}
	rows := 0
	for _, c := range changes {
		for _, part := range []struct {
			verb  string
			ports []policy.PortRange
		}{{"close", c.Closed}, {"open", c.Opened}} {
			if len(part.ports) == 0 {
				continue
			}
			if rows++; rows > maxPaths {
				continue
			}
			ports := policy.PortsText(part.ports) + output.Prefixed(" ", familyWord(c.Family))
			t.Rows = append(t.Rows, pathLines(part.verb, groupLines(c.From), groupLines(c.To), ports)...)
		}
	}
	if rows > maxPaths {
		t.Title = fmt.Sprintf("%s the first %d of %d (-o json has all)", t.Title, maxPaths, rows)
	}
	return t
}

func pathLines(verb string, from, to []string, ports string) (rows [][]string) {
	for i := range max(len(from), len(to)) {
		row := []string{" ", " ", " ", " "}
		if i == 0 {
			row[0], row[3] = verb, ports
		}
		if i < len(from) {
			row[1] = from[i]
		}
		if i < len(to) {
			row[2] = to[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// groupLines describes a group.
func groupLines(g policy.Group) (lines []string) {
	switch {
	case g.AllPods:
		lines = append(lines, "all pods")
	default:
		for _, of := range g.Namespaces {
			if of.All {
				lines = append(lines, "all pods of "+of.Namespace)
			} else {
				lines = append(lines, nameLine(of.Namespace+"/", of.Pods))
			}
		}
	}
	switch {
	case g.AllNodes:
		lines = append(lines, "all other nodes")
	case len(g.Nodes) > 0:
		lines = append(lines, nameLine("other node ", g.Nodes))
	}
	for _, b := range g.Blocks {
		lines = append(lines, "outside "+b.String())
	}
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines], fmt.Sprintf("and %d more", more))
	}
	return lines
}

// nameLine lists some names, each after a prefix.
func nameLine(prefix string, names []string) string {
	var texts []string
	for _, name := range names[:min(len(names), maxNames)] {
		texts = append(texts, prefix+name)
	}
	line := strings.Join(texts, ", ")
	if more := len(names) - maxNames; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// costTable is the cost of all policies as a table.
func costTable(c *plan.CostChange) output.Table {
	t := output.Table{Title: "what all policies cost OVN (an estimate):", Columns: []string{"", "ACLS", "LOGICAL FLOWS", "OPENFLOW FLOWS", "ON NODE"}}
	for _, line := range []struct {
		when string
		plan.Cost
	}{{"before", c.Before}, {"after", c.After}} {
		node := ""
		if line.Node.IsValid() {
			node = line.Node.String()
		}
		t.Rows = append(t.Rows, []string{line.when, fmt.Sprint(line.ACLs), fmt.Sprint(line.LogicalFlows), fmt.Sprint(line.OpenFlow), node})
	}
	return t
}
