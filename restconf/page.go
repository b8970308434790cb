package restconf

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// page is a resource beside the trees that says what this server is. It can be read,
// and nothing else.
type page struct {
	dialect *dialect
	types   []string // media types, the default first
	// write is the body, in one of the types.
	write func(mediaType string) ([]byte, error)
	// query is the page that query parameters ask for; nil: it has none.
	query func(raw string) (page, error)
}

// pageMethods are what a page can be asked.
var pageMethods = []string{http.MethodOptions, http.MethodHead, http.MethodGet}

// The media types of documents.
var (
	rfcTypes   = []string{"application/yang-data+json", "application/json", "application/yang-data+xml", "application/xml", "text/xml"}
	draftTypes = []string{"application/yang.api+json", "application/json", "application/yang.data+json",
		"application/yang.api+xml", "application/yang.data+xml", "application/xml", "text/xml"}
)

// pageAt finds the page of a path; slashes at its end are nothing.
func (s *Server) pageAt(path string) (page, bool) {
	p, ok := s.pages[strings.TrimRight(path, "/")]
	return p, ok
}

// servePage answers a request for a page.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, p page) {
	if err := p.serve(w, r); err != nil {
		s.fail(w, r, p.dialect, err)
	}
}

func (p page) serve(w http.ResponseWriter, r *http.Request) error {
	switch {
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", strings.Join(pageMethods, ", "))
		w.WriteHeader(http.StatusOK)
		return nil
	case !slices.Contains(pageMethods, r.Method):
		refused := newProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", "this resource can only be read")
		refused.allow = pageMethods
		return refused
	case r.URL.RawQuery != "" && p.query != nil:
		var err error
		if p, err = p.query(r.URL.RawQuery); err != nil {
			return err
		}
	case r.URL.RawQuery != "" && !p.dialect.lax:
		return badQuery("this resource has no query parameters")
	}
	mediaType, err := p.accepted(r)
	if err != nil {
		return err
	}
	body, err := p.write(mediaType)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	send(w, http.StatusOK, mediaType, body)
	return nil
}

// accepted is the type of the highest quality, and of those the first.
func (p page) accepted(r *http.Request) (string, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return p.types[0], nil
	}
	offered := make([]media, len(p.types))
	for i, name := range p.types {
		offered[i].name = name
	}
	best, quality := parseAccept(accept).best(offered)
	if quality == 0 {
		return "", newProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+strings.Join(p.types, " or "))
	}
	return best.name, nil
}

// documentPage is a page of a value that is written as JSON, with this name around it,
// and as XML.
func documentPage(d *dialect, name string, value func() any) page {
	types := rfcTypes
	if d.draft {
		types = draftTypes
	}
	return page{dialect: d, types: types, write: func(mediaType string) (body []byte, err error) {
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

// textPage is a page that is always the same.
func textPage(d *dialect, mediaType, body string) page {
	return page{dialect: d, types: []string{mediaType}, write: func(string) ([]byte, error) { return []byte(body), nil }}
}
