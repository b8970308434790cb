package yang

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// member reads the value of node's member and appends its instances to out.
func (d *decoder) member(node *Node, out []*Data) ([]*Data, error) {
	kind := d.json.PeekKind()
	if kind == 'n' && d.mode == Lenient {
		return out, d.json.SkipValue()
	}
	switch {
	case node.Kind == Leaf:
		return d.leaf(node, out)
	case node.Kind == LeafList && kind == '[':
		return d.leafList(node, out)
	case node.Kind == List && (kind == '[' || kind == '{' && d.mode == Lenient):
		return d.list(node, out)
	case node.Kind == Container && kind == '{':
		return d.instance(node, 1, out)
	}
	return out, d.wrongShape(node)
}

// instance reads an object that is an instance of node, a container or list.
func (d *decoder) instance(node *Node, position int, out []*Data) ([]*Data, error) {
	instance := d.new(node)
	d.open = append(d.open, step{instance, position})
	children, err := d.object(node)
	if err != nil {
		return nil, err
	}
	d.open = d.open[:len(d.open)-1]
	instance.Children = children
	return append(out, instance), nil
}

func (d *decoder) list(node *Node, out []*Data) ([]*Data, error) {
	before := len(out)
	out, err := d.elements(node, out, func(out []*Data, position int) ([]*Data, error) {
		if d.json.PeekKind() != '{' {
			return out, d.wrongShape(node)
		}
		return d.instance(node, position, out)
	})
	if err == nil && !d.trusted {
		d.checkEntries(out[before:])
	}
	return out, err
}

func (d *decoder) leafList(node *Node, out []*Data) ([]*Data, error) {
	before := len(out)
	out, err := d.elements(node, out, func(out []*Data, _ int) ([]*Data, error) {
		return d.leaf(node, out)
	})
	if err == nil && !d.trusted && node.Config {
		d.checkValues(out[before:])
	}
	return out, err
}

// elements reads an array, or a single object in the place of one, with read for
// each element; positions count from 1.
func (d *decoder) elements(node *Node, out []*Data, read func([]*Data, int) ([]*Data, error)) ([]*Data, error) {
	if d.json.PeekKind() == '{' {
		return read(out, 1)
	}
	if _, err := d.json.ReadToken(); err != nil {
		return nil, err
	}
	for position := 1; d.json.PeekKind() != ']' && d.json.PeekKind() != 0; position++ {
		var err error
		if out, err = read(out, position); err != nil {
			return nil, err
		}
	}
	_, err := d.json.ReadToken()
	return out, err
}

// leaf reads one value of node, a leaf or leaf-list.
func (d *decoder) leaf(node *Node, out []*Data) ([]*Data, error) {
	raw, text, ok, err := d.scalar()
	if err != nil {
		return nil, err
	}
	if !ok {
		return out, d.wrongShape(node)
	}
	if d.mode == Lenient {
		if text.text == "" && node.typ.absent {
			return out, nil
		}
		text.form = asText
	}
	value := text.text
	if !d.trusted {
		if value, ok = node.typ.canonical(text); !ok {
			d.report(node.invalidValue(raw), step{&Data{Node: node}, 1})
			return out, nil
		}
	}
	instance := d.new(node)
	instance.Value = value
	return append(out, instance), nil
}
