package yang

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// element is an XML element as text: names have their prefixes, and namespaces are attributes.
type element struct {
	name       string
	attributes string
	text       string
	children   []*element
}

func (e *element) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "<%s%s>%s", e.name, e.attributes, e.text)
	for _, child := range e.children {
		child.write(out)
	}
	fmt.Fprintf(out, "</%s>", e.name)
}

func writeAll(elements []*element) []byte {
	var out bytes.Buffer
	for _, e := range elements {
		e.write(&out)
	}
	return out.Bytes()
}

// elementsOf returns the elements of data, keys first.
func elementsOf(siblings []*Data, parent *Module) []*element {
	var out []*element
	slices.SortStableFunc(siblings, func(a, b *Data) int { return a.rank() - b.rank() })
	for _, d := range siblings {
		var written bytes.Buffer
		writeElement(&written, &Data{Node: d.Node, Value: d.Value}, parent)
		tag, text, _ := strings.Cut(written.String(), ">")
		attributes := strings.TrimSuffix(tag[len("<"+d.Node.Name):], "/")
		text = strings.TrimSuffix(text, "</"+d.Node.Name+">")
		out = append(out, &element{d.Node.Name, attributes, text, elementsOf(d.Children, d.Node.Module)})
	}
	return out
}

// rank returns the place of an instance in XML: among the keys, or after them.
func (d *Data) rank() int {
	if d.Node.Parent != nil {
		if i := slices.Index(d.Node.Parent.Keys, d.Node); i >= 0 {
			return i
		}
	}
	return math.MaxInt
}

// site is an element in a document, with its siblings and its node.
type site struct {
	*element
	node     *Node
	siblings *[]*element
	index    int
}

func sites(siblings *[]*element, node *Node) []site {
	var out []site
	for i, e := range *siblings {
		if child := nodeOf(e, node); child != nil {
			out = append(out, site{e, child, siblings, i})
			out = append(out, sites(&e.children, child)...)
		}
	}
	return out
}

// nodeOf returns the node of an element in parent's instance, or nil.
func nodeOf(e *element, parent *Node) *Node {
	for _, child := range parent.Children {
		if child.Name == e.name && (child.Module == parent.Module || strings.Contains(e.attributes, child.Module.Namespace)) {
			return child
		}
	}
	return nil
}

func (s site) insert(at int, others ...*element) {
	*s.siblings = slices.Insert(slices.Clone(*s.siblings), at, others...)
}

// variants returns the ways to change an element.
func (s site) variants() []variant {
	var out []variant
	add := func(what string, apply func()) { out = append(out, variant{what, apply}) }
	add("drop", func() { *s.siblings = slices.Delete(slices.Clone(*s.siblings), s.index, s.index+1) })
	add("twice", func() { s.insert(s.index, s.element) })
	add("again at the end", func() { s.insert(len(*s.siblings), s.element) })
	add("first", func() {
		*s.siblings = slices.Delete(slices.Clone(*s.siblings), s.index, s.index+1)
		s.insert(0, s.element)
	})
	add("another name", func() { s.name += "x" })
	for _, attributes := range []string{
		` xmlns="urn:none"`, ` xmlns=""`, ` xmlns="urn:opendaylight:coe:northbound:pod"`, ` xmlns="urn:coe-bridge:test:sample"`, ` a="b"`,
		` xmlns:if="urn:none"`,
	} {
		add("attributes"+attributes, func() { s.attributes = attributes })
	}
	add("prefix", func() { s.name = "p:" + s.name })
	add("own prefix", func() {
		s.attributes, s.name = fmt.Sprintf(` xmlns:p="%s" xmlns="%[1]s"`, s.node.Module.Namespace), "p:"+s.name
	})
	add("child", func() { s.children = append(s.children, &element{name: "x"}) })
	if s.node.typ == nil { // libyang does not support comments in leaves
		add("comment", func() { s.text = "<!-- a -->" })
		add("instruction", func() { s.text = "<?a b?>" })
	}
	add("empty", func() { s.text, s.children = "", nil })
	for _, text := range s.texts() {
		add(fmt.Sprintf("text %q", text), func() { s.text = text })
	}
	return out
}

// texts returns texts for an element, escaped.
func (s site) texts() []string {
	out := []string{"x", " ", "<![CDATA[x]]>", "&amp;&#x41;", "&none;", "&#0;"}
	if s.node.typ == nil {
		return out
	}
	for _, edge := range s.node.typ.edges(plain(s.text)) {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(fmt.Sprint(edge))) // writing to a buffer doesn't fail
		out = append(out, escaped.String())
	}
	return append(out, " "+s.text+" ", "<![CDATA["+s.text+"]]>", "\n\t"+s.text+"\n")
}

// plain returns a text without its escapes.
func plain(text string) string {
	return strings.NewReplacer("&lt;", "<", "&amp;", "&", "&#39;", "'", "&#34;", `"`).Replace(text)
}

// severalXMLMutants is the number of XML documents that are changed in two places.
const severalXMLMutants = 1000

// xmlMutantsOf returns changed documents, like mutantsOf.
func xmlMutantsOf(t testing.TB, s *Schema) []mutant {
	t.Helper()
	documents := validDocuments(t)
	m := newMutator(t, s, documents)
	random := rand.New(rand.NewPCG(20261121, 2))
	var out []mutant
	for _, document := range documents {
		out = append(out, m.eachElement(random, decoded(t, s, "", string(document)))...)
	}
	for i := range severalXMLMutants {
		root := elementsOf(decoded(t, s, "", string(documents[i%len(documents)])), nil)
		what := "several:"
		for range 2 {
			if all := sites(&root, &s.top); len(all) > 0 {
				at := all[random.IntN(len(all))]
				variants := at.variants()
				v := variants[random.IntN(len(variants))]
				v.apply()
				what += " " + at.name + " " + v.what
			}
		}
		out = append(out, mutant{what, writeAll(root)})
	}
	return out
}

// eachElement is each for elements.
func (m *mutator) eachElement(random *rand.Rand, data []*Data) []mutant {
	var out []mutant
	whole := elementsOf(data, nil)
	for i, at := range sites(&whole, &m.schema.top) {
		for j := range at.variants() {
			if !m.first(random, place{node: at.node}, j) {
				continue
			}
			root := elementsOf(data, nil)
			v := sites(&root, &m.schema.top)[i].variants()[j]
			v.apply()
			out = append(out, mutant{at.node.Path("") + " " + v.what, writeAll(root)})
		}
	}
	return out
}
