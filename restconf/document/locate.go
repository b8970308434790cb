package document

import (
	"errors"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Has reports whether an instance-identifier (RFC 7951 section 6.11) is that of the entry,
// or of what is in it.
func (e *Entry) Has(path string) bool {
	_, ok := e.below(path)
	return ok
}

// At is an error of this entry, at the line of what an instance-identifier names: of a
// member that does not belong there, its own line; of what is not there, that of what it
// ought to be in. Where the identifier names several, it is that of the one whose value
// the error quotes.
func (e *Entry) At(path string, err *yang.Error) error {
	steps, _ := e.below(path)
	at := spot{e.Line, e.value}
	spots, node := []spot{at}, e.node
	for _, s := range steps {
		next, first := below(spots, node, s)
		if len(next) == 0 {
			break
		}
		if len(spots) == 1 {
			at = first
		}
		spots, node = next, childOf(node, s.name)
		if node == nil {
			break
		}
	}
	if len(spots) == 1 {
		at = spots[0]
	}
	for _, one := range spots {
		if line := one.value.quoted(one.line, err); line > 0 {
			at.line = line
			break
		}
	}
	return &Error{e.File, at.line, errors.New(e.Name() + ": " + about(steps, err.Message) + err.Message)}
}

// about names what an error of a bridge's own checks is about: unlike the schema's these
// leave that to the path.
func about(steps []step, message string) string {
	if len(steps) == 0 || strings.Contains(message, steps[len(steps)-1].name) {
		return ""
	}
	return steps[len(steps)-1].name + ": "
}

// spot is a value, and its line in error messages.
type spot struct {
	line  int
	value *Value
}

// below are the values that a step names in instances of n, and the first member that
// has some of them.
func below(spots []spot, n *yang.Node, s step) (next []spot, first spot) {
	for _, in := range spots {
		m := in.value.child(n, s.name)
		if m == nil {
			continue
		}
		if first.value == nil {
			first = spot{m.Line, m.Value}
		}
		element := m.Value.pick(childOf(n, s.name), s)
		switch {
		case element != nil:
			next = append(next, spot{element.Line, element})
		case len(m.Value.elements) == 0:
			next = append(next, spot{m.Line, m.Value})
		}
		for _, one := range m.Value.elements {
			if element == nil {
				next = append(next, spot{one.Line, one})
			}
		}
	}
	return next, first
}

// quoted is the line of what an error quotes: a value that stands at line itself, or a
// member of it that is unknown; 0 where it quotes neither.
func (v *Value) quoted(line int, err *yang.Error) int {
	switch {
	case v.kind == text && strings.Contains(err.Message, strconv.Quote(v.text)):
		return line
	case v.kind == literal && strings.Contains(err.Message, " "+v.text+" "):
		return line
	case err.Tag != "unknown-element":
		return 0
	}
	for _, m := range v.members {
		if strings.Contains(err.Message, strconv.Quote(m.Name)) {
			return m.Line
		}
	}
	return 0
}

// below are the steps from the entry down; it is false where a path is elsewhere.
func (e *Entry) below(path string) ([]step, bool) {
	steps := split(path)
	if len(steps) <= len(e.above) {
		return nil, false
	}
	for i, n := range e.above {
		if !means(steps[i].name, n) {
			return nil, false
		}
	}
	own := steps[len(e.above)]
	if !means(own.name, e.node) || !own.names(e.node, e.value) {
		return nil, false
	}
	return steps[len(e.above)+1:], true
}

// step is one step of an instance-identifier.
type step struct {
	name       string
	predicates [][2]string // leaf ("." of a leaf-list) and value; a position alone has no leaf
}

// split takes an instance-identifier apart, as far as it is one.
func split(path string) (steps []step) {
	for path != "" {
		if path[0] != '/' {
			return steps
		}
		path = path[1:]
		end := strings.IndexAny(path, "/[")
		if end < 0 {
			end = len(path)
		}
		s := step{name: path[:end]}
		path = path[end:]
		for strings.HasPrefix(path, "[") {
			var one [2]string
			if one, path = predicate(path[1:]); path == "" && one[1] == "" {
				break
			}
			s.predicates = append(s.predicates, one)
		}
		steps = append(steps, s)
	}
	return steps
}

// predicate reads what is after "[", and what is left after "]".
func predicate(text string) (one [2]string, rest string) {
	name, quoted, ok := strings.Cut(text, "=")
	position, after, _ := strings.Cut(text, "]")
	if !ok || len(position) < len(name) {
		return [2]string{"", position}, after
	}
	if quoted == "" {
		return one, ""
	}
	value, after, _ := strings.Cut(quoted[1:], quoted[:1]+"]")
	return [2]string{name, value}, after
}

// names reports whether a step is that of an entry of n, or of all of them.
func (s step) names(n *yang.Node, entry *Value) bool {
	for _, p := range s.predicates {
		if p[0] == "" {
			continue
		}
		leaf := childOf(n, p[0])
		if leaf == nil {
			return false
		}
		m := entry.memberOf(leaf)
		if m == nil || !sameValue(leaf, m.Value.text, p[1]) {
			return false
		}
	}
	return true
}

func sameValue(leaf *yang.Node, a, b string) bool {
	if canonical, err := leaf.Canonical(a); err == nil {
		a = canonical
	}
	if canonical, err := leaf.Canonical(b); err == nil {
		b = canonical
	}
	return a == b
}

// pick is the element of a list or leaf-list that a step names, or nil where it names
// none in particular.
func (v *Value) pick(n *yang.Node, s step) *Value {
	if len(s.predicates) == 0 {
		return nil
	}
	for i, element := range v.elements {
		switch first := s.predicates[0]; {
		case first[0] == "":
			if strconv.Itoa(i+1) == first[1] {
				return element
			}
		case n == nil:
		case first[0] == ".":
			if sameValue(n, element.text, first[1]) {
				return element
			}
		case element.kind == object && s.names(n, element):
			return element
		}
	}
	return nil
}
