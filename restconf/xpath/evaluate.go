package xpath

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// literal is a text, a number or a truth.
type literal struct{ is value }

func (l literal) kind() kind                  { return l.is.kind }
func (l literal) value(_, _ *yang.Data) value { return l.is }

// logic is "or" or "and".
type logic struct {
	or          bool
	left, right expression
}

func (logic) kind() kind { return isBool }

func (l logic) value(root, at *yang.Data) value {
	left := l.left.value(root, at).isTrue()
	if left == l.or {
		return value{kind: isBool, truth: left}
	}
	return value{kind: isBool, truth: l.right.value(root, at).isTrue()}
}

// comparison compares two values, of which at most one is a node-set.
type comparison struct {
	operator    string
	left, right expression
}

func (comparison) kind() kind { return isBool }

// value is, for a node-set, whether any of its nodes compares so (XPath 1.0
// section 3.4).
func (c comparison) value(root, at *yang.Data) value {
	left, right := c.left.value(root, at), c.right.value(root, at)
	if left.kind == isBool || right.kind == isBool {
		return c.says(numbers(asNumber(left.isTrue()), asNumber(right.isTrue())))
	}
	numeric := c.operator[0] == '<' || c.operator[0] == '>' || left.kind == isNumber || right.kind == isNumber
	for _, l := range left.texts() {
		for _, r := range right.texts() {
			order := strings.Compare(l, r)
			if numeric {
				order = numbers(parseNumber(l), parseNumber(r))
			}
			if v := c.says(order); v.truth {
				return v
			}
		}
	}
	return value{kind: isBool}
}

// unordered is the order of values that are not numbers.
const unordered = 2

func numbers(l, r float64) int {
	switch {
	case l < r:
		return -1
	case l > r:
		return 1
	case l == r:
		return 0
	}
	return unordered
}

// says reports whether the operator holds for two values in this order.
func (c comparison) says(order int) value {
	truth := false
	switch c.operator {
	case "=":
		truth = order == 0
	case "!=":
		truth = order != 0
	case "<":
		truth = order == -1
	case "<=":
		truth = order == -1 || order == 0
	case ">":
		truth = order == 1
	case ">=":
		truth = order == 1 || order == 0
	}
	return value{kind: isBool, truth: truth}
}

func asNumber(truth bool) float64 {
	if truth {
		return 1
	}
	return 0
}

func parseNumber(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// union is paths with "|" between them.
type union []expression

func (union) kind() kind { return isNodes }

func (u union) value(root, at *yang.Data) value {
	all := value{kind: isNodes}
	for _, path := range u {
		all.nodes = append(all.nodes, path.value(root, at).nodes...)
	}
	return all
}

// path is steps down from the root, or from the node where it stands.
type path struct {
	absolute bool
	steps    []pathStep
}

// pathStep goes to the children of a name, or stays where it has none.
type pathStep struct {
	stay         bool
	module, name string // empty: any
	predicates   []expression
}

func (path) kind() kind { return isNodes }

func (p path) value(root, at *yang.Data) value {
	if p.absolute || at == nil {
		at = root
	}
	nodes := []*yang.Data{at}
	for _, s := range p.steps {
		var next []*yang.Data
		for _, n := range nodes {
			next = s.from(next, root, n)
		}
		nodes = next
	}
	return value{kind: isNodes, nodes: nodes}
}

// from adds the nodes that the step leads to from n.
func (s pathStep) from(nodes []*yang.Data, root, n *yang.Data) []*yang.Data {
	candidates := n.Children
	if s.stay {
		candidates = []*yang.Data{n}
	}
	for _, c := range candidates {
		if (s.stay || s.names(c.Node)) && s.holds(root, c) {
			nodes = append(nodes, c)
		}
	}
	return nodes
}

func (s pathStep) names(n *yang.Node) bool {
	return (s.name == "" || s.name == n.Name) && (s.module == "" || s.module == n.Module.Name)
}

func (s pathStep) holds(root, n *yang.Data) bool {
	return !slices.ContainsFunc(s.predicates, func(p expression) bool { return !p.value(root, n).isTrue() })
}

// call is a function's.
type call struct {
	name      string
	arguments []expression
}

// function is one that conditions can call.
type function struct {
	arguments int
	gives     kind
	of        func([]value) value
}

func truth(is bool) value { return value{kind: isBool, truth: is} }

var functions = map[string]function{
	"not":   {1, isBool, func(v []value) value { return truth(!v[0].isTrue()) }},
	"true":  {0, isBool, func([]value) value { return truth(true) }},
	"false": {0, isBool, func([]value) value { return truth(false) }},
	"contains": {2, isBool, func(v []value) value {
		return truth(strings.Contains(v[0].string(), v[1].string()))
	}},
	"starts-with": {2, isBool, func(v []value) value {
		return truth(strings.HasPrefix(v[0].string(), v[1].string()))
	}},
	"count": {1, isNumber, func(v []value) value { return value{kind: isNumber, number: float64(len(v[0].nodes))} }},
}

func (c call) kind() kind { return functions[c.name].gives }

func (c call) value(root, at *yang.Data) value {
	arguments := make([]value, len(c.arguments))
	for i, a := range c.arguments {
		arguments[i] = a.value(root, at)
	}
	return functions[c.name].of(arguments)
}
