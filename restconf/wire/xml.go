package wire

import (
	"bytes"
	"encoding/xml"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Space is the namespace of the module ietf-restconf.
const Space = "urn:ietf:params:xml:ns:yang:ietf-restconf"

// xmlCodec is the XML of RFC 7950. Names have their namespaces in both styles.
type xmlCodec struct{}

func (xmlCodec) decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error) {
	return s.DecodeXML(body, parent, at, mode)
}

func (xmlCodec) encode(buf *bytes.Buffer, siblings []*yang.Data, _ yang.Style) {
	yang.EncodeXML(buf, siblings)
}

func (xmlCodec) encodeAll(buf *bytes.Buffer, d *Dialect, tops []*yang.Data) {
	buf.WriteString(`<data xmlns="` + d.dataSpace + `">`)
	yang.EncodeXML(buf, tops)
	buf.WriteString("</data>")
}

// indent breaks lines between tags. It changes no text, since an element that EncodeXML
// wrote has either text or elements in it.
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

// Errors is the same in both dialects, since draft-02 has the namespace too.
func (xmlCodec) Errors(s *yang.Schema, _ *Dialect, errs yang.Errors) []byte {
	body, _ := xml.Marshal(struct { // strings always encode
		XMLName xml.Name
		Errors  []ErrorEntry `xml:"error"`
	}{xml.Name{Space: Space, Local: "errors"}, errorEntries(s, errs)})
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
