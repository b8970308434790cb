package restconf

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/yang"
)

// codec reads and writes data in one encoding.
type codec interface {
	// decode reads instances of parent's children (nil: top-level nodes).
	decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error)
	// encode writes the instances of one node.
	encode(buf *bytes.Buffer, siblings []*yang.Data, style yang.Style)
	// encodeAll writes a whole datastore as the dialect names it.
	encodeAll(buf *bytes.Buffer, d *dialect, tops []*yang.Data)
	// errors is the body of RFC 8040 section 7.1.
	errors(s *yang.Schema, d *dialect, errs yang.Errors) []byte
	// outermost is the name of the first node in a body, without its module, or
	// empty; qualified tells whether it has a module.
	outermost(body []byte) (name string, qualified bool)
	// whole divides a body that is a whole datastore (RFC 8040) into parts that decode
	// reads.
	whole(body []byte) ([][]byte, error)
	// indent lays out what was encoded for people.
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

func (jsonCodec) encodeAll(buf *bytes.Buffer, d *dialect, tops []*yang.Data) {
	buf.WriteString(`{"` + d.dataMember + `":`)
	yang.EncodeJSON(buf, tops, yang.RFC7951)
	buf.WriteByte('}')
}

func (jsonCodec) indent(body []byte) ([]byte, error) {
	var buf bytes.Buffer
	err := json.Indent(&buf, body, "", "  ")
	return buf.Bytes(), err
}

func (jsonCodec) errors(s *yang.Schema, d *dialect, errs yang.Errors) []byte {
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

// bodyMedia is the media type of the request's body, or an error for status 415.
func (d *dialect) bodyMedia(r *http.Request) (media, error) {
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil {
		for _, m := range d.media {
			if m.name == name {
				return m, nil
			}
		}
	}
	return media{}, unsupportedMedia("Content-Type", d)
}

// accepted is the media type to answer in: the one of the highest quality, and of
// those the first of the dialect.
func (d *dialect) accepted(r *http.Request) (media, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return d.media[0], nil
	}
	if best, quality := parseAccept(accept).best(d.media); quality > 0 {
		return best, nil
	}
	return media{}, notAcceptable(d)
}

// errorMedia is the media type of an error: XML where the client prefers that, or
// sent it and takes it as gladly as any other.
func (d *dialect) errorMedia(r *http.Request) media {
	asked, err := d.accepted(r)
	sent, wrong := d.bodyMedia(r)
	if m, ok := d.yangPatchOf(r); ok {
		sent, wrong = m, nil
	}
	if wrong == nil && err == nil && sent.isXML() {
		ranges := parseAccept(strings.Join(r.Header.Values("Accept"), ","))
		if ranges.quality(sent.name) == ranges.quality(asked.name) {
			return sent
		}
	}
	if err == nil && asked.isXML() {
		return asked
	}
	return d.errors
}

func (m media) isXML() bool {
	_, ok := m.codec.(xmlCodec)
	return ok
}

// mediaRanges are the media ranges of an Accept header and their qualities.
type mediaRanges map[string]float64

func parseAccept(header string) mediaRanges {
	ranges := mediaRanges{}
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

// best is the media type of the highest quality, of several the first.
func (m mediaRanges) best(of []media) (best media, quality float64) {
	for _, one := range of {
		if q := m.quality(one.name); q > quality {
			best, quality = one, q
		}
	}
	return best, quality
}

// quality is that of the most specific range that name is in.
func (m mediaRanges) quality(name string) float64 {
	kind, _, _ := strings.Cut(name, "/")
	for _, r := range []string{name, kind + "/*", "*/*"} {
		if q, ok := m[r]; ok {
			return q
		}
	}
	return 0
}

func (d *dialect) mediaNames() string {
	names := make([]string, len(d.media))
	for i, m := range d.media {
		names[i] = m.name
	}
	return strings.Join(names, " or ")
}
