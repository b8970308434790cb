package yang

import (
	"cmp"
	"slices"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// member is a data node below an entry with the cases that it is in, or a choice.
type member struct {
	entry  *goyang.Entry
	cases  []choiceCase
	choice *choice
}

// flatten returns the data nodes below an entry in schema order. The nodes of a choice take
// the choice's place.
func flatten(e *goyang.Entry, cases []choiceCase) []member {
	var out []member
	for _, child := range inOrder(e) {
		switch {
		case child.IsChoice():
			c := &choice{name: child.Name, mandatory: child.Mandatory == goyang.TSTrue, within: cases}
			out = append(out, member{choice: c})
			for _, one := range inOrder(child) {
				out = append(out, flatten(one, append(slices.Clone(cases), choiceCase{c, one.Name}))...)
			}
		case child.RPC != nil || child.Kind == goyang.NotificationEntry:
		default:
			out = append(out, member{entry: child, cases: cases})
		}
	}
	return out
}

// inOrder returns an entry's children: its own in the order of the file, with groupings where
// they are used, and then the children of augments by module.
func inOrder(e *goyang.Entry) []*goyang.Entry {
	order := names(e.Node)
	augments := slices.Clone(e.Augmented)
	slices.SortStableFunc(augments, func(a, b *goyang.Entry) int {
		return cmp.Compare(goyang.RootNode(a.Node).Name, goyang.RootNode(b.Node).Name)
	})
	for _, augment := range augments {
		order = append(order, names(augment.Node)...)
	}
	if _, isCase := e.Node.(*goyang.Case); isCase && len(order) == 0 {
		order = []string{e.Name} // the implicit case of a leaf in a choice
	}
	children := make([]*goyang.Entry, 0, len(e.Dir))
	seen := map[string]bool{}
	for _, name := range order {
		if child := e.Dir[name]; child != nil && !seen[name] {
			seen[name] = true
			children = append(children, child)
		}
	}
	return children
}

// names returns the names of the nodes that the statements below n define.
func names(n goyang.Node) []string {
	var out []string
	for _, statement := range n.Statement().SubStatements() {
		switch statement.Keyword {
		case "container", "list", "leaf", "leaf-list", "choice", "case", "anydata", "anyxml", "notification":
			out = append(out, statement.Argument)
		case "uses":
			if g := goyang.FindGrouping(n, statement.Argument, map[string]bool{}); g != nil {
				out = append(out, names(g)...)
			}
		}
	}
	return out
}
