package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// only is the part of a plan that is printed: one of its sides, or all except a change of the layout.
type only string

const (
	onlyNetvirt only = "netvirt"
	onlyOVN     only = "ovn"
	onlyPaths   only = "paths"
	onlyWays    only = "ways"
	onlyLayout  only = "layout"
)

// String, Set and Type make it a flag.
func (o *only) String() string { return string(*o) }
func (o *only) Type() string   { return "side" }
func (o *only) Set(s string) error {
	switch side := only(s); side {
	case onlyNetvirt, onlyOVN, onlyPaths, onlyWays, onlyLayout:
		*o = side
		return nil
	}
	return fmt.Errorf("want %s, %s, %s, %s or %s", onlyNetvirt, onlyOVN, onlyPaths, onlyWays, onlyLayout)
}

func (o only) netvirt() bool { return o == "" || o == onlyNetvirt }
func (o only) ovn() bool     { return o == "" || o == onlyOVN }
func (o only) paths() bool   { return o == "" || o == onlyPaths }
func (o only) ways() bool    { return o == "" || o == onlyWays }

// shownPlan is a plan as JSON and YAML show it.
type shownPlan struct {
	Changes []shownChange `json:"changes,omitzero"`
	// Netvirt has the objects under their YANG names, as RESTCONF shows them.
	Netvirt  map[string]json.RawMessage `json:"netvirt,omitzero"`
	OVN      []plan.RowChange           `json:"ovn,omitzero"`
	Paths    []shownPath                `json:"paths,omitzero"` // if there is a running cluster
	Cost     *plan.CostChange           `json:"cost,omitempty"`
	Ways     []plan.WayChange           `json:"ways,omitempty"`
	Layout   *plan.LayoutChange         `json:"layout,omitempty"` // only with --only layout
	Problems []coe.Problem              `json:"problems"`
	Skipped  []manifest.Skipped         `json:"skipped"`
}

type shownChange struct {
	Verb  string `json:"verb"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
}

func showChange(c netvirt.Change) shownChange {
	return shownChange{c.Verb(), c.Key().Kind.String(), c.Key().Name, c.Scope().String()}
}

func printPlan(w io.Writer, out output.Format, side only, p *plan.Plan) error {
	if out != "table" {
		shown, err := showPlan(side, p)
		if err != nil {
			return err
		}
		return out.Print(w, output.Table{}, shown)
	}
	for i, t := range planTables(side, p) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	for _, p := range allProblems(p) {
		what := p.Kind + " " + cmp.Or(p.Name, p.UID) + output.Prefixed(" of namespace ", p.Namespace)
		if _, err := fmt.Fprintf(w, "problem: %s: %s: %s\n", output.OneLine(what), p.Reason, output.OneLine(p.Message)); err != nil {
			return err
		}
	}
	for _, s := range p.Skipped {
		if _, err := fmt.Fprintf(w, "skipped: %s %s: %s (%s)\n", output.OneLine(s.Kind), output.OneLine(s.Name), output.OneLine(s.Message), output.OneLine(s.Where)); err != nil {
			return err
		}
	}
	return nil
}

func showPlan(side only, p *plan.Plan) (shownPlan, error) {
	shown := shownPlan{Problems: output.Listed(p.Problems), Skipped: output.Listed(p.Skipped)}
	if side.netvirt() {
		trees, err := p.Trees()
		if err != nil {
			return shown, err
		}
		shown.Netvirt = trees
		shown.Changes = []shownChange{}
		for _, c := range p.Changes {
			shown.Changes = append(shown.Changes, showChange(c))
		}
	}
	if side.ovn() {
		shown.OVN = output.Listed(p.Rows)
	}
	if side.paths() && p.Cost != nil {
		shown.Paths, shown.Cost = showPaths(p.Paths), p.Cost
	}
	if side.ways() {
		shown.Ways = p.Ways
	}
	shown.Layout = p.Layout
	return shown, nil
}

// planTables are the plan as tables: the Netvirt objects, the rows, of a running cluster the paths and the cost, and
// the ways of clients outside.
func planTables(side only, p *plan.Plan) []output.Table {
	var tables []output.Table
	if side.netvirt() {
		t := output.Table{Columns: []string{"CHANGE", "KIND", "NAME", "DETAILS"}, Empty: "no changes"}
		for _, c := range p.Changes {
			t.Rows = append(t.Rows, []string{c.Verb(), c.Key().Kind.String(), c.Key().Name, details(c.Object())})
		}
		tables = append(tables, t)
	}
	if side.ovn() {
		t := output.Table{Columns: []string{"CHANGE", "TABLE", "ROW"}, Empty: "no rows in OVN"}
		names := rowNames(p.Rows)
		for _, r := range p.Rows {
			t.Rows = append(t.Rows, []string{r.Operation, r.Table, r.Name})
			if r.Operation == "delete" {
				continue
			}
			for _, line := range columnLines(r.Row, names) {
				t.Rows = append(t.Rows, []string{" ", " ", "  " + line})
			}
		}
		tables = append(tables, t)
	}
	if side.paths() && p.Cost != nil {
		tables = append(tables, pathTable(p.Paths), costTable(p.Cost))
	}
	if side == onlyWays || side.ways() && len(p.Ways) > 0 {
		tables = append(tables, wayTable(p.Ways))
	}
	if p.Layout != nil {
		tables = append(tables, layoutTables(p.Layout)...)
	}
	return tables
}

// rowNames are the rows' names by UUID.
func rowNames(rows []plan.RowChange) map[string]string {
	names := make(map[string]string, len(rows))
	for _, r := range rows {
		names[r.UUID] = r.Name
	}
	return names
}

// longLine is how long a column may be before each of its elements has a line of its own.
const longLine = 100

// columnLines returns a line for each column of a row, as ovn-nbctl writes it, with names
// for UUIDs. It omits the name of the row, and external_ids, which repeat the Netvirt object.
func columnLines(r preview.Row, names map[string]string) []string {
	var lines []string
	named := append(strings.Fields(r.Name), r.Name)
	for _, column := range slices.Sorted(maps.Keys(r.Columns)) {
		value := r.Columns[column]
		if word, ok := value.(string); column == "external_ids" || ok && slices.Contains(named, word) {
			continue
		}
		begin, elements, end := valueText(value, names)
		text := column + "=" + begin + strings.Join(elements, ", ") + end
		if utf8.RuneCountInString(text) > longLine {
			below := ",\n" + strings.Repeat(" ", len(column+"="+begin))
			text = column + "=" + begin + strings.Join(elements, below) + end
		}
		lines = append(lines, strings.Split(text, "\n")...)
	}
	return lines
}

// valueText is a value's elements, and what stands around them.
func valueText(value any, names map[string]string) (begin string, elements []string, end string) {
	switch v := value.(type) {
	case []string:
		for _, one := range v {
			elements = append(elements, atomText(cmp.Or(names[one], one)))
		}
		slices.Sort(elements)
		return "[", elements, "]"
	case map[string]string:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			elements = append(elements, atomText(key)+"="+atomText(v[key]))
		}
		return "{", elements, "}"
	case string:
		return "", []string{atomText(cmp.Or(names[v], v))}, ""
	}
	return "", []string{fmt.Sprint(value)}, ""
}

// atomText quotes a text that is more than one word.
func atomText(text string) string {
	if text == "" || strings.ContainsAny(text, " ,=\"[]{}") {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// details are the leaves of an object that are not in its name.
func details(o netvirt.Object) string {
	switch o := o.(type) {
	case netvirt.ELANInstance:
		return fmt.Sprintf("%s %d", strings.TrimPrefix(string(o.SegmentType), "segment-type-"), o.SegmentationID)
	case netvirt.VPNInstance:
		return strings.TrimSpace("rd " + o.RouteDistinguisher + " " + output.Prefixed("shares ", o.Transit))
	case netvirt.Subnet:
		return fmt.Sprintf("gateway %s, vpn %s", o.Gateway, o.VPN)
	case netvirt.Interface:
		return "port " + o.ParentInterface
	case netvirt.ELANInterface:
		return "elan " + o.ELAN
	case netvirt.MACEntry:
		return o.MAC
	case netvirt.VPNInterface:
		return "vpn " + o.VPN
	case netvirt.Adjacency:
		return fmt.Sprintf("%s, gateway %s", o.MAC, o.Gateway)
	case netvirt.Transit:
		return "joins the vpn-instances that share it"
	case netvirt.Service:
		return o.Name
	case netvirt.ServiceVIP:
		return "to " + cmp.Or(string(o.Endpoints), "no endpoint yet")
	case netvirt.GatewayVIP:
		return "to " + cmp.Or(string(o.Endpoints), "no endpoint yet")
	case netvirt.FloatingIP:
		return "from " + o.External.String()
	}
	return nodeDetails(o)
}

// nodeDetails are the details of an object about a node.
func nodeDetails(o netvirt.Object) string {
	switch o := o.(type) {
	case netvirt.Node:
		return o.HostName
	case netvirt.NodeNetwork:
		return "gateway " + o.Gateway.String()
	case netvirt.ManagementPort:
		return fmt.Sprintf("%s, %s", o.Address, o.MAC)
	case netvirt.Gateway:
		if !o.Link.IsValid() {
			return "does not work"
		}
		return fmt.Sprintf("%s, next hop %s", o.Address, o.NextHop)
	case netvirt.EgressIP:
		for i, host := range o.Hosts {
			if int(o.Active) == i+1 {
				return fmt.Sprintf("%s leaves by node %s", o.Group, host.Node)
			}
		}
		return o.Group + " is dropped"
	case netvirt.NodePort:
		return fmt.Sprintf("%s, %s, by %s", o.Address, o.MAC, o.Network)
	}
	return ""
}
