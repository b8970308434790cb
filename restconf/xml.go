package restconf

import (
	"bytes"
	"encoding/xml"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// restconfSpace is the namespace of the module ietf-restconf.
const restconfSpace = "urn:ietf:params:xml:ns:yang:ietf-restconf"

// xmlCodec is XML as RFC 7950 has it. Names have their namespaces in either style.
type xmlCodec struct{}

func (xmlCodec) decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error) {
	return s.DecodeXML(body, parent, at, mode)
}

func (xmlCodec) encode(buf *bytes.Buffer, siblings []*yang.Data, _ yang.Style) {
	yang.EncodeXML(buf, siblings)
}

func (xmlCodec) encodeAll(buf *bytes.Buffer, d *dialect, tops []*yang.Data) {
	buf.WriteString(`<data xmlns="` + d.dataSpace + `">`)
	yang.EncodeXML(buf, tops)
	buf.WriteString("</data>")
}

// indent breaks lines between tags. An element that EncodeXML wrote has text or
// elements in it, never both and never nothing, so no text is touched.
func (xmlCodec) indent(body []byte) ([]byte, error) {
	var out bytes.Buffer
	depth := 0
	for i, line := range strings.Split(string(body), "><") {
		closes := strings.HasPrefix(line, "/")
		if closes {
			depth--
		}
		if i > 0 {
			out.WriteString(">\n" + strings.Repeat("  ", depth) + "<")
		}
		out.WriteString(line)
		if !closes && !strings.HasSuffix(line, "/") && !strings.Contains(line, "</") {
			depth++
		}
	}
	return out.Bytes(), nil
}

// errors is the same in both dialects: draft-02 has the module already.
func (xmlCodec) errors(s *yang.Schema, _ *dialect, errs yang.Errors) []byte {
	body, _ := xml.Marshal(struct { // strings always encode
		XMLName xml.Name
		Errors  []errorEntry `xml:"error"`
	}{xml.Name{Space: restconfSpace, Local: "errors"}, errorEntries(s, errs)})
	return body
}

func (xmlCodec) outermost(body []byte) (name string, qualified bool) {
	dec := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		if err != nil {
			return "", false
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local, start.Name.Space != ""
		}
	}
}
