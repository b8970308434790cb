package yang

import (
	"bytes"
	"encoding/xml"
	"slices"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// EncodeXML appends siblings as XML elements to b (RFC 7950 section 9 and the XML mapping
// rules of each statement). An element declares the namespace at the top level, and if its
// module differs from its parent's. An identity has a prefix that its own element declares.
func EncodeXML(buf *bytes.Buffer, siblings []*Data) {
	for _, d := range siblings {
		writeElement(buf, d, nil)
	}
}

func writeElement(buf *bytes.Buffer, d *Data, parent *Module) {
	name, value := d.Node.Name, d.Value
	buf.WriteString("<" + name)
	if d.Node.Module != parent {
		writeNamespace(buf, "xmlns", d.Node.Module.Namespace)
	}
	if typ := d.Node.typ; typ != nil && typ.kind == goyang.Yidentityref {
		module, identity, _ := strings.Cut(value, ":")
		space := typ.spaces[module]
		writeNamespace(buf, "xmlns:"+space.prefix, space.uri)
		value = space.prefix + ":" + identity
	}
	if d.Node.isTagged {
		buf.WriteString(tagXML)
	}
	if value == "" && len(d.Children) == 0 {
		buf.WriteString("/>")
		return
	}
	buf.WriteByte('>')
	// Writing to a buffer doesn't fail.
	_ = xml.EscapeText(buf, []byte(value))
	writeChildElements(buf, d)
	buf.WriteString("</" + name + ">")
}

// writeChildElements writes the keys of a list entry first, in the order of the key statement
// (RFC 7950 section 7.8.5).
func writeChildElements(buf *bytes.Buffer, d *Data) {
	for _, key := range d.Node.Keys {
		if leaf := d.instanceOf(key); leaf != nil {
			writeElement(buf, leaf, d.Node.Module)
		}
	}
	for _, child := range d.Children {
		if !slices.Contains(d.Node.Keys, child.Node) {
			writeElement(buf, child, d.Node.Module)
		}
	}
}

func writeNamespace(buf *bytes.Buffer, attribute, uri string) {
	buf.WriteString(" " + attribute + `="`)
	_ = xml.EscapeText(buf, []byte(uri)) // as above
	buf.WriteByte('"')
}
