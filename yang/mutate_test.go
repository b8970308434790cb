package yang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// place is a value in a JSON document; put replaces the value, and drop removes it.
type place struct {
	node  *Node // nil if the schema has none
	value any
	name  string // of the member; empty for an element
	at    map[string]any
	put   func(any)
	drop  func()
}

// rename gives a member another name.
func (p place) rename(to string) {
	delete(p.at, p.name)
	p.at[to] = p.value
}

// kind is equal for places where the same changes have the same reasons.
func (p place) kind() string {
	switch {
	case p.node == nil:
		return ""
	case p.node.typ != nil:
		return fmt.Sprintln(p.node.Kind, p.name == "", p.node.typ.want, p.node.mandatory)
	}
	return p.node.Path("")
}

// variant is one way to change a place.
type variant struct {
	what  string
	apply func()
}

// unmarshal decodes JSON and keeps the text of numbers.
func unmarshal(t testing.TB, document []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var root any
	require.NoError(t, decoder.Decode(&root))
	return root
}

func marshal(t testing.TB, root any) []byte {
	t.Helper()
	out, err := json.Marshal(root)
	require.NoError(t, err)
	return out
}

// collect returns the places below value, an instance of node, in a stable order.
func collect(node *Node, value any, put func(any)) []place {
	var out []place
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			set := func(v any) { value[name] = v }
			var child *Node
			if node != nil {
				child = node.children[name]
			}
			out = append(out, place{child, value[name], name, value, set, func() { delete(value, name) }})
			out = append(out, collect(child, value[name], set)...)
		}
	case []any:
		for i := range value {
			set := func(v any) { value[i] = v }
			drop := func() { put(slices.Delete(slices.Clone(value), i, i+1)) }
			out = append(out, place{node: node, value: value[i], put: set, drop: drop})
			out = append(out, collect(node, value[i], set)...)
		}
	}
	return out
}

// mutator makes mutants of documents of a schema.
type mutator struct {
	schema *Schema
	// samples holds the values of nodes in the valid documents.
	samples map[*Node]any
	// made holds the changes that were made, by what they change.
	made map[string]bool
}

// oneIn is the number of similar changes of which one is made.
const oneIn = 40

func newMutator(t testing.TB, s *Schema, documents [][]byte) *mutator {
	t.Helper()
	m := &mutator{s, map[*Node]any{}, map[string]bool{}}
	for _, document := range documents {
		for _, p := range m.places(t, document) {
			if p.name != "" {
				m.samples[p.node] = p.value
			}
		}
	}
	return m
}

func (m *mutator) places(t testing.TB, document []byte) []place {
	t.Helper()
	return collect(&m.schema.top, unmarshal(t, document), func(any) {})
}

// mutant is a changed document with a description of the change.
type mutant struct {
	what string
	text []byte
}

// each changes the places of a document in every way, one at a time. It makes the first
// of similar changes, and one in oneIn of the others.
func (m *mutator) each(t testing.TB, random *rand.Rand, document []byte) []mutant {
	t.Helper()
	var out []mutant
	for i, p := range m.places(t, document) {
		for j := range m.variants(p) {
			if !m.first(random, p, j) {
				continue
			}
			root := unmarshal(t, document)
			at := collect(&m.schema.top, root, func(any) {})[i]
			change := m.variants(at)[j]
			change.apply()
			name := at.name
			if at.node != nil {
				name = at.node.Path("")
			}
			out = append(out, mutant{name + " " + change.what, marshal(t, root)})
		}
	}
	return out
}

// first reports whether to make a change: it is the first of its kind, or one of the few others
// that are made.
func (m *mutator) first(random *rand.Rand, p place, way int) bool {
	like := fmt.Sprint(p.kind(), way)
	if !m.made[like] {
		m.made[like] = true
		return true
	}
	return random.IntN(oneIn) == 0
}

// several changes a document in up to four places.
func (m *mutator) several(t testing.TB, random *rand.Rand, document []byte) mutant {
	t.Helper()
	what := "several:"
	for range 2 + random.IntN(3) {
		root := unmarshal(t, document)
		places := collect(&m.schema.top, root, func(any) {})
		if len(places) == 0 {
			break
		}
		at := places[random.IntN(len(places))]
		variants := m.variants(at)
		change := variants[random.IntN(len(variants))]
		change.apply()
		what += fmt.Sprintf(" %s %s", at.name, change.what)
		document = marshal(t, root)
	}
	return mutant{what, document}
}

// variants returns the ways to change a place.
func (m *mutator) variants(p place) []variant {
	out := []variant{{"drop", p.drop}}
	add := func(what string, apply func()) { out = append(out, variant{what, apply}) }
	for _, value := range shapes {
		add(fmt.Sprintf("becomes %v", value), func() { p.put(value) })
	}
	add("becomes deep", func() { p.put(deep) })
	if p.name != "" {
		for _, name := range m.names(p) {
			add("is named "+name, func() { p.rename(name) })
		}
	}
	if p.node == nil {
		return out
	}
	switch value := p.value.(type) {
	case map[string]any:
		out = append(out, m.members(p.node, value)...)
		add("becomes a list", func() { p.put([]any{value}) })
	case []any:
		out = append(out, elements(p, value)...)
	}
	if p.node.typ != nil && (p.node.Kind == Leaf || p.name == "") {
		for _, value := range p.node.typ.edges(p.value) {
			add(fmt.Sprintf("becomes %#v", value), func() { p.put(value) })
		}
	}
	return out
}

// names returns other names for a member: unknown names, its own name with and without the
// module, with another module, and with a prefix that does not name a module.
func (m *mutator) names(p place) []string {
	_, local := cutPrefix(p.name)
	out := []string{local + "x", "none:" + local, "pod:" + local, local + ":", "", "@" + local}
	if p.node != nil {
		out = append(out, local, p.node.Module.Name+":"+local, p.node.Module.Prefix+":"+local)
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == p.name })
}

// members returns the ways to add a member to an instance of node: every member that it does
// not have, allowed or not.
func (m *mutator) members(node *Node, value map[string]any) []variant {
	var out []variant
	add := func(name string, member any) {
		if _, taken := value[name]; !taken {
			out = append(out, variant{"has also " + name, func() { value[name] = member }})
		}
	}
	for _, child := range node.Children {
		name := child.Name
		if child.Module != node.Module {
			name = child.Module.Name + ":" + name
		}
		add(name, m.samples[child])
	}
	add("unknown", "x")
	add("sample:string", "x")
	add("pod:coe", map[string]any{})
	out = append(out, variant{"has no members", func() { clear(value) }})
	return out
}

// elements returns the ways to change the entries of a list or the values of a leaf-list.
func elements(p place, values []any) []variant {
	out := []variant{
		{"is reversed", func() { slices.Reverse(values) }},
		{"has its elements twice", func() { p.put(append(slices.Clone(values), values...)) }},
		{"is in a list", func() { p.put([]any{values}) }},
		{"has null too", func() { p.put(append(slices.Clone(values), nil)) }},
		{"has {} too", func() { p.put(append(slices.Clone(values), map[string]any{})) }},
	}
	if len(values) == 0 {
		return out
	}
	first := values[0]
	out = append(out,
		variant{"has its first alone, not in a list", func() { p.put(first) }},
		variant{"has its first twice", func() { p.put(append(slices.Clone(values), first)) }},
	)
	for _, n := range []int{2, 3, 4} {
		out = append(out, variant{fmt.Sprintf("has %d elements", n), func() { p.put(many(p.node, first, n)) }})
	}
	if entry, is := first.(map[string]any); is { // another mutation can have made it something else
		for _, unique := range p.node.unique {
			out = append(out, variant{"is not unique", func() { p.put(sharing(unique, p.node, entry)) }})
		}
	}
	return out
}

// many returns n elements like the first, with different keys or values.
func many(node *Node, first any, n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = numbered(first, i)
		if entry, ok := first.(map[string]any); ok {
			other := maps.Clone(entry)
			for _, key := range node.Keys {
				other[key.Name] = numbered(other[key.Name], i)
			}
			out[i] = other
		}
	}
	return out
}

// numbered returns a variant of a value with another last character.
func numbered(value any, i int) any {
	switch value := value.(type) {
	case string:
		return value[:max(0, len(value)-1)] + fmt.Sprint(i+1)
	case json.Number:
		return json.Number(fmt.Sprint(i + 1))
	}
	return value
}

// sharing returns two entries with the same leaves.
func sharing(leaves []*Node, list *Node, first map[string]any) []any {
	out := many(list, first, 2)
	for _, leaf := range leaves {
		for _, entry := range out {
			entry.(map[string]any)[leaf.Name] = first[leaf.Name]
		}
	}
	return out
}
