package plan

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// wayTable is the ways by which clients outside reach services, as a table.
func wayTable(changes []plan.WayChange) output.Table {
	t := output.Table{
		Title:   "ways of clients outside the cluster:",
		Columns: []string{"CHANGE", "CLIENTS", "ASK", "SERVICE", "POLICY", "LEADS TO", "WHICH SEES", "AND ADMITS"},
		Empty:   "no changes",
	}
	for _, c := range changes[:min(len(changes), maxPaths)] {
		t.Rows = append(t.Rows, []string{
			c.Verb, cmp.Or(c.Clients, "all"), askedText(&c.Way), output.OneLine(c.Service), c.Policy, endpointText(&c.Way), c.Sees, c.Admits,
		})
	}
	if len(changes) > maxPaths {
		t.Title = fmt.Sprintf("%s the first %d of %d (-o json has all)", t.Title, maxPaths, len(changes))
	}
	return t
}

func askedText(w *plan.Way) string {
	at := "every node"
	switch {
	case w.At.IsValid():
		at = w.At.String()
	case w.Node.IsValid():
		at = "node " + w.Node.String()
	}
	text := fmt.Sprintf("%s/%s", net.JoinHostPort(at, strconv.Itoa(int(w.Port))), w.Protocol)
	if w.Gateway.IsValid() {
		text += " by gateway " + w.Gateway.String()
	}
	return text
}

func endpointText(w *plan.Way) string {
	switch {
	case !w.To.IsValid():
		return "no endpoint"
	case w.Pod == "":
		return w.To.String()
	}
	return output.OneLine(w.Pod) + " " + w.To.String()
}
