package yang

import (
	"strconv"
	"strings"
)

// Merge returns base with patch merged into it, as RFC 8040 section 4.6.1 (plain
// patch) and NETCONF's merge have it; both are instances of one node. Leaves are
// replaced, values of leaf-lists added, entries of lists merged by key, and what
// is of another case of a choice than the patch goes. A list without keys is
// replaced as a whole, so that a patch can be repeated. The inputs stay as they
// are and share nothing with the result.
func Merge(base, patch *Data) *Data {
	if base == nil {
		return patch.clone()
	}
	out := &Data{Node: base.Node, Value: patch.Value}
	displaced := displacedBy(patch.Children)
	index := map[string]int{} // where in out.Children an instance is
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

// displacedBy returns a function that reports whether what patch holds takes the
// place of a child: the whole of a list without keys, or another case of its
// choice.
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

// Identity tells d from its siblings, entries of lists without keys excepted.
func (d *Data) Identity() string {
	id := strconv.Itoa(d.Node.index)
	if d.Node.Kind == LeafList {
		return id + "\x00" + d.Value
	}
	return strings.Join(append([]string{id}, d.Key()...), "\x00")
}
