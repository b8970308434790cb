package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"

	"github.com/coe-bridge/coe-bridge/yang"
)

// dataElement is the datastore in a body (RFC 8040 section 3.4).
const dataElement = "data"

// decodeWhole reads a body that is the whole datastore: its top containers, each once.
func (d *Dialect) decodeWhole(schema *yang.Schema, m Media, body []byte) ([]*yang.Data, error) {
	parts, err := m.codec.whole(body)
	if err != nil {
		return nil, Malformed("the body is not a datastore: " + err.Error())
	}
	var tops []*yang.Data
	seen := map[*yang.Node]bool{}
	for _, part := range parts {
		data, err := m.codec.decode(schema, part, nil, "", d.mode)
		if err != nil {
			return nil, d.Retag(err)
		}
		for _, top := range data {
			if seen[top.Node] {
				return nil, Malformed("a top container is there twice: " + TopName(top.Node))
			}
			seen[top.Node] = true
		}
		tops = append(tops, data...)
	}
	return tops, nil
}

func (jsonCodec) whole(body []byte) (parts [][]byte, err error) {
	const name = "ietf-restconf:" + dataElement
	err = members(body, func(member string, value json.RawMessage) error {
		if member != name {
			return errors.New("want " + name + " and nothing else")
		}
		parts = append(parts, value)
		return nil
	})
	if err == nil && parts == nil {
		err = errors.New("want the member " + name)
	}
	return parts, err
}

func (xmlCodec) whole(body []byte) (parts [][]byte, err error) {
	r := &patchXML{body: body, xml: xml.NewDecoder(bytes.NewReader(body))}
	seen := false
	err = r.children(func(start xml.StartElement, _ int64) (err error) {
		if seen || start.Name != (xml.Name{Space: Space, Local: dataElement}) {
			return errors.New("want the element data of " + Space + " and nothing else")
		}
		seen = true
		parts, err = r.elements()
		return err
	})
	if err == nil && !seen {
		err = errors.New("want the element data of " + Space)
	}
	return parts, err
}
