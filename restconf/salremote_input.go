package restconf

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// input is what the operation is asked, by the names of its leaves without modules.
type input struct {
	leaves map[string]string
	// spaces are the modules that the prefixes of the path stand for; in JSON the
	// prefixes are modules' names.
	spaces map[string]string
}

// maxInput bounds the body of the operation.
const maxInput = 64 << 10

// isSubscribe reports whether a request is for that operation.
func isSubscribe(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.TrimRight(r.URL.Path, "/") == subscribePath
}

// serveSubscribe answers the operation that names a stream.
func (s *Server) serveSubscribe(w http.ResponseWriter, r *http.Request) {
	asked, err := s.subscribe(w, r)
	if err != nil {
		s.fail(w, r, wire.Draft02, err)
		return
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", "OPTIONS, POST")
		return
	}
	p := discovery.Document(wire.Draft02, "output", func() any { return subscribed{Name: asked.name()} })
	mediaType, err := p.Accepted(r)
	if err == nil {
		var body []byte
		if body, err = p.Write(mediaType); err == nil {
			wire.Send(w, http.StatusOK, mediaType, body)
			return
		}
	}
	s.fail(w, r, wire.Draft02, err)
}

// subscribed is what the operation answers.
type subscribed struct {
	XMLName xml.Name `json:"-" xml:"urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote output"`
	Name    string   `json:"stream-name" xml:"stream-name"`
}

// subscribe reads what is to be followed.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) (subscription, error) {
	switch r.Method {
	case http.MethodOptions:
		return subscription{}, nil
	case http.MethodPost:
	default:
		p := wire.NewProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", "an operation is asked with POST")
		p.Allow = []string{http.MethodOptions, http.MethodPost}
		return subscription{}, p
	}
	m, err := wire.Draft02.BodyMedia(r)
	if err != nil {
		return subscription{}, err
	}
	body, err := readLimited(w, r, maxInput)
	if err != nil {
		return subscription{}, err
	}
	read := readJSONInput
	if m.IsXML() {
		read = readXMLInput
	}
	in, err := read(body)
	if err != nil {
		return subscription{}, wire.Malformed("the body is no input of " + subscribeRPC + ": " + err.Error())
	}
	return in.subscription(s.cfg.Schema)
}

// readJSONInput reads {"input":{…}}; members may have their module.
func readJSONInput(body []byte) (input, error) {
	var outer map[string]map[string]*string
	if err := json.Unmarshal(body, &outer); err != nil {
		return input{}, fmt.Errorf("want an object with input, and strings in it: %w", err)
	}
	in := input{leaves: map[string]string{}}
	for name, members := range outer {
		if wire.LocalName(name) != "input" || len(outer) != 1 {
			return input{}, errors.New("want the one member input")
		}
		for name, value := range members {
			if value != nil { // a member that is null is none, as in all of draft-02 here
				in.leaves[wire.LocalName(name)] = *value
			}
		}
	}
	return in, nil
}

// readXMLInput reads <input><path>…</path>…</input>. Entities and the like are none.
func readXMLInput(body []byte) (input, error) {
	in := input{leaves: map[string]string{}, spaces: map[string]string{}}
	dec := xml.NewDecoder(bytes.NewReader(body))
	var open []string
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return in, nil
		}
		if err != nil {
			return in, fmt.Errorf("read XML: %w", err)
		}
		switch token := token.(type) {
		case xml.Directive:
			return in, errors.New("a document type is not allowed")
		case xml.StartElement:
			open = append(open, token.Name.Local)
			if len(open) > 2 || open[0] != "input" {
				return in, errors.New("want the element input, and leaves in it")
			}
			in.declare(token)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) == 2 {
				in.leaves[open[1]] += string(token)
			}
		}
	}
}

// declare notes the prefixes that the elements input and path declare.
func (in input) declare(element xml.StartElement) {
	if element.Name.Local != "input" && element.Name.Local != "path" {
		return
	}
	for _, a := range element.Attr {
		if a.Name.Space == "xmlns" {
			in.spaces[a.Name.Local] = a.Value
		}
	}
}

// subscription checks the input. Its defaults are OpenDaylight's.
func (in input) subscription(schema *yang.Schema) (subscription, error) {
	s := subscription{store: configuration, scope: scopeBase}
	for name, value := range in.leaves {
		value = strings.TrimSpace(value)
		switch name {
		case "path":
		case datastoreField:
			s.store = value
		case scopeField:
			s.scope = scope(value)
		case outputField:
			if value != outputJSON && value != "XML" {
				return s, wire.Invalid(outputField + " has to be XML or JSON")
			}
			s.json = value == outputJSON
		default:
			return s, &yang.Error{Type: "protocol", Tag: "malformed-message", Message: subscribeRPC + " has no leaf " + name}
		}
	}
	if !s.isAsked() {
		return s, wire.Invalid(datastoreField + " has to be CONFIGURATION or OPERATIONAL, and " + scopeField + " BASE, ONE or SUBTREE")
	}
	var err error
	s.at, err = wire.ParseIdentifier(schema, strings.TrimSpace(in.leaves["path"]), in.spaces)
	return s, err
}
