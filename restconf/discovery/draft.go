package discovery

import (
	"encoding/json"
	"encoding/xml"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// draftModule is a module as draft-02 lists it.
type draftModule struct {
	Name      string `json:"name" xml:"name"`
	Revision  string `json:"revision" xml:"revision"`
	Namespace string `json:"namespace" xml:"namespace"`
}

// oneModule is an entry of a list by itself: in JSON an array.
type oneModule struct {
	XMLName xml.Name `xml:"urn:ietf:params:xml:ns:yang:ietf-restconf module"`
	draftModule
}

// MarshalJSON implements json.Marshaler.
func (m oneModule) MarshalJSON() ([]byte, error) { return json.Marshal([]draftModule{m.draftModule}) }

// draftModules are /restconf/modules and a page of each module.
func draftModules(all []*yang.Module) map[string]Page {
	type modules struct {
		XMLName xml.Name      `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf modules"`
		Module  []draftModule `json:"module" xml:"module"`
	}
	const prefix = draftRoot + "/modules"
	pages := map[string]Page{}
	var listed modules
	for _, m := range all {
		one := draftModule{m.Name, m.Revision, m.Namespace}
		listed.Module = append(listed.Module, one)
		pages[prefix+"/module/"+m.Name+"/"+m.Revision] = Document(wire.Draft02, "module", func() any {
			return oneModule{draftModule: one}
		})
	}
	pages[prefix] = Document(wire.Draft02, "modules", func() any { return listed })
	return pages
}

// draftStream is a stream as draft-02 lists it.
type draftStream struct {
	Name        string `json:"name" xml:"name"`
	Description string `json:"description" xml:"description"`
	Replay      bool   `json:"replay-support" xml:"replay-support"`
	Since       string `json:"replay-log-creation-time" xml:"replay-log-creation-time"`
	Events      empty  `json:"events" xml:"events"`
}

func (l listedStream) draft() draftStream {
	return draftStream{Name: l.Name, Description: l.Description, Replay: l.Replay, Since: l.Since}
}

// oneStream is as oneModule.
type oneStream struct {
	XMLName xml.Name `xml:"urn:ietf:params:xml:ns:yang:ietf-restconf stream"`
	draftStream
}

// MarshalJSON implements json.Marshaler.
func (s oneStream) MarshalJSON() ([]byte, error) { return json.Marshal([]draftStream{s.draftStream}) }

// empty is YANG's type empty.
type empty struct{}

// MarshalJSON implements json.Marshaler.
func (empty) MarshalJSON() ([]byte, error) { return []byte("[null]"), nil }

// draft are the streams as draft-02 lists them.
func (m monitoring) draft() any {
	type streams struct {
		XMLName xml.Name      `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf streams"`
		Stream  []draftStream `json:"stream,omitempty" xml:"stream"`
	}
	var all streams
	for _, one := range m.streams("") {
		all.Stream = append(all.Stream, one.draft())
	}
	return all
}

// DraftStream is the document of one stream in draft-02; ok is false if it does not exist.
func DraftStream(streams map[string]stream.Kind, name string) (p Page, ok bool) {
	for _, one := range monitoring(streams).streams("") {
		if name == one.Name {
			return Document(wire.Draft02, "stream", func() any { return oneStream{draftStream: one.draft()} }), true
		}
	}
	return Page{}, false
}
