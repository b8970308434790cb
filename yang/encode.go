package yang

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// EncodeJSON appends siblings as one JSON object to b. The instances of one list or leaf-list
// must be next to each other, as they are in Children. Identities have their module as prefix.
func EncodeJSON(buf *bytes.Buffer, siblings []*Data, style Style) {
	writeObject(buf, siblings, func(*Node) bool { return style == RFC7951 })
}

// EncodeObject appends the object of one container or list entry to b, with names as in RFC
// 7951 and with the entry's keys. DecodeObject decodes it.
func EncodeObject(buf *bytes.Buffer, d *Data) {
	writeChildren(buf, d)
}

func writeChildren(buf *bytes.Buffer, d *Data) {
	writeObject(buf, d.Children, func(n *Node) bool { return n.Module != d.Node.Module })
}

// writeObject writes siblings as members; prefixed returns whether a name has its module.
func writeObject(buf *bytes.Buffer, siblings []*Data, prefixed func(*Node) bool) {
	buf.WriteByte('{')
	for i := 0; i < len(siblings); {
		node := siblings[i].Node
		end := i + 1
		for end < len(siblings) && siblings[end].Node == node {
			end++
		}
		if i > 0 {
			buf.WriteByte(',')
		}
		writeName(buf, node, prefixed(node))
		writeMember(buf, node, siblings[i:end])
		if node.isTagged {
			writeTag(buf, node, prefixed(node))
		}
		i = end
	}
	buf.WriteByte('}')
}

func writeName(buf *bytes.Buffer, n *Node, prefixed bool) {
	buf.WriteByte('"')
	if prefixed {
		buf.WriteString(n.Module.Name)
		buf.WriteByte(':')
	}
	buf.WriteString(n.Name)
	buf.WriteString(`":`)
}

// writeMember writes all instances of node among siblings.
func writeMember(buf *bytes.Buffer, node *Node, instances []*Data) {
	if node.Kind == Container || node.Kind == Leaf {
		writeInstance(buf, instances[0])
		return
	}
	for i, instance := range instances {
		if i == 0 {
			buf.WriteByte('[')
		} else {
			buf.WriteByte(',')
		}
		writeInstance(buf, instance)
	}
	buf.WriteByte(']')
}

func writeInstance(buf *bytes.Buffer, d *Data) {
	switch {
	case d.Node.typ == nil:
		writeChildren(buf, d)
	case d.Node.typ.written == asEmpty:
		buf.WriteString("[null]")
	case d.Node.typ.written == asString:
		writeString(buf, d.Value)
	default:
		buf.WriteString(d.Value)
	}
}

// writeString writes a JSON string, and replaces invalid UTF-8; Data contains none.
func writeString(buf *bytes.Buffer, text string) {
	quoted, _ := jsontext.AppendQuote(buf.AvailableBuffer(), text)
	buf.Write(quoted)
}
