package discovery

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// Page is a read-only resource beside the trees.
type Page struct {
	Dialect *wire.Dialect
	types   []string // media types, the default first
	// write is the body, in one of the types.
	write func(mediaType string) ([]byte, error)
	// query is the page that query parameters ask for; nil: there are none.
	query func(raw string) (Page, error)
}

// The media types of documents.
var (
	rfcTypes   = []string{"application/yang-data+json", "application/json", "application/yang-data+xml", "application/xml", "text/xml"}
	draftTypes = []string{"application/yang.api+json", "application/json", "application/yang.data+json",
		"application/yang.api+xml", "application/yang.data+xml", "application/xml", "text/xml"}
)

// Serve answers a request. It returns an error while nothing is written yet.
func (p Page) Serve(w http.ResponseWriter, r *http.Request) error {
	if done, err := wire.Methods(w, r, "this resource can only be read", wire.ReadMethods...); done {
		return err
	}
	switch {
	case r.URL.RawQuery != "" && p.query != nil:
		var err error
		if p, err = p.query(r.URL.RawQuery); err != nil {
			return err
		}
	case r.URL.RawQuery != "" && !p.Dialect.Lax:
		return wire.Invalid("this resource has no query parameters")
	}
	return p.Send(w, r)
}

// Send answers with the body, in a type that the request accepts. It returns an error while
// nothing is written yet.
func (p Page) Send(w http.ResponseWriter, r *http.Request) error {
	mediaType, err := p.accepted(r)
	if err != nil {
		return err
	}
	body, err := p.write(mediaType)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	wire.Send(w, http.StatusOK, mediaType, body)
	return nil
}

// accepted is the first type of the highest quality.
func (p Page) accepted(r *http.Request) (string, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return p.types[0], nil
	}
	offered := make([]wire.Media, len(p.types))
	for i, name := range p.types {
		offered[i].Name = name
	}
	best, quality := wire.ParseAccept(accept).Best(offered)
	if quality == 0 {
		return "", wire.NewProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+strings.Join(p.types, " or "))
	}
	return best.Name, nil
}

// Document is a Page of a value in JSON, with a name around it, and in XML.
func Document(d *wire.Dialect, name string, value func() any) Page {
	types := rfcTypes
	if d.Draft {
		types = draftTypes
	}
	return Page{Dialect: d, types: types, write: func(mediaType string) (body []byte, err error) {
		if strings.HasSuffix(mediaType, "xml") {
			body, err = xml.Marshal(value())
		} else {
			body, err = json.Marshal(map[string]any{name: value()})
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		return body, nil
	}}
}

// textPage is a page with a fixed body.
func textPage(d *wire.Dialect, mediaType, body string) Page {
	return Page{Dialect: d, types: []string{mediaType}, write: func(string) ([]byte, error) { return []byte(body), nil }}
}
