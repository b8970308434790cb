package yang

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeJSON reads a JSON object whose members are instances of parent's
// children or, where parent is nil, of the top-level nodes of all modules. The
// path of parent's instance, at, stands before all error paths; it is "" at the
// top.
//
// It checks syntax, names, types, that keys are there, duplicates, and that at
// most one case of a choice is there; it does not check what Validate does. The
// values of what it returns are canonical. It fails with Errors: those that it
// found, up to a limit, or a single malformed-message where the syntax is wrong.
func (s *Schema) DecodeJSON(body []byte, parent *Node, at string, mode Mode) ([]*Data, error) {
	if parent == nil {
		parent = &s.top
	}
	d := newDecoder(body)
	d.mode, d.at = mode, at
	children, err := d.document(parent)
	if err != nil && !errors.Is(err, errTooMany) {
		return nil, Errors{d.malformed(err, len(body) == 0)}
	}
	if len(d.findings) > 0 {
		return nil, d.errors()
	}
	return children, nil
}

// DecodeObject is the inverse of EncodeObject: it reads the instance of n, a
// container or an entry of a list, that EncodeObject wrote. It checks that the
// members are n's and of the right shape, and takes the values as they are.
func DecodeObject(body []byte, n *Node) (*Data, error) {
	d := newDecoder(body)
	d.trusted = true
	children, err := d.document(n)
	if len(d.findings) > 0 {
		err = d.errors()
	}
	if err != nil {
		return nil, fmt.Errorf("decode stored %s: %w", n.Name, err)
	}
	return &Data{Node: n, Children: children}, nil
}

// decoder reads one body in JSON. Its methods return an error where the syntax is wrong,
// and keep all else that is wrong as findings.
type decoder struct {
	checker
	json    *jsontext.Decoder
	trusted bool   // values are canonical, and names as EncodeObject writes them
	scratch []byte // for names with escapes
}

// newDecoder leaves duplicate names to the decoder's own check, which knows that
// a prefix makes no other name.
func newDecoder(body []byte) *decoder {
	d := &decoder{json: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))}
	d.makeRoom()
	return d
}

// Errors in the document that stop it, beside those of the JSON decoder.
var (
	errNoObject  = errors.New("want a JSON object")
	errTrailing  = errors.New("want nothing after the JSON object")
	errDuplicate = errors.New("a member is there twice")
	errTooMany   = errors.New("too many errors")
)

// document reads the whole body.
func (d *decoder) document(parent *Node) ([]*Data, error) {
	if kind := d.json.PeekKind(); kind != '{' && kind != 0 {
		return nil, errNoObject
	}
	children, err := d.object(parent)
	if err != nil {
		return nil, err
	}
	if _, err := d.json.ReadToken(); err == nil {
		return nil, errTrailing
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return children, nil
}

// object reads an object whose members are instances of parent's children.
func (d *decoder) object(parent *Node) ([]*Data, error) {
	if _, err := d.json.ReadToken(); err != nil {
		return nil, err
	}
	before := len(d.seen)
	var out []*Data
	for d.json.PeekKind() == '"' {
		node, err := d.name(parent)
		if err != nil {
			return nil, err
		}
		if node == nil {
			if err := d.json.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		if err := d.once(node, before); err != nil {
			return nil, err
		}
		if out, err = d.member(node, out); err != nil {
			return nil, err
		}
	}
	d.seen = d.seen[:before]
	if _, err := d.json.ReadToken(); err != nil { // "}", or what is wrong
		return nil, err
	}
	sortBySchema(out)
	if d.trusted {
		return out, nil
	}
	return out, d.checkChoices(out)
}

// name reads a member's name and finds its node; nil where there is none.
func (d *decoder) name(parent *Node) (*Node, error) {
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, err
	}
	name, err := d.unquote(raw)
	if err != nil {
		return nil, err
	}
	node := parent.children[string(name)]
	bare := d.mode == Strict && node != nil && node.Module != parent.Module && bytes.IndexByte(name, ':') < 0
	if node == nil || bare {
		return nil, d.report(unknownMember(string(name), parent))
	}
	return node, nil
}

// unquote returns the text of a JSON string, valid until the next read.
func (d *decoder) unquote(raw jsontext.Value) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	var err error
	d.scratch, err = jsontext.AppendUnquote(d.scratch[:0], raw)
	return d.scratch, err
}
