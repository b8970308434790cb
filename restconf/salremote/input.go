package salremote

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// input has the leaves of the operation's input, by name without module.
type input struct {
	leaves map[string]string
	// spaces has the modules of the path's prefixes. In JSON the prefixes are names of modules.
	spaces map[string]string
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
			if value != nil { // null means that the member is missing, as in all of draft-02 here
				in.leaves[wire.LocalName(name)] = *value
			}
		}
	}
	return in, nil
}

// readXMLInput reads <input><path>…</path>…</input>. It refuses entities and document types.
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

// subscription checks the input. The defaults are the same as in OpenDaylight.
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
			return s, &yang.Error{Type: "protocol", Tag: "malformed-message", Message: rpc + " has no leaf " + name}
		}
	}
	if !s.isAsked() {
		return s, wire.Invalid(datastoreField + " has to be CONFIGURATION or OPERATIONAL, and " + scopeField + " BASE, ONE or SUBTREE")
	}
	var err error
	s.at, err = wire.ParseIdentifier(schema, strings.TrimSpace(in.leaves["path"]), in.spaces)
	return s, err
}
