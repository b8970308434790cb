package wire

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// XMLPath is an instance-identifier in XML (RFC 7950 section 9.13.2): every name has its
// module as a prefix, and the element declares the prefixes.
type XMLPath struct {
	Spaces []xml.Attr `xml:",any,attr"`
	Text   string     `xml:",chardata"`
}

// newXMLPath rewrites an instance-identifier in the form of JSON, in which a name has its
// module only if the module differs from the previous one (RFC 7951 section 6.11). It is
// nil for an empty one.
func newXMLPath(s *yang.Schema, path string) *XMLPath {
	if path == "" {
		return nil
	}
	p := &XMLPath{}
	var out strings.Builder
	module := ""
	for rest := path; rest != ""; {
		sign := rest[0]
		out.WriteByte(sign)
		rest = rest[1:]
		switch sign {
		case '\'', '"':
			end := strings.IndexByte(rest, sign) + 1 // 0 if nothing ends it
			out.WriteString(rest[:end])
			rest = rest[end:]
		case '/', '[':
			name := nameIn(rest)
			own := moduleOf(name, module)
			if sign == '/' {
				module = own
			}
			if own != "" {
				out.WriteString(own + ":")
				p.declare(s, own)
			}
			out.WriteString(name[strings.IndexByte(name, ':')+1:])
			rest = rest[len(name):]
		}
	}
	p.Text = out.String()
	return p
}

// nameIn is the name that a step or predicate begins with.
func nameIn(rest string) string {
	if end := strings.IndexAny(rest, "/[]="); end >= 0 {
		return rest[:end]
	}
	return rest
}

// moduleOf is a name's own module, or the inherited one. Positions, and the value of a
// leaf-list's entry, have none.
func moduleOf(name, inherited string) string {
	if own, _, named := strings.Cut(name, ":"); named {
		return own
	}
	if name == "" || name[0] == '.' || name[0] >= '0' && name[0] <= '9' {
		return ""
	}
	return inherited
}

// declare binds a module's name to its namespace, once.
func (p *XMLPath) declare(s *yang.Schema, module string) {
	space := namespace(s, module)
	attr := xml.Attr{Name: xml.Name{Local: "xmlns:" + module}, Value: space}
	if space != "" && !slices.Contains(p.Spaces, attr) {
		p.Spaces = append(p.Spaces, attr)
	}
}

// namespace is that of a module of the data or of RESTCONF; empty if it is not known.
func namespace(s *yang.Schema, module string) string {
	if m := s.Module(module); m != nil {
		return m.Namespace
	}
	return map[string]string{"ietf-restconf": Space, PatchModule: PatchSpace}[module]
}
