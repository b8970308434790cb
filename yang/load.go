package yang

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Load compiles the modules of this package into a Schema. A test checks that it succeeds, so
// an error means that the program was built from other files.
func Load() (*Schema, error) {
	sources, err := readSources()
	if err != nil {
		return nil, err
	}
	return compile(sources)
}

func readSources() (map[string]string, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list YANG modules: %w", err)
	}
	sources := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read YANG module: %w", err)
		}
		sources[entry.Name()] = string(text)
	}
	return sources, nil
}

// compile compiles modules, given as text by file name.
func compile(sources map[string]string) (*Schema, error) {
	parsed := goyang.NewModules()
	for name, text := range sources {
		if err := parsed.Parse(text, name); err != nil {
			return nil, fmt.Errorf("parse YANG module %s: %w", name, err)
		}
	}
	if errs := parsed.Process(); len(errs) > 0 {
		return nil, fmt.Errorf("resolve YANG modules: %w", errors.Join(errs...))
	}
	l := &loader{
		schema: &Schema{byName: map[string]*Module{}},
		nodes:  map[*goyang.Entry]*Node{},
	}
	l.addModules(parsed, sources)
	for _, step := range []func() error{l.addTops, l.addNotifications, l.resolve} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("compile YANG modules: %w", err)
		}
	}
	return l.schema, nil
}

// loader compiles goyang's entries into nodes: first the tree, then the references between
// nodes.
type loader struct {
	schema  *Schema
	modules []*goyang.Module // parallel to schema.Modules
	nodes   map[*goyang.Entry]*Node
	built   []*goyang.Entry // in the order in which they became nodes
}

func (l *loader) addModules(parsed *goyang.Modules, sources map[string]string) {
	for key, m := range parsed.Modules {
		if !strings.Contains(key, "@") {
			l.modules = append(l.modules, m)
		}
	}
	slices.SortFunc(l.modules, func(a, b *goyang.Module) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range l.modules {
		module := &Module{
			Name:      m.Name,
			Namespace: m.Namespace.Name,
			Prefix:    m.Prefix.Name,
			Revision:  m.Current(),
			Text:      sources[m.Name+".yang"],

			Implemented: isImplemented(m),
		}
		l.schema.Modules = append(l.schema.Modules, module)
		l.schema.byName[m.Name] = module
	}
}

func (l *loader) addTops() error {
	var all []*Node
	for i, module := range l.schema.Modules {
		tops, _, err := l.buildAll(goyang.ToEntry(l.modules[i]), nil)
		if err != nil {
			return err
		}
		module.Top = tops
		all = append(all, tops...)
	}
	l.schema.top.Config = true
	l.schema.top.addChildren(all)
	return nil
}

// buildAll builds the data nodes directly below an entry. It returns the choices that they
// are in.
func (l *loader) buildAll(e *goyang.Entry, parent *Node) ([]*Node, []*choice, error) {
	var nodes []*Node
	var choices []*choice
	for _, member := range flatten(e, nil) {
		if member.choice != nil {
			choices = append(choices, member.choice)
			continue
		}
		node, err := l.build(member.entry, parent)
		if err != nil {
			return nil, nil, err
		}
		node.cases = member.cases
		nodes = append(nodes, node)
	}
	return nodes, choices, nil
}

func (l *loader) build(e *goyang.Entry, parent *Node) (*Node, error) {
	for _, statement := range []string{"must", "if-feature"} {
		if len(e.Extra[statement]) > 0 {
			return nil, fmt.Errorf("%s: %s is not supported", e.Path(), statement)
		}
	}
	module, err := e.InstantiatingModule()
	if err != nil {
		return nil, fmt.Errorf("%s: find its module: %w", e.Path(), err)
	}
	node := &Node{
		Name:        e.Name,
		Module:      l.schema.byName[module],
		Parent:      parent,
		Description: e.Description,
		presence:    len(e.Extra["presence"]) > 0,
		mandatory:   e.Mandatory == goyang.TSTrue,
	}
	if node.Config, err = isConfig(e, parent); err != nil {
		return nil, err
	}
	if node.Kind, err = kindOf(e); err != nil {
		return nil, err
	}
	if e.ListAttr != nil {
		node.OrderedByUser = e.ListAttr.OrderedByUser
		node.atLeast, node.atMost = e.ListAttr.MinElements, e.ListAttr.MaxElements
	}
	l.nodes[e] = node
	l.built = append(l.built, e)
	if e.Kind == goyang.AnyDataEntry {
		node.Children, node.children = l.schema.top.Children, l.schema.top.children
		return node, nil
	}
	if !e.IsDir() {
		return node, nil
	}
	children, choices, err := l.buildAll(e, node)
	node.addChildren(children)
	node.choices = choices
	return node, err
}

func kindOf(e *goyang.Entry) (NodeKind, error) {
	switch {
	case e.IsLeafList():
		return LeafList, nil
	case e.IsLeaf():
		return Leaf, nil
	case e.IsList():
		return List, nil
	case e.IsContainer(), e.Kind == goyang.NotificationEntry, e.Kind == goyang.AnyDataEntry && inNotification(e):
		return Container, nil
	}
	return 0, fmt.Errorf("%s: %s is not supported", e.Path(), e.Kind)
}

// isConfig reports whether a node is configuration. The statement "unkeyed" of our
// coe-extensions overrides the "config false" beside it.
func isConfig(e *goyang.Entry, parent *Node) (bool, error) {
	inherited := e.Kind != goyang.NotificationEntry && (parent == nil || parent.Config)
	if e.Config != goyang.TSFalse || !inherited {
		return inherited, nil
	}
	unkeyed, err := goyang.MatchingEntryExtensions(e, "coe-extensions", "unkeyed")
	if err != nil {
		return false, fmt.Errorf("%s: %w", e.Path(), err)
	}
	return len(unkeyed) > 0, nil
}
