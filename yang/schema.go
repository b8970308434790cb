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
	// top are the top-level nodes of all modules, as if they were one node's children.
	top Node
}

// Module returns the module of that name, or nil.
func (s *Schema) Module(name string) *Module { return s.byName[name] }

// byNamespace is the module of that namespace, or nil.
func (s *Schema) byNamespace(uri string) *Module {
	for _, module := range s.Modules {
		if module.Namespace == uri {
			return module
		}
	}
	return nil
}

// Module is one YANG module.
type Module struct {
	Name      string
	Namespace string
	Prefix    string
	Revision  string
	// Text is the module as it was read.
	Text string
	// Implemented is false where the module has but types, groupings and extensions
	// for other modules to use (RFC 7950 section 5.6.5).
	Implemented bool
	// Top are the module's data nodes at the top level, in the order of the file.
	Top []*Node
	// Notifications are the notifications of the module. Their anydata hold
	// instances of the top-level nodes of all modules.
	Notifications []*Node
}

// Child returns the module's top-level data node of that name, or nil.
func (m *Module) Child(name string) *Node {
	for _, n := range m.Top {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Notification returns the module's notification of that name, or nil.
func (m *Module) Notification(name string) *Node {
	for _, n := range m.Notifications {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Node is a schema node of the data tree (RFC 7950 section 3, "data node"), or a
// notification, which has the Kind Container.
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
	// Default is the canonical value of a Leaf that has a default, of its own or of its
	// type (RFC 7950 section 7.6.1); HasDefault tells whether it has one.
	Default    string
	HasDefault bool
	// Description is the description statement, for documentation.
	Description string

	tagged    *Node            // of a Leaf with a default: as it is told where that is told apart
	isTagged  bool             // it is another node's tagged
	index     int              // the position among its siblings
	children  map[string]*Node // by "name" and by "module:name", see addChildren
	typ       *valueType       // of a Leaf or LeafList
	presence  bool             // of a Container
	mandatory bool             // of a Leaf
	atLeast   uint64           // min-elements
	atMost    uint64           // max-elements
	unique    [][]*Node        // the leaves of each unique statement
	cases     []choiceCase     // the cases that it is in, outermost first
	choices   []*choice        // the choices among its children
	when      []condition      // all hold where the node is
	demanding bool             // it or a descendant can be missing: Validate looks even where it is absent
}

// choice is a choice statement.
type choice struct {
	name      string
	mandatory bool
	// within are the cases that the choice itself is in.
	within []choiceCase
}

// choiceCase is one case of a choice.
type choiceCase struct {
	choice *choice
	name   string
}

// condition is a when statement: a sibling leaf must have the value.
type condition struct {
	leaf  *Node
	value string
}

// Child returns the child of that name that the module defines or, where module
// is empty, the only one of that name. It returns nil where there is none.
func (n *Node) Child(module, name string) *Node {
	if module == "" {
		return n.children[name]
	}
	for _, child := range n.Children {
		if child.Name == name && child.Module.Name == module {
			return child
		}
	}
	return nil
}

// Top returns the ancestor at the top level, or n itself where it is there.
func (n *Node) Top() *Node {
	for n.Parent != nil {
		n = n.Parent
	}
	return n
}

// Canonical returns the canonical form of a value given as text, as a key in a
// URL is. It fails with an *Error where n is no leaf or the value is none of
// its type.
func (n *Node) Canonical(value string) (string, error) {
	if n.typ == nil {
		return "", &Error{Type: "protocol", Tag: "invalid-value", Message: n.Name + " is no leaf and has no value"}
	}
	canonical, ok := n.typ.canonical(scalar{value, asText})
	if !ok {
		return "", n.invalidValue(quote(value))
	}
	return canonical, nil
}

// addChildren fills n.children and the children's index. A name alone means
// nothing where several modules define it.
func (n *Node) addChildren(children []*Node) {
	n.Children = children
	n.children = make(map[string]*Node, 2*len(children))
	for i, child := range children {
		child.index = i
		n.children[child.Module.Name+":"+child.Name] = child
		if _, taken := n.children[child.Name]; taken {
			child = nil
		}
		n.children[children[i].Name] = child
	}
}

// required reports whether n must be there, whatever else is.
func (n *Node) required() bool { return n.mandatory || n.atLeast > 0 }

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
