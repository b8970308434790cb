package yang

import (
	"encoding/xml"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// leaf decodes the rest of an element that is a leaf or a leaf-list's value.
func (d *xmlDecoder) leaf(node *Node, out []*Data) ([]*Data, error) {
	var text []byte
	nested := false
	for {
		token, err := d.next()
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.CharData:
			text = append(text, token...)
		case xml.StartElement:
			nested = true
			if err := d.skip(); err != nil {
				return nil, err
			}
		default: // end element
			if nested {
				return d.wrong(node, wrongShape(node, "elements", node.typ.want), "", out)
			}
			return d.text(node, string(text), out)
		}
	}
}

// text appends the instance of node with an element's text to out.
func (d *xmlDecoder) text(node *Node, text string, out []*Data) ([]*Data, error) {
	if node.typ.kind != goyang.Yidentityref {
		return d.value(node, scalar{text, asText}, out)
	}
	prefix, name, prefixed := strings.Cut(text, ":")
	if !prefixed {
		prefix, name = "", text
	}
	module := d.schema.byNamespace(d.namespace(prefix))
	switch {
	case module != nil:
		text = module.Name + ":" + name
		return d.value(node, scalar{text, asString}, out)
	case d.mode == Lenient:
		return d.value(node, scalar{text, asText}, out)
	}
	return d.wrong(node, node.invalidValue(quote(text)), text, out)
}

// namespace returns the namespace of a prefix at the decoder's place, or "".
func (d *xmlDecoder) namespace(prefix string) string {
	for i := len(d.scopes) - 1; i >= 0; i-- {
		if d.scopes[i].prefix == prefix {
			return d.scopes[i].uri
		}
	}
	return ""
}
