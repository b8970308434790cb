package yang

// NodeKind is what a schema node is in the data tree. Choices and cases are not
// nodes: their children belong to the parent.
type NodeKind uint8

// The kinds of schema nodes.
const (
	Container NodeKind = iota + 1
	List
	Leaf
	LeafList
)

// Schema is the compiled set of modules. It is immutable and safe for use by
// many goroutines.
type Schema struct {
	// Modules in alphabetical order of their names.
	Modules []*Module
	byName  map[string]*Module
}

// Module is one YANG module.
type Module struct {
	Name      string
	Namespace string
	Prefix    string
	Revision  string
	// Top are the module's data nodes at the top level, in the order of the file.
	Top []*Node
}

// Node is a schema node of the data tree (RFC 7950 section 3, "data node").
type Node struct {
	Name   string
	Module *Module // the module that defines it (an augment's, for augmented nodes)
	Kind   NodeKind
	Parent *Node // nil at the top level
	// Children in schema order, augmenting nodes last.
	Children []*Node
	// Keys are the key leaves of a List, in the order of the key statement; a
	// List without keys has none.
	Keys []*Node
	// Config is false for state data (RFC 7950 section 7.21.1).
	Config bool
	// OrderedByUser is set on lists and leaf-lists that are "ordered-by user".
	OrderedByUser bool
	// Description is the description statement, for documentation.
	Description string
	// contains filtered details (type, mandatory, unique, choice, when …)
}

// Mode tells how JSON is read (restconf.md, "JSON read").
type Mode uint8

const (
	// Strict is RFC 7951.
	Strict Mode = iota
	// Lenient is what OpenDaylight's draft-02 takes, and its clients send: a
	// member name without prefix where it is unambiguous, quoted numbers and
	// booleans, null and (for addresses) the empty string as absent, an object
	// where a list with one entry is meant.
	Lenient
)
