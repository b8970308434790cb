package restconf

import "github.com/coe-bridge/coe-bridge/yang"

// withDefaults is what the query has told of leaves with their default (RFC 8040
// section 4.8.9), or nil where nothing is left. Those that are told though they are not
// there are added to added.
func (q *request) withDefaults(d *yang.Data, added *[]*yang.Data) *yang.Data {
	switch {
	case q.query.addsDefaults():
		return yang.AddDefaults(d, q.wantsDefault, func(leaf *yang.Data) { *added = append(*added, leaf) })
	case q.query.defaults == trimDefaults && d.Node.HasDefault && d.Value == d.Node.Default:
		return nil
	case q.query.defaults == trimDefaults:
		return yang.TrimDefaults(d)
	}
	return d
}

// wantsDefault tells whether the answer has configuration, or state, such as the leaf.
func (q *request) wantsDefault(leaf *yang.Node) bool {
	switch {
	case !q.tree.config, !q.dialect.draft && q.query.content == "all":
		return true
	case !q.dialect.draft && q.query.content == "nonconfig":
		return !leaf.Config
	}
	return leaf.Config
}

// defaultLeaf is the target where that is a leaf that is not there and has a default:
// who asks for it alone is told that, whatever mode there is (RFC 8040 section 3.5.4),
// but in a datastore by its name (RFC 8527 section 3.2).
func (q *request) defaultLeaf(top *yang.Data) []*yang.Data {
	node := q.target.node()
	if q.dialect != rfc8040 || !node.HasDefault || !q.wantsDefault(node) {
		return nil
	}
	parent := descend(top, q.target.parent()[1:])
	if parent == nil {
		return nil
	}
	found := descendAll(yang.AddDefaults(parent, q.wantsDefault, func(*yang.Data) {}), q.target[len(q.target)-1:])
	if q.query.defaults == reportAllTagged {
		for _, leaf := range found {
			yang.TagDefault(leaf)
		}
	}
	return found
}
