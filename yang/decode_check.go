package yang

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxFindings is how many errors of one body are reported.
const maxFindings = 64

// finding is an error, and where it was found. Its path waits until the body is
// read, since an entry's keys may come after what is wrong in it.
type finding struct {
	steps []step
	err   *Error
}

// report keeps an error that was found below what is open.
func (d *decoder) report(err *Error, below ...step) {
	if len(d.findings) < maxFindings {
		d.findings = append(d.findings, finding{slices.Concat(d.open, below), err})
	}
}

// errors are the findings, with their paths.
func (d *decoder) errors() Errors {
	out := make(Errors, len(d.findings))
	for i, f := range d.findings {
		out[i] = f.err
		path := d.at
		for _, s := range f.steps {
			path = s.path(path)
		}
		out[i].Path = path
	}
	return out
}

// path is at with the step appended; an entry without all its keys is named by
// its position.
func (s step) path(at string) string {
	n := s.data.Node
	if n.Kind == List && len(n.Keys) > 0 && slices.Contains(s.data.Key(), "") {
		return fmt.Sprintf("%s/%s[%d]", at, stepName(n, at), s.position)
	}
	return s.data.Path(at)
}

// checkEntries checks the entries of one list: that they have their keys, and
// that no two have the same.
func (d *decoder) checkEntries(entries []*Data) {
	if len(entries) == 0 || len(entries[0].Node.Keys) == 0 {
		return
	}
	seen := make(map[string]bool, len(entries))
	for i, entry := range entries {
		at := step{entry, i + 1}
		if missing := entry.missingKeys(); len(missing) > 0 {
			d.report(missingKeys(entry.Node, missing), at)
			continue
		}
		key := strings.Join(entry.Key(), "\x00")
		if seen[key] {
			d.report(duplicate(entry.Node, "entry with the key "+quote(strings.Join(entry.Key(), ","))), at)
		}
		seen[key] = true
	}
}

// checkValues checks that no two values of one leaf-list are the same.
func (d *decoder) checkValues(values []*Data) {
	if len(values) < 2 {
		return
	}
	seen := make(map[string]bool, len(values))
	for i, value := range values {
		if seen[value.Value] {
			d.report(duplicate(value.Node, "value "+quote(value.Value)), step{value, i + 1})
		}
		seen[value.Value] = true
	}
}

// checkChoices checks that no two siblings are of two cases of one choice.
func (d *decoder) checkChoices(siblings []*Data) {
	var chosen map[*choice]*Node
	for _, one := range siblings {
		for _, c := range one.Node.cases {
			if chosen == nil {
				chosen = map[*choice]*Node{}
			}
			other := chosen[c.choice]
			if other == nil {
				chosen[c.choice] = one.Node
			} else if other.caseOf(c.choice) != c.name {
				d.report(&Error{
					Type:    "protocol",
					Tag:     "bad-element",
					Message: fmt.Sprintf("%s: can't be there together with %s: want one case of %s alone", one.Node.Name, other.Name, c.choice.name),
				}, step{one, 1})
				break
			}
		}
	}
}

// caseOf is the case of the choice that n is in.
func (n *Node) caseOf(c *choice) string {
	for _, in := range n.cases {
		if in.choice == c {
			return in.name
		}
	}
	return ""
}

// wrongShape reports, and reads over, a value that is none of node's, whatever
// is in it.
func (d *decoder) wrongShape(node *Node) error {
	kind := d.json.PeekKind()
	if err := d.json.SkipValue(); err != nil {
		return err
	}
	d.report(&Error{
		Type:    "protocol",
		Tag:     "invalid-value",
		Message: fmt.Sprintf("%s: got %s: want %s", node.Name, kindName(kind), shapeOf(node)),
	}, step{&Data{Node: node}, 1})
	return nil
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "a boolean"
}

func shapeOf(node *Node) string {
	switch node.Kind {
	case Container:
		return "an object"
	case List:
		return "an array of objects"
	case LeafList:
		return "an array, each " + node.typ.want
	}
	return node.typ.want
}

// maxNames is how many names an error message offers.
const maxNames = 12

func unknownMember(name string, parent *Node) *Error {
	var known []string
	for _, child := range parent.Children {
		full := child.Name
		if child.Module != parent.Module {
			full = child.Module.Name + ":" + child.Name
		}
		known = append(known, full)
		if prefix, local := cutPrefix(name); prefix == "" && child.Name == local && full != local {
			known = []string{full}
			break
		}
	}
	if len(known) > maxNames {
		known = append(known[:maxNames], "…")
	}
	where := "here"
	if parent.Name != "" {
		where = "in " + parent.Name
	}
	return &Error{
		Type:    "protocol",
		Tag:     "unknown-element",
		Message: fmt.Sprintf("no member %s %s: want %s", quote(name), where, strings.Join(known, ", ")),
	}
}

func missingKeys(node *Node, missing []string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "missing-element",
		Message: fmt.Sprintf("%s: entry without its key: want %s", node.Name, strings.Join(missing, ", ")),
	}
}

func duplicate(node *Node, what string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "bad-element",
		Message: fmt.Sprintf("%s: %s is there twice: want it once", node.Name, what),
	}
}

// malformed is the error of a body that isn't what JSON or the encoding allows.
func (d *decoder) malformed(err error, empty bool) *Error {
	out := &Error{Type: "protocol", Tag: "malformed-message"}
	var syntax *jsontext.SyntacticError
	switch {
	case empty:
		out.Message = "the body is empty: want a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		out.Message = "the body ends too early: want a whole JSON object"
	case errors.As(err, &syntax):
		out.Message = fmt.Sprintf("the body is no JSON at byte %d: %s", syntax.ByteOffset, syntax.Err)
	default:
		out.Message = fmt.Sprintf("the body is wrong at byte %d: %s", d.json.InputOffset(), err)
	}
	return out
}
