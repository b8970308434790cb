package restconf

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// codec reads and writes data in one encoding.
type codec interface {
	// decode reads instances of parent's children (nil: top-level nodes).
	decode(s *yang.Schema, body []byte, parent *yang.Node, at string, mode yang.Mode) ([]*yang.Data, error)
	// encode writes the instances of one node.
	encode(buf *bytes.Buffer, siblings []*yang.Data, style yang.Style)
	// encodeAll writes a whole datastore as the member of that name.
	encodeAll(buf *bytes.Buffer, name string, tops []*yang.Data)
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

func (jsonCodec) encodeAll(buf *bytes.Buffer, name string, tops []*yang.Data) {
	buf.WriteString(`{"` + name + `":`)
	yang.EncodeJSON(buf, tops, yang.RFC7951)
	buf.WriteByte('}')
}

func (jsonCodec) indent(body []byte) ([]byte, error) {
	var buf bytes.Buffer
	err := json.Indent(&buf, body, "", "  ")
	return buf.Bytes(), err
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
	ranges := parseAccept(accept)
	best, bestQuality := media{}, 0.0
	for _, m := range d.media {
		if q := ranges.quality(m.name); q > bestQuality {
			best, bestQuality = m, q
		}
	}
	if bestQuality == 0 {
		return media{}, notAcceptable(d)
	}
	return best, nil
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
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		ranges[name] = q
	}
	return ranges
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
