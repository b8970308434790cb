package yang

import "slices"

// NodeKind is the kind of a schema node in the data tree. Choices and cases are not nodes:
// their children belong to the parent.
type NodeKind uint8

// The kinds of schema nodes.
const (
	Container NodeKind = iota + 1
	List
	Leaf
	LeafList
)

// Schema is the compiled set of modules. It is immutable, and several goroutines may use it.
type Schema struct {
	// Modules in alphabetical order of their names.
	Modules []*Module
	byName  map[string]*Module
	// top holds the top-level nodes of all modules, like the children of one node.
	top Node
}

// Module returns the module with that name, or nil.
func (s *Schema) Module(name string) *Module { return s.byName[name] }

// byNamespace returns the module with that namespace, or nil.
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
	// Text is the source of the module.
	Text string
	// Implemented is false if the module only has types, groupings and extensions for other
	// modules (RFC 7950 section 5.6.5).
	Implemented bool
	// Top lists the module's top-level data nodes, in the order of the file.
	Top []*Node
	// Notifications lists the notifications of the module. Their anydata contain instances of
	// the top-level nodes of all modules.
	Notifications []*Node
}

// Child returns the module's top-level data node with that name, or nil.
func (m *Module) Child(name string) *Node {
	for _, n := range m.Top {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Notification returns the module's notification with that name, or nil.
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
	// Children is in schema order, with augmenting nodes last.
	Children []*Node
	// Keys lists the key leaves of a List, in the order of the key statement. It is empty for
	// a List without keys.
	Keys []*Node
	// Config is false for state data (RFC 7950 section 7.21.1).
	Config bool
	// OrderedByUser reports whether a list or leaf-list is "ordered-by user".
	OrderedByUser bool
	// Default is the canonical default of a Leaf, its own or that of its type (RFC 7950
	// section 7.6.1); HasDefault reports whether it has one.
	Default    string
	HasDefault bool
	// Description is the description statement, for documentation.
	Description string

	tagged    *Node            // of a Leaf with a default: the node of its tagged instances, see TagDefault
	isTagged  bool             // whether it is the tagged of another node
	index     int              // the position among its siblings
	children  map[string]*Node // by "name" and by "module:name", see addChildren
	typ       *valueType       // of a Leaf or LeafList
	presence  bool             // of a Container
	mandatory bool             // of a Leaf
	atLeast   uint64           // min-elements
	atMost    uint64           // max-elements
	unique    [][]*Node        // the leaves of each unique statement
	cases     []choiceCase     // that it is in, outermost first
	choices   []*choice        // among its children
	when      []condition      // must all hold if the node is present
	demanding bool             // it or a descendant can be required: Validate checks it even if it is absent
}

// choice is a choice statement.
type choice struct {
	name      string
	mandatory bool
	// within lists the cases that the choice itself is in.
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

// Child returns the child with that name that the module defines. If module is empty, it
// returns the only child with that name. It returns nil if there is none.
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

// Top returns the ancestor at the top level, which may be n itself.
func (n *Node) Top() *Node {
	for n.Parent != nil {
		n = n.Parent
	}
	return n
}

// Canonical returns the canonical form of a value given as text, for example a key in a URL.
// It fails with an *Error if n is not a leaf or the value is invalid.
func (n *Node) Canonical(value string) (string, error) {
	if n.typ == nil {
		return "", &Error{Type: "protocol", Tag: "invalid-value", Message: n.Name + " is not a leaf and has no value"}
	}
	canonical, ok := n.typ.canonical(scalar{value, asText})
	if !ok {
		return "", n.invalidValue(quote(value))
	}
	return canonical, nil
}

// addChildren sets n.children, and the index of each child. A name without module is left out
// if several modules define it.
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

// IsKey reports whether n is a key of its list.
func (n *Node) IsKey() bool { return n.Parent != nil && slices.Contains(n.Parent.Keys, n) }

// required reports whether n must be present in every instance of its parent.
func (n *Node) required() bool { return n.mandatory || n.atLeast > 0 }

// Mode is a way to read JSON (docs/restconf.md, "Two dialects").
type Mode uint8

const (
	// Strict is RFC 7951.
	Strict Mode = iota
	// Lenient accepts what OpenDaylight's draft-02 accepts and its clients send: a member name
	// without prefix if it is unambiguous, quoted numbers and booleans, null and (for
	// addresses) the empty string as absent, and an object instead of a list with one entry.
	Lenient
)
