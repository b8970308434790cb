package yang

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

// elements reads an array, or a single object in the place of one, with read for
// each element; positions count from 1.
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

// leaf reads one value of node, a leaf or leaf-list.
func (d *decoder) leaf(node *Node, out []*Data) ([]*Data, error) {
	written, ok, err := d.scalar(node)
	if err != nil || !ok {
		return out, err
	}
	if d.trusted {
		return append(out, d.leafOf(node, written.text)), nil
	}
	return d.value(node, written, out)
}

// wrongShape reports, and reads over, a value that is none of node's, whatever
// is in it.
func (d *decoder) wrongShape(node *Node) error {
	kind := d.json.PeekKind()
	if err := d.json.SkipValue(); err != nil {
		return err
	}
	return d.report(wrongShape(node, kindName(kind), shapeOf(node)), step{node: node})
}

// scalar reads a value of node's; ok is false, and that reported, where it has
// the shape of none.
func (d *decoder) scalar(node *Node) (written scalar, ok bool, err error) {
	kind := d.json.PeekKind()
	if kind == 0 {
		_, err = d.json.ReadToken()
		return scalar{}, false, err
	}
	if kind == '{' || kind == 'n' || kind == '[' && node.typ.written != asEmpty {
		return scalar{}, false, d.wrongShape(node)
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return scalar{}, false, err
	}
	switch kind {
	case '"':
		text, err := d.unquote(raw)
		return scalar{string(text), asString}, true, err
	case '0':
		return scalar{string(raw), asNumber}, true, nil
	case '[':
		if err := raw.Compact(); err != nil || string(raw) != "[null]" {
			return scalar{}, false, d.report(node.invalidValue("an array"), step{node: node})
		}
		return scalar{"", asEmpty}, true, nil
	default:
		return scalar{string(raw), asBool}, true, nil
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

// chunkSize is how many instances are allocated at once; a pod has about 12.
const chunkSize = 12
