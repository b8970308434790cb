package wire

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// codec reads and writes data in one encoding.
type codec interface {
	// decode reads instances of parent's children (nil: top-level nodes).
	decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error)
	// encode writes the instances of one node.
	encode(buf *bytes.Buffer, siblings []*yang.Data, style yang.Style)
	// encodeAll writes a whole datastore as the dialect names it.
	encodeAll(buf *bytes.Buffer, d *Dialect, tops []*yang.Data)
	// errors is the body of RFC 8040 section 7.1.
	Errors(s *yang.Schema, d *Dialect, errs yang.Errors) []byte
	// outermost is the name of the first node in a body, without its module, or
	// empty; qualified reports whether it has a module.
	outermost(body []byte) (name string, qualified bool)
	// whole divides a body that is a whole datastore (RFC 8040) into parts that decode
	// reads.
	whole(body []byte) ([][]byte, error)
	// indent formats encoded data for people.
	indent(body []byte) ([]byte, error)
}

// jsonCodec is RFC 7951.
type jsonCodec struct{}

func (jsonCodec) decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error) {
	return s.DecodeJSON(body, parent, at, mode)
}

func (jsonCodec) encode(buf *bytes.Buffer, siblings []*yang.Data, style yang.Style) {
	yang.EncodeJSON(buf, siblings, style)
}

func (jsonCodec) encodeAll(buf *bytes.Buffer, d *Dialect, tops []*yang.Data) {
	buf.WriteString(`{"` + d.dataMember + `":`)
	yang.EncodeJSON(buf, tops, yang.RFC7951)
	buf.WriteByte('}')
}

func (jsonCodec) indent(body []byte) ([]byte, error) {
	var buf bytes.Buffer
	err := json.Indent(&buf, body, "", "  ")
	return buf.Bytes(), err
}

func (jsonCodec) Errors(s *yang.Schema, d *Dialect, errs yang.Errors) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	// Strings in a map of slices always encode.
	_ = enc.Encode(map[string]any{d.errorsMember: map[string]any{"error": errorEntries(s, errs)}})
	return buf.Bytes()
}

func (jsonCodec) outermost(body []byte) (name string, qualified bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return "", false
	}
	token, err := dec.ReadToken()
	if err != nil || token.Kind() != '"' {
		return "", false
	}
	module, name, qualified := strings.Cut(token.String(), ":")
	if !qualified {
		return module, false
	}
	return name, true
}

// Encode writes the instances that a GET of a target has found; nil if there are none.
func (d *Dialect) Encode(m Media, target tree.Target, found []*yang.Data, pretty bool) ([]byte, error) {
	var buf bytes.Buffer
	switch {
	case target.IsRoot():
		m.codec.encodeAll(&buf, d, found)
	case len(found) == 0:
		return nil, nil
	case len(found) > 1 && m.IsXML():
		// RFC 8040 section 4.3
		return nil, target.Invalid("there are several entries, and an XML document has one root: GET one by its key, what holds them, or JSON")
	default:
		m.codec.encode(&buf, found, d.style)
	}
	if !pretty {
		return buf.Bytes(), nil
	}
	return m.codec.indent(buf.Bytes())
}

// EncodeErrors writes errors as the dialect has them.
func (d *Dialect) EncodeErrors(m Media, schema *yang.Schema, errs yang.Errors) []byte {
	return m.codec.Errors(schema, d, errs)
}

// BodyMedia is the media type of the request's body, or an error for status 415.
func (d *Dialect) BodyMedia(r *http.Request) (Media, error) {
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil {
		for _, m := range d.Media {
			if m.Name == name {
				return m, nil
			}
		}
	}
	return Media{}, NewProblem(http.StatusUnsupportedMediaType, "protocol", "invalid-value", "Content-Type has to be "+d.mediaNames())
}

// Accepted is the media type to answer in: the first of the dialect with the highest
// quality.
func (d *Dialect) Accepted(r *http.Request) (Media, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return d.Media[0], nil
	}
	if best, quality := ParseAccept(accept).Best(d.Media); quality > 0 {
		return best, nil
	}
	return Media{}, NewProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+d.mediaNames())
}

// ErrorMedia is the media type of an error: XML if the client prefers it, or if the client
// sent XML and accepts it with the highest quality.
func (d *Dialect) ErrorMedia(r *http.Request) Media {
	asked, err := d.Accepted(r)
	sent, wrong := d.BodyMedia(r)
	if m, ok := d.YANGPatchOf(r); ok {
		sent, wrong = m, nil
	}
	if wrong == nil && err == nil && sent.IsXML() {
		ranges := ParseAccept(strings.Join(r.Header.Values("Accept"), ","))
		if ranges.Quality(sent.Name) == ranges.Quality(asked.Name) {
			return sent
		}
	}
	if err == nil && asked.IsXML() {
		return asked
	}
	return d.Errors
}

// IsXML reports whether the media type is XML.
func (m Media) IsXML() bool {
	_, ok := m.codec.(xmlCodec)
	return ok
}

// MediaRanges are the media ranges of an Accept header and their qualities.
type MediaRanges map[string]float64

// ParseAccept reads an Accept header. It ignores ranges that are not valid.
func ParseAccept(header string) MediaRanges {
	ranges := MediaRanges{}
	for part := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || !(0 <= q && q <= 1) {
				continue
			}
		}
		ranges[name] = q
	}
	return ranges
}

// Best is the first media type of the highest quality.
func (m MediaRanges) Best(of []Media) (best Media, quality float64) {
	for _, one := range of {
		if q := m.Quality(one.Name); q > quality {
			best, quality = one, q
		}
	}
	return best, quality
}

// Quality is that of the most specific range that name is in.
func (m MediaRanges) Quality(name string) float64 {
	kind, _, _ := strings.Cut(name, "/")
	for _, r := range []string{name, kind + "/*", "*/*"} {
		if q, ok := m[r]; ok {
			return q
		}
	}
	return 0
}

func (d *Dialect) mediaNames() string {
	names := make([]string, len(d.Media))
	for i, m := range d.Media {
		names[i] = m.Name
	}
	return strings.Join(names, " or ")
}
