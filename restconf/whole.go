package restconf

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"

	"github.com/coe-bridge/coe-bridge/yang"
)

// dataElement is the datastore in a body (RFC 8040 section 3.4).
const dataElement = "data"

// replacesWhole tells whether a request's body is the whole datastore.
func (q *request) replacesWhole() bool {
	return q.target.isRoot() && (q.http.Method == http.MethodPut || q.http.Method == http.MethodPatch)
}

// decodeWhole reads a body that is the whole datastore: its top containers, each once.
func (s *Server) decodeWhole(q *request, m media, body []byte) ([]*yang.Data, error) {
	parts, err := m.codec.whole(body)
	if err != nil {
		return nil, malformed("the body is no datastore: " + err.Error())
	}
	var tops []*yang.Data
	seen := map[*yang.Node]bool{}
	for _, part := range parts {
		data, err := m.codec.decode(s.cfg.Schema, part, nil, "", q.dialect.mode)
		if err != nil {
			return nil, q.dialect.retag(err)
		}
		for _, top := range data {
			if seen[top.Node] {
				return nil, malformed("a top container is there twice: " + topName(top.Node))
			}
			seen[top.Node] = true
		}
		tops = append(tops, data...)
	}
	return tops, s.refuse(q, tops, "")
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
		if seen || start.Name != (xml.Name{Space: restconfSpace, Local: dataElement}) {
			return errors.New("want the element data of " + restconfSpace + " and nothing else")
		}
		seen = true
		parts, err = r.elements()
		return err
	})
	if err == nil && !seen {
		err = errors.New("want the element data of " + restconfSpace)
	}
	return parts, err
}

// putWhole makes the datastore what tops say: top containers that are not among them go.
// What is not written here, read-only or foreign, stays.
func (e *edit) putWhole(tops []*yang.Data) error {
	kept := map[*yang.Node]bool{}
	for _, top := range tops {
		kept[top.Node] = true
		if _, err := e.put(target{{node: top.Node}}, top); err != nil {
			return err
		}
	}
	for _, module := range e.server.cfg.Schema.Modules {
		for _, top := range module.Top {
			at := target{{node: top}}
			if kept[top] || !e.server.writable(top) || e.tx.Get(top) == nil {
				continue
			}
			if err := e.delete(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// patchWhole merges tops into the datastore; what is not there is made.
func (e *edit) patchWhole(tops []*yang.Data) error {
	for _, top := range tops {
		at := target{{node: top.Node}}
		there, err := e.exists(at)
		if err != nil {
			return err
		}
		if there {
			err = e.patch(at, top)
		} else {
			_, err = e.put(at, top)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
