// Package xpath judges data by conditions: the part of XPath 1.0 that one pass over
// the data can tell.
//
//	or, and, not(…), = != < <= > >=, |, parentheses, strings, numbers,
//	paths of names and * down from the root or from where a predicate stands, "."
//	predicates that are conditions, not positions
//	contains(…), starts-with(…), count(…), true(), false()
//
// Names of modules are the prefixes, and a name without prefix is that of any module.
// A path is compared with a value, not with another path. So the time that a
// condition takes is bounded by its length times the size of the data.
//
// github.com/antchfx/xpath (1.3.9) does not have this bound, and clients choose the filter:
// /a/b[../b[../b='y']] takes 2.4 s on 200 entries, and a thousand times as long on 2,000.
package xpath

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Condition is a condition that was read. It is immutable and safe for use by many
// goroutines.
type Condition struct {
	root expression
}

// Holds reports whether the condition is true where d is the one child of the root.
func (c *Condition) Holds(d *yang.Data) bool {
	return c.root.value(&yang.Data{Children: []*yang.Data{d}}, nil).isTrue()
}

// kind is the type of an expression, which is known before it is evaluated.
type kind uint8

const (
	isNodes kind = iota
	isText
	isNumber
	isBool
)

// value is what an expression is in a place.
type value struct {
	kind   kind
	nodes  []*yang.Data
	text   string
	number float64
	truth  bool
}

// expression is a part of a condition.
type expression interface {
	kind() kind
	// value evaluates it at a node; at the outermost level that is the root.
	value(root, at *yang.Data) value
}

// isTrue is the function boolean of XPath.
func (v value) isTrue() bool {
	switch v.kind {
	case isNodes:
		return len(v.nodes) > 0
	case isText:
		return v.text != ""
	case isNumber:
		return v.number != 0 && v.number == v.number
	}
	return v.truth
}

// texts are the string-values of a node-set, or the one text of all else.
func (v value) texts() []string {
	if v.kind != isNodes {
		return []string{v.string()}
	}
	texts := make([]string, len(v.nodes))
	for i, n := range v.nodes {
		texts[i] = textOf(n)
	}
	return texts
}

// string is the function string of XPath.
func (v value) string() string {
	switch v.kind {
	case isNodes:
		if len(v.nodes) == 0 {
			return ""
		}
		return textOf(v.nodes[0])
	case isText:
		return v.text
	case isNumber:
		return formatNumber(v.number)
	}
	if v.truth {
		return "true"
	}
	return "false"
}

// textOf is a node's string-value: all text in it.
func textOf(d *yang.Data) string {
	if len(d.Children) == 0 {
		return d.Value
	}
	var text strings.Builder
	for _, child := range d.Children {
		text.WriteString(textOf(child))
	}
	return text.String()
}
