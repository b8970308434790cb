package yang

// member decodes the value of node's member and appends its instances to out.
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

// instance decodes an object that is an instance of node, a container or list.
func (d *decoder) instance(node *Node, position int, out []*Data) ([]*Data, error) {
	instance := d.new(node)
	d.open = append(d.open, step{node, instance, position})
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
	out, err := d.elements(out, func(out []*Data, position int) ([]*Data, error) {
		if d.json.PeekKind() != '{' {
			return out, d.wrongShape(node)
		}
		return d.instance(node, position, out)
	})
	if err != nil || d.trusted {
		return out, err
	}
	return out, d.checkEntries(out[before:])
}

func (d *decoder) leafList(node *Node, out []*Data) ([]*Data, error) {
	before := len(out)
	out, err := d.elements(out, func(out []*Data, _ int) ([]*Data, error) {
		return d.leaf(node, out)
	})
	if err != nil || d.trusted || !node.Config {
		return out, err
	}
	return out, d.checkValues(out[before:])
}

// elements decodes an array, or a single object in its place. read decodes each element;
// positions count from 1.
func (d *decoder) elements(out []*Data, read func([]*Data, int) ([]*Data, error)) ([]*Data, error) {
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

// leaf decodes one value of node, a leaf or leaf-list.
func (d *decoder) leaf(node *Node, out []*Data) ([]*Data, error) {
	written, wrong, err := d.scalar(node)
	switch {
	case err != nil:
		return nil, err
	case wrong != nil:
		return d.wrong(node, wrong, "", out)
	}
	if d.trusted {
		return append(out, d.leafOf(node, written.text)), nil
	}
	return d.value(node, written, out)
}

// wrongShape reports a value whose shape does not match node, and skips it.
func (d *decoder) wrongShape(node *Node) error {
	wrong, err := d.skip(node)
	if err != nil {
		return err
	}
	return d.report(wrong, step{node: node})
}

// skip skips a value whose shape does not match node, and reports it.
func (d *decoder) skip(node *Node) (*Error, error) {
	kind := d.json.PeekKind()
	return wrongShape(node, kindName(kind), shapeOf(node)), d.json.SkipValue()
}

// scalar decodes a scalar value of node. For another shape, it reports the error.
func (d *decoder) scalar(node *Node) (written scalar, wrong *Error, err error) {
	kind := d.json.PeekKind()
	if kind == 0 {
		_, err = d.json.ReadToken()
		return scalar{}, nil, err
	}
	if kind == '{' || kind == 'n' || kind == '[' && node.typ.written != asEmpty {
		wrong, err = d.skip(node)
		return scalar{}, wrong, err
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return scalar{}, nil, err
	}
	switch kind {
	case '"':
		text, err := d.unquote(raw)
		return scalar{string(text), asString}, nil, err
	case '0':
		return scalar{string(raw), asNumber}, nil, nil
	case '[':
		if err := raw.Compact(); err != nil || string(raw) != "[null]" {
			return scalar{}, node.invalidValue("an array"), nil
		}
		return scalar{"", asEmpty}, nil, nil
	default:
		return scalar{string(raw), asBool}, nil, nil
	}
}

// new returns an instance of node.
func (d *checker) new(node *Node) *Data {
	if len(d.chunk) == 0 {
		d.chunk = make([]Data, chunkSize)
	}
	instance := &d.chunk[0]
	d.chunk = d.chunk[1:]
	instance.Node = node
	return instance
}

// chunkSize is the number of instances that are allocated at once; a pod has about 12.
const chunkSize = 12
