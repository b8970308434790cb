package tree

import "github.com/coe-bridge/coe-bridge/yang"

// Defaults is how leaves with their default value are reported (RFC 6243 section 3).
type Defaults uint8

// The modes. Only set leaves are stored, so DefaultsAsStored is the mode explicit.
const (
	DefaultsAsStored Defaults = iota
	DefaultsAll               // unset leaves are added
	DefaultsTagged            // and tagged
	DefaultsTrim              // leaves with their default are left out
)

// withDefaults is d in the mode of the question (RFC 8040 section 4.8.9), or nil if nothing
// is left. The unset leaves that it adds are appended to added.
func (q Question) withDefaults(d *yang.Data, added *[]*yang.Data) *yang.Data {
	switch {
	case q.Defaults == DefaultsAll || q.Defaults == DefaultsTagged:
		return yang.AddDefaults(d, q.wantsDefault, func(leaf *yang.Data) { *added = append(*added, leaf) })
	case q.Defaults == DefaultsTrim && d.Node.HasDefault && d.Value == d.Node.Default:
		return nil
	case q.Defaults == DefaultsTrim:
		return yang.TrimDefaults(d)
	}
	return d
}

// wantsDefault reports whether the leaf is in the part that is asked for.
func (q Question) wantsDefault(leaf *yang.Node) bool {
	switch q.Part {
	case PartConfig:
		return leaf.Config
	case PartState:
		return !leaf.Config
	default:
		return true
	}
}

// unsetLeaf is the leaf At with its default, if it is not set and that is asked for.
func (q Question) unsetLeaf(top *yang.Data) []*yang.Data {
	node := q.At.Node()
	if !q.UnsetLeaf || !node.HasDefault || !q.wantsDefault(node) {
		return nil
	}
	parent := Descend(top, q.At.Parent()[1:])
	if parent == nil {
		return nil
	}
	found := descendAll(yang.AddDefaults(parent, q.wantsDefault, func(*yang.Data) {}), Target{q.At.Last()})
	if q.Defaults == DefaultsTagged {
		for _, leaf := range found {
			yang.TagDefault(leaf)
		}
	}
	return found
}
