package yang

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// maxDepth is the maximum nesting of elements; the same as for JSON.
const maxDepth = 10000

// maxScopes is the maximum number of namespaces that are declared around an element. Each
// identity searches them.
const maxScopes = 1000

// Errors that stop the decoder, beside the errors of the XML decoder.
var (
	errDirective = errors.New("document types and entities are refused")
	errTooDeep   = fmt.Errorf("elements are nested deeper than %d", maxDepth)
	errText      = errors.New("want no text outside of elements")
	errScopes    = fmt.Errorf("more than %d namespaces are declared around an element", maxScopes)
)

// DecodeXML decodes XML elements that are instances of parent's children, one after the
// other as EncodeXML writes them. Otherwise it is like DecodeJSON. A namespace names the
// module, and a prefix in an identity names the namespace. The lenient mode accepts an element
// without a namespace if its name is unambiguous, and (for addresses) an empty element as
// absent. It knows only the five predefined entities of XML. It refuses attributes, because
// none has a meaning here.
func (s *Schema) DecodeXML(body []byte, parent *Node, at string, mode Mode) ([]*Data, error) {
	if parent == nil {
		parent = &s.top
	}
	d := &xmlDecoder{schema: s, xml: xml.NewDecoder(bytes.NewReader(body))}
	d.makeRoom()
	d.mode, d.at = mode, at
	children, err := d.document(parent)
	if err != nil && !errors.Is(err, errTooMany) {
		return nil, Errors{d.malformed(err)}
	}
	if len(d.findings) > 0 {
		return nil, d.errors()
	}
	return children, nil
}

// xmlDecoder decodes one XML body. Its methods return an error for invalid syntax, and
// collect all other errors as findings.
type xmlDecoder struct {
	checker
	schema *Schema
	xml    *xml.Decoder
	scopes []binding // innermost last
}

// binding is a prefix ("" if none) with its namespace.
type binding struct{ prefix, uri string }

func (d *xmlDecoder) document(parent *Node) ([]*Data, error) {
	children, text, err := d.elements(parent)
	switch {
	case err != nil:
		return nil, err
	case text:
		return nil, errText
	case d.xml.InputOffset() == 0:
		return nil, io.ErrUnexpectedEOF
	}
	return children, nil
}

// next returns the next start element, end element or text; nil at the end of the document.
func (d *xmlDecoder) next() (xml.Token, error) {
	for {
		token, err := d.xml.Token()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		switch token.(type) {
		case xml.Directive:
			return nil, errDirective
		case xml.Comment, xml.ProcInst:
			continue
		}
		return token, nil
	}
}

// elements decodes the elements up to the end of parent's instance. text reports whether
// there was text other than white space.
func (d *xmlDecoder) elements(parent *Node) (out []*Data, text bool, err error) {
	before := len(d.seen)
	positions := map[*Node]int{}
	for {
		token, err := d.next()
		if err != nil {
			return nil, false, err
		}
		switch token := token.(type) {
		case xml.CharData:
			text = text || len(bytes.TrimSpace(token)) > 0
		case xml.StartElement:
			if out, err = d.element(token, parent, before, positions, out); err != nil {
				return nil, false, err
			}
		default: // end element
			d.seen = d.seen[:before]
			sortBySchema(out)
			return out, text, d.checkSiblings(out)
		}
	}
}

// element decodes one element and appends its instance to out.
func (d *xmlDecoder) element(start xml.StartElement, parent *Node, before int, positions map[*Node]int, out []*Data) ([]*Data, error) {
	outer := len(d.scopes)
	defer func() { d.scopes = d.scopes[:outer] }()
	if err := d.attributes(start); err != nil {
		return nil, err
	}
	node, wrong := d.resolve(start.Name, parent)
	if wrong != nil {
		if err := d.report(wrong); err != nil {
			return nil, err
		}
		return out, d.skip()
	}
	positions[node]++
	if node.Kind == Leaf || node.Kind == Container {
		if err := d.once(node, before); err != nil {
			return nil, err
		}
	}
	if node.typ != nil {
		return d.leaf(node, out)
	}
	return d.instance(node, positions[node], out)
}

// attributes opens the scope of the namespaces that an element declares.
func (d *xmlDecoder) attributes(start xml.StartElement) error {
	for _, attr := range start.Attr {
		switch {
		case attr.Name.Space == "" && attr.Name.Local == "xmlns":
			d.scopes = append(d.scopes, binding{"", attr.Value})
		case attr.Name.Space == "xmlns":
			d.scopes = append(d.scopes, binding{attr.Name.Local, attr.Value})
		default:
			err := d.report(&Error{
				Type:    "protocol",
				Tag:     "unknown-attribute",
				Message: fmt.Sprintf("%s: unknown attribute %s: remove it", start.Name.Local, quote(attr.Name.Local)),
			})
			if err != nil {
				return err
			}
		}
	}
	if len(d.scopes) > maxScopes {
		return errScopes
	}
	return nil
}

// resolve finds the node of an element, or returns the error for its name.
func (d *xmlDecoder) resolve(name xml.Name, parent *Node) (*Node, *Error) {
	if name.Space == "" && d.mode == Lenient {
		if node := parent.children[name.Local]; node != nil {
			return node, nil
		}
		return nil, unknownMember(name.Local, parent)
	}
	module := d.schema.byNamespace(name.Space)
	if module == nil {
		return nil, unknownNamespace(name, parent)
	}
	if node := parent.children[module.Name+":"+name.Local]; node != nil {
		return node, nil
	}
	if module == parent.Module {
		return nil, unknownMember(name.Local, parent)
	}
	return nil, unknownMember(module.Name+":"+name.Local, parent)
}

// instance decodes the rest of an element that is a container or a list entry.
func (d *xmlDecoder) instance(node *Node, position int, out []*Data) ([]*Data, error) {
	instance := d.new(node)
	d.open = append(d.open, step{node, instance, position})
	children, text, err := d.elements(node)
	if err != nil {
		return nil, err
	}
	d.open = d.open[:len(d.open)-1]
	if text {
		return out, d.report(wrongShape(node, "text", "elements alone"), step{node: node})
	}
	instance.Children = children
	return append(out, instance), nil
}

// skip skips the rest of an element.
func (d *xmlDecoder) skip() error {
	for depth := len(d.open) + 1; depth > len(d.open); {
		token, err := d.next()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return errTooDeep
			}
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

// checkSiblings checks siblings in schema order as DecodeJSON checks members.
func (d *xmlDecoder) checkSiblings(siblings []*Data) error {
	for begin, end := 0, 0; begin < len(siblings); begin = end {
		node := siblings[begin].Node
		for end < len(siblings) && siblings[end].Node == node {
			end++
		}
		var err error
		switch {
		case node.Kind == List:
			err = d.checkEntries(siblings[begin:end])
		case node.Kind == LeafList && node.Config:
			err = d.checkValues(siblings[begin:end])
		}
		if err != nil {
			return err
		}
	}
	return d.checkChoices(siblings)
}
