package yang

import (
	"fmt"
	"slices"
	"strings"
)

// maxFindings is how many errors of one body are reported.
const maxFindings = 64

// checker finds what is wrong with a body, in whichever encoding it came.
type checker struct {
	mode     Mode
	at       string
	open     []step  // from parent's child down to what is being read
	seen     []*Node // of what is open, the members read so far
	findings []finding
	chunk    []Data // the next instances come from here

	// Where open and seen start, so that few bodies need more.
	openRoom [8]step
	seenRoom [24]*Node
}

func (d *checker) makeRoom() { d.open, d.seen = d.openRoom[:0], d.seenRoom[:0] }

// step is an instance on the way down, and its place among its list's entries.
// Without data it is whatever is there in the place of node's instances.
type step struct {
	node     *Node
	data     *Data
	position int
}

// finding is an error, and where it was found. Its path waits until the body is
// read, since an entry's keys may come after what is wrong in it.
type finding struct {
	steps []step
	err   *Error
}

// report keeps an error that was found below what is open. It returns an error
// when these are enough.
func (d *checker) report(err *Error, below ...step) error {
	d.findings = append(d.findings, finding{slices.Concat(d.open, below), err})
	if len(d.findings) == maxFindings {
		return errTooMany
	}
	return nil
}

// errors are the findings, with their paths.
func (d *checker) errors() Errors {
	out := make(Errors, len(d.findings))
	for i, f := range d.findings {
		out[i] = f.err
		out[i].Path = pathOf(d.at, f.steps)
	}
	return out
}

// path is at with the step appended. An entry that its keys don't name, or whose keys
// are long, is named by its position.
func (s step) path(at string) string {
	switch {
	case s.data == nil:
		return s.node.Path(at)
	case s.node.Kind == List && !s.data.isNamed():
		return fmt.Sprintf("%s[%d]", s.node.Path(at), s.position)
	}
	return s.data.Path(at)
}

// maxKeys is how long an entry's keys may be for error paths to have them.
const maxKeys = 1024

// isNamed tells whether an entry has keys, all of them, each a value of its type, that
// make a path.
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

// pathOf is the path at the end of steps.
func pathOf(at string, steps []step) string {
	for _, s := range steps {
		at = s.path(at)
	}
	return at
}

// once notes that node is there, and fails where it was among what was seen
// since before.
func (d *checker) once(node *Node, before int) error {
	if slices.Contains(d.seen[before:], node) {
		return fmt.Errorf("%w: %q", errDuplicate, node.Name)
	}
	d.seen = append(d.seen, node)
	return nil
}

// value appends an instance of node, a leaf or leaf-list, with the canonical form
// of what was written, to out.
func (d *checker) value(node *Node, written scalar, out []*Data) ([]*Data, error) {
	read := written
	if d.mode == Lenient { // how it is written says nothing of its type
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

// wrong reports what is wrong with a value of node. A leaf is there all the same, as
// it was written, so that no key is said to be missing.
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

// checkEntries checks the entries of one list: that they have their keys, and
// that no two have the same.
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

// caseOf is the case of the choice that n is in.
func (n *Node) caseOf(c *choice) string {
	for _, in := range n.cases {
		if in.choice == c {
			return in.name
		}
	}
	return ""
}
