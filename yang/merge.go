package yang

import (
	"strconv"
	"strings"
)

// Merge returns base with patch merged into it, like a plain patch (RFC 8040 section 4.6.1)
// and NETCONF's merge. Both are instances of one node. It replaces leaves, adds the values of
// leaf-lists, and merges list entries by key. It removes data of another case of a choice
// than the patch has. It replaces a list without keys as a whole, so that a patch can be
// repeated. It does not change its arguments, and the result shares no data with them.
func Merge(base, patch *Data) *Data {
	if base == nil {
		return patch.clone()
	}
	out := &Data{Node: base.Node, Value: patch.Value}
	displaced := displacedBy(patch.Children)
	index := map[string]int{} // index in out.Children, by Identity
	for _, child := range base.Children {
		if !displaced(child) {
			index[child.Identity()] = len(out.Children)
			out.Children = append(out.Children, child.clone())
		}
	}
	for _, child := range patch.Children {
		i, found := index[child.Identity()]
		if found && !child.anonymous() {
			out.Children[i] = Merge(out.Children[i], child)
			continue
		}
		index[child.Identity()] = len(out.Children)
		out.Children = append(out.Children, child.clone())
	}
	sortBySchema(out.Children)
	return out
}

// displacedBy returns a function that reports whether patch replaces a child: it has the same
// list without keys, or another case of the same choice.
func displacedBy(patch []*Data) func(*Data) bool {
	lists := map[*Node]bool{}
	chosen := map[*choice]string{}
	for _, child := range patch {
		lists[child.Node] = child.anonymous()
		for _, in := range child.Node.cases {
			chosen[in.choice] = in.name
		}
	}
	return func(child *Data) bool {
		for _, in := range child.Node.cases {
			if name, ok := chosen[in.choice]; ok && name != in.name {
				return true
			}
		}
		return lists[child.Node]
	}
}

// anonymous reports whether d is an entry of a list without keys.
func (d *Data) anonymous() bool { return d.Node.Kind == List && len(d.Node.Keys) == 0 }

// Identity returns a text that distinguishes d from its siblings, except between entries of a
// list without keys.
func (d *Data) Identity() string {
	id := strconv.Itoa(d.Node.index)
	if d.Node.Kind == LeafList {
		return id + "\x00" + d.Value
	}
	return strings.Join(append([]string{id}, d.Key()...), "\x00")
}
