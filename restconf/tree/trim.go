package tree

import "github.com/coe-bridge/coe-bridge/yang"

// Trim leaves of the data what the question asks for.
func (q Question) Trim(found []*yang.Data) (left []*yang.Data) {
	var added []*yang.Data
	for _, d := range found {
		switch q.Part {
		case PartConfig:
			d = trimConfig(d)
		case PartState:
			d = trimState(d)
		default: // both
		}
		if d != nil {
			d = q.withDefaults(d, &added)
		}
		if d != nil {
			d = q.trimOne(d)
		}
		if d != nil {
			left = append(left, d)
		}
	}
	if q.Defaults == DefaultsTagged {
		for _, leaf := range added {
			yang.TagDefault(leaf)
		}
	}
	return left
}

// trimOne is what fields and depth leave of an instance; nil is nothing. The datastore is
// the first level.
func (q Question) trimOne(d *yang.Data) *yang.Data {
	root := q.At.IsRoot()
	switch {
	case q.Fields != nil && root:
		below := q.Fields.Below[d.Node]
		if below == nil {
			return nil
		}
		return trimFields(d, below, q.Depth)
	case q.Fields != nil:
		return trimFields(d, q.Fields, q.Depth)
	case !root || q.Depth == 0:
		return trimDepth(d, q.Depth, q.Keys)
	case q.Depth == 1:
		return nil
	}
	return trimDepth(d, q.Depth-1, q.Keys)
}

// trimDepth is d down to depth levels, of which d is the first. keys shows the keys of
// entries below the last level.
func trimDepth(d *yang.Data, depth int, keys bool) *yang.Data {
	if depth == 0 || len(d.Children) == 0 {
		return d
	}
	out := &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		switch {
		case depth > 1:
			out.Children = append(out.Children, trimDepth(child, depth-1, keys))
		case keys && child.Node.IsKey():
			out.Children = append(out.Children, child)
		}
	}
	return out
}

// trimConfig is d without its state, or nil if nothing is left.
func trimConfig(d *yang.Data) *yang.Data {
	if !d.Node.Config {
		return nil
	}
	if len(d.Children) == 0 {
		return d
	}
	out := &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		if left := trimConfig(child); left != nil {
			out.Children = append(out.Children, left)
		}
	}
	return out
}

// trimState is the state in d with the nodes that hold it, or nil if there is none.
func trimState(d *yang.Data) *yang.Data {
	if !d.Node.Config {
		return d
	}
	out := &yang.Data{Node: d.Node}
	state := false
	for _, child := range d.Children {
		if child.Node.IsKey() {
			out.Children = append(out.Children, child)
		} else if left := trimState(child); left != nil {
			out.Children = append(out.Children, left)
			state = true
		}
	}
	if !state {
		return nil
	}
	return out
}

// Selection is what a fields parameter selects of a node: all of it, or a Selection of its
// children.
type Selection struct {
	Whole bool
	Below map[*yang.Node]*Selection
}

// At is what is selected of a child.
func (s *Selection) At(child *yang.Node) *Selection {
	if s.Below == nil {
		s.Below = map[*yang.Node]*Selection{}
	}
	if s.Below[child] == nil {
		s.Below[child] = &Selection{}
	}
	return s.Below[child]
}

// trimFields is what sel selects of d. A node that is selected as a whole is the first
// level of depth (RFC 8040 section 4.8.2).
func trimFields(d *yang.Data, sel *Selection, depth int) *yang.Data {
	if sel.Whole {
		return trimDepth(d, depth, false)
	}
	out := &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		if below := sel.Below[child.Node]; below != nil {
			out.Children = append(out.Children, trimFields(child, below, depth))
		}
	}
	return out
}
