package restconf

import "github.com/coe-bridge/coe-bridge/yang"

// trimDepth is d down to depth levels, d being the first. At the last level
// draft-02 shows the keys of a list's entries, RFC 8040 nothing.
func trimDepth(d *yang.Data, depth int, keys bool) *yang.Data {
	if depth == 0 || len(d.Children) == 0 {
		return d
	}
	out := &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		switch {
		case depth > 1:
			out.Children = append(out.Children, trimDepth(child, depth-1, keys))
		case keys && isKey(child.Node):
			out.Children = append(out.Children, child)
		}
	}
	return out
}

func isKey(n *yang.Node) bool {
	if n.Parent == nil {
		return false
	}
	for _, key := range n.Parent.Keys {
		if key == n {
			return true
		}
	}
	return false
}

// trimConfig is d without its state, or nil where nothing is left.
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

// trimState is the state in d with what it hangs on, or nil where there is none.
func trimState(d *yang.Data) *yang.Data {
	if !d.Node.Config {
		return d
	}
	out := &yang.Data{Node: d.Node}
	state := false
	for _, child := range d.Children {
		if isKey(child.Node) {
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

// selection is what a fields parameter selects of a node: all of it, or what is
// selected of its children.
type selection struct {
	whole bool
	below map[*yang.Node]*selection
}

func (s *selection) at(child *yang.Node) *selection {
	if s.below == nil {
		s.below = map[*yang.Node]*selection{}
	}
	if s.below[child] == nil {
		s.below[child] = &selection{}
	}
	return s.below[child]
}

// trimFields is what sel selects of d. What is selected as a whole counts as the
// first level of depth (RFC 8040 section 4.8.2).
func trimFields(d *yang.Data, sel *selection, depth int) *yang.Data {
	if sel.whole {
		return trimDepth(d, depth, false)
	}
	out := &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		if below := sel.below[child.Node]; below != nil {
			out.Children = append(out.Children, trimFields(child, below, depth))
		}
	}
	return out
}
