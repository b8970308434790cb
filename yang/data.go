package yang

// Data is an instance of a schema node. As in an XML document, the entries of a
// list and the values of a leaf-list are siblings with the same Node; Children
// are in schema order, entries of one list in the order in which they came.
type Data struct {
	Node     *Node
	Value    string  // a Leaf's or a LeafList value's canonical lexical form
	Children []*Data // of a Container or a List entry
}

// Style is how JSON names are written.
type Style uint8

const (
	// RFC7951 names a member "module:name" at the top and wherever the module
	// differs from the parent's.
	RFC7951 Style = iota
	// Draft02 leaves the top member without prefix (restconf.md, "GET member names").
	Draft02
)
