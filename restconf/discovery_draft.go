package restconf

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"

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
func draftModules(schema *yang.Schema) map[string]page {
	type modules struct {
		XMLName xml.Name      `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf modules"`
		Module  []draftModule `json:"module" xml:"module"`
	}
	const prefix = draftRoot + "/modules"
	pages := map[string]page{}
	var all modules
	for _, m := range allModules(schema) {
		one := draftModule{m.Name, m.Revision, m.Namespace}
		all.Module = append(all.Module, one)
		pages[prefix+"/module/"+m.Name+"/"+m.Revision] = documentPage(draft02, "module", func() any {
			return oneModule{draftModule: one}
		})
	}
	pages[prefix] = documentPage(draft02, "modules", func() any { return all })
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

// draftStreamsPrefix is before the name of a stream in draft-02's paths.
const draftStreamsPrefix = draftRoot + "/streams/stream/"

// serveDraftStream answers for one stream, or follows its events.
func (s *Server) serveDraftStream(w http.ResponseWriter, r *http.Request, rest string, ending <-chan struct{}) {
	rest = strings.TrimRight(rest, "/")
	if name, ok := strings.CutSuffix(rest, "/events"); ok {
		s.serveStream(w, r, draft02, name, ending, mayReadAll)
		return
	}
	if asked, ok, err := parseSubscription(s.cfg.Schema, rest); err != nil {
		s.fail(w, r, draft02, err)
		return
	} else if ok {
		s.serveDataChanges(w, r, asked, ending)
		return
	}
	for _, one := range monitoring(s.kinds).streams("") {
		if name, err := url.PathUnescape(rest); err == nil && name == one.Name {
			s.servePage(w, r, documentPage(draft02, "stream", func() any { return oneStream{draftStream: one.draft()} }))
			return
		}
	}
	s.fail(w, r, draft02, noSuchStream())
}
