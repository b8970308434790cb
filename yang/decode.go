package yang

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeJSON decodes a JSON object whose members are instances of parent's children. If
// parent is nil, they are instances of the top-level nodes of all modules. at is the path of
// parent's instance, "" at the top level; it is the prefix of all error paths.
//
// It checks syntax, names, types, keys, duplicates, and that at most one case of a choice is
// present; Validate checks the rest. The returned values are canonical. The error is of
// type Errors: all errors up to a limit, or a single malformed-message for invalid syntax.
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

// DecodeObject is the inverse of EncodeObject: it decodes the instance of n, a container or
// a list entry. It checks that the members belong to n and have the right shape, and does
// not check the values.
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

// decoder decodes one JSON body. Its methods return an error for invalid syntax, and collect
// all other errors as findings.
type decoder struct {
	checker
	json    *jsontext.Decoder
	trusted bool   // values are canonical, and names as EncodeObject writes them
	scratch []byte // for names with escapes
}

// newDecoder allows duplicate names, because the decoder checks them itself: "name" and
// "module:name" are duplicates too.
func newDecoder(body []byte) *decoder {
	d := &decoder{json: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))}
	d.makeRoom()
	return d
}

// Errors that stop the decoder, beside the errors of the JSON decoder.
var (
	errNoObject  = errors.New("want a JSON object")
	errTrailing  = errors.New("want nothing after the JSON object")
	errDuplicate = errors.New("a member appears twice")
	errTooMany   = errors.New("too many errors")
)

// document decodes the whole body.
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

// object decodes an object whose members are instances of parent's children.
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
	if _, err := d.json.ReadToken(); err != nil { // "}", or a syntax error
		return nil, err
	}
	sortBySchema(out)
	if d.trusted {
		return out, nil
	}
	return out, d.checkChoices(out)
}

// name reads a member's name and finds its node; nil if there is none.
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
