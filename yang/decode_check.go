package yang

import (
	"fmt"
	"slices"
	"strings"
)

// maxFindings is the maximum number of errors that are reported for one body.
const maxFindings = 64

// checker collects the errors of a body in any encoding.
type checker struct {
	mode     Mode
	at       string
	open     []step  // the instances from parent's child down to the current one
	seen     []*Node // the members of the open instances so far
	findings []finding
	chunk    []Data // the next instances come from here

	// Initial memory of open and seen, enough for most bodies.
	openRoom [8]step
	seenRoom [24]*Node
}

func (d *checker) makeRoom() { d.open, d.seen = d.openRoom[:0], d.seenRoom[:0] }

// step is an instance on the way down, with its position among its list's entries. Without
// data it stands for any instance of node.
type step struct {
	node     *Node
	data     *Data
	position int
}

// finding is an error with the place where it was found. Its path is made after the whole
// body was read, because an entry's keys may come after the error.
type finding struct {
	steps []step
	err   *Error
}

// report records an error at the current instance. It returns an error if the maximum is
// reached.
func (d *checker) report(err *Error, below ...step) error {
	d.findings = append(d.findings, finding{slices.Concat(d.open, below), err})
	if len(d.findings) == maxFindings {
		return errTooMany
	}
	return nil
}

// errors returns the findings with their paths.
func (d *checker) errors() Errors {
	out := make(Errors, len(d.findings))
	for i, f := range d.findings {
		out[i] = f.err
		out[i].Path = pathOf(d.at, f.steps)
	}
	return out
}

// path returns at with the step appended. It names an entry by its position if its keys are
// missing, wrong or long.
func (s step) path(at string) string {
	switch {
	case s.data == nil:
		return s.node.Path(at)
	case s.node.Kind == List && !s.data.isNamed():
		return fmt.Sprintf("%s[%d]", s.node.Path(at), s.position)
	}
	return s.data.Path(at)
}

// maxKeys is the maximum length of an entry's keys in error paths.
const maxKeys = 1024

// isNamed reports whether an entry has all its keys, with valid values, so that they make a
// path.
func (d *Data) isNamed() bool {
	length := 0
	for _, key := range d.Node.Keys {
		leaf := d.instanceOf(key)
		if leaf == nil {
			return false
		}
		if _, ok := key.typ.canonical(scalar{leaf.Value, asText}); !ok {
			return false
		}
		length += len(leaf.Value)
	}
	return len(d.Node.Keys) > 0 && length <= maxKeys
}

// pathOf returns the path at the end of steps.
func pathOf(at string, steps []step) string {
	for _, s := range steps {
		at = s.path(at)
	}
	return at
}

// once records that node is present. It fails if node is already in seen, at or after
// before.
func (d *checker) once(node *Node, before int) error {
	if slices.Contains(d.seen[before:], node) {
		return fmt.Errorf("%w: %q", errDuplicate, node.Name)
	}
	d.seen = append(d.seen, node)
	return nil
}

// value appends an instance of node, a leaf or leaf-list, with the canonical form of the
// value.
func (d *checker) value(node *Node, written scalar, out []*Data) ([]*Data, error) {
	read := written
	if d.mode == Lenient { // quotes do not determine the type
		if read.form = asText; read.text == "" && node.typ.absent {
			return out, nil
		}
	}
	value, ok := node.typ.canonical(read)
	if !ok {
		return d.wrong(node, node.invalidValue(written.shown()), written.text, out)
	}
	return append(out, d.leafOf(node, value)), nil
}

// wrong reports an invalid value of node. It still appends the leaf, so that a key with an
// invalid value is not reported as missing.
func (d *checker) wrong(node *Node, err *Error, text string, out []*Data) ([]*Data, error) {
	if node.Kind == Leaf {
		out = append(out, d.leafOf(node, text))
	}
	return out, d.report(err, step{node: node})
}

// leafOf returns an instance of node with that value.
func (d *checker) leafOf(node *Node, value string) *Data {
	instance := d.new(node)
	instance.Value = value
	return instance
}

// checkEntries checks that the entries of one list have their keys, and that no two have the
// same.
func (d *checker) checkEntries(entries []*Data) error {
	if len(entries) == 0 || len(entries[0].Node.Keys) == 0 {
		return nil
	}
	seen := make(map[string]bool, len(entries))
	for i, entry := range entries {
		at := step{entry.Node, entry, i + 1}
		if missing := entry.missingKeys(); len(missing) > 0 {
			if err := d.report(missingKeys(entry.Node, missing), at); err != nil {
				return err
			}
			continue
		}
		key := strings.Join(entry.Key(), "\x00")
		if seen[key] {
			shown := quote(strings.Join(entry.Key(), ","))
			if err := d.report(duplicate(entry.Node, "the entry with the key "+shown), at); err != nil {
				return err
			}
		}
		seen[key] = true
	}
	return nil
}

// checkValues checks that no two values of one leaf-list are the same.
func (d *checker) checkValues(values []*Data) error {
	if len(values) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(values))
	for i, value := range values {
		if seen[value.Value] {
			err := d.report(duplicate(value.Node, "the value "+quote(value.Value)), step{value.Node, value, i + 1})
			if err != nil {
				return err
			}
		}
		seen[value.Value] = true
	}
	return nil
}

// checkChoices checks that no two siblings are of two cases of one choice.
func (d *checker) checkChoices(siblings []*Data) error {
	var first map[*choice]*Node
	for _, one := range siblings {
		for _, in := range one.Node.cases {
			if first == nil {
				first = map[*choice]*Node{}
			}
			other, taken := first[in.choice]
			if !taken {
				first[in.choice] = one.Node
				continue
			}
			if other.caseOf(in.choice) == in.name {
				continue
			}
			if err := d.report(excluded(one.Node, other, in.choice), step{node: one.Node}); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// caseOf returns the case of the choice that n is in.
func (n *Node) caseOf(c *choice) string {
	for _, in := range n.cases {
		if in.choice == c {
			return in.name
		}
	}
	return ""
}
