// Package discovery is what clients discover a RESTCONF server by: host-meta, the root
// resources, the library of modules and their sources, the list of streams, and draft-02's
// lists of modules, streams and operations. It does not know how streams are served.
package discovery

import (
	"encoding/json"
	"encoding/xml"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// The roots of the API. The first is what RFC 8040 section 3.1 discovers; the second
// is that of draft-02, and has /data beside it.
const (
	apiRoot   = "/rests"
	draftRoot = "/restconf"
)

// libraryModule is the module whose revision tells clients which form of the library
// there is.
const libraryModule = "ietf-yang-library"

// hostMeta tells where the API is (RFC 6415).
const (
	HostMetaXML  = `<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0"><Link rel="restconf" href="` + apiRoot + `"/></XRD>`
	HostMetaJSON = `{"links":[{"rel":"restconf","href":"` + apiRoot + `"}]}`
)

// Pages are the documents, by path.
func Pages(modules []*yang.Module, operations []Operation, streams map[string]stream.Kind) map[string]Page {
	pages := map[string]Page{
		"/.well-known/host-meta":      hostMeta(),
		"/.well-known/host-meta.json": textPage(wire.RFC8040, "application/json", HostMetaJSON),
		apiRoot + "/operations":       Document(wire.RFC8040, "ietf-restconf:operations", func() any { return operationList{} }),
		draftRoot + "/operations":     Document(wire.Draft02, "operations", func() any { return operationList{All: operations} }),
	}
	library := slices.IndexFunc(modules, func(m *yang.Module) bool { return m.Name == libraryModule })
	version := modules[library].Revision
	for _, root := range []string{apiRoot, draftRoot} {
		pages[root] = rootPage(version)
		pages[root+"/yang-library-version"] = Document(wire.RFC8040, "ietf-restconf:yang-library-version", func() any {
			return libraryVersion{Version: version}
		})
	}
	maps.Copy(pages, modulePages(modules))
	maps.Copy(pages, draftModules(modules))
	pages[draftRoot+"/streams"] = Document(wire.Draft02, "streams", monitoring(streams).draft)
	return pages
}

// hostMeta is XML, or JSON for clients that prefer it.
func hostMeta() Page {
	return Page{Dialect: wire.RFC8040, types: []string{"application/xrd+xml", "application/json", "application/xml", "text/xml"}, write: func(mediaType string) ([]byte, error) {
		if mediaType == "application/json" {
			return []byte(HostMetaJSON), nil
		}
		return []byte(HostMetaXML), nil
	}}
}

// root8040 is the API's root resource (RFC 8040 section 3.3).
type root8040 struct {
	XMLName    xml.Name  `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf restconf"`
	Data       *struct{} `json:"data,omitempty" xml:"data"`
	Operations *struct{} `json:"operations,omitempty" xml:"operations"`
	Version    string    `json:"yang-library-version,omitempty" xml:"yang-library-version,omitempty"`
}

// rootPage is the root resource, all of it or what depth and fields ask for.
func rootPage(version string) Page {
	written := func(root root8040) Page {
		return Document(wire.RFC8040, "ietf-restconf:restconf", func() any { return root })
	}
	all := root8040{Data: &struct{}{}, Operations: &struct{}{}, Version: version}
	p := written(all)
	p.query = func(raw string) (Page, error) {
		asked, err := rootQuery(raw)
		switch {
		case err != nil:
			return Page{}, err
		case asked.Fields != "":
			some, err := all.fields(asked.Fields)
			return written(some), err
		case asked.Depth == 1:
			return written(root8040{}), nil
		}
		return written(all), nil
	}
	return p
}

// rootQuery reads the parameters that the root resource has.
func rootQuery(raw string) (wire.Query, error) {
	var asked wire.Query
	values, err := wire.Parameters(raw)
	for name, given := range values {
		if name != "depth" && name != "fields" {
			return asked, wire.Invalid("the root resource has no query parameter " + name + ": want depth or fields")
		}
		if err = wire.RFC8040.Parameter(&asked, name, given, true); err != nil {
			return asked, err
		}
	}
	return asked, err
}

// fields are the children of the root resource that a fields parameter names. Data and
// operations are empty in it.
func (r root8040) fields(text string) (some root8040, err error) {
	for name := range strings.SplitSeq(text, ";") {
		switch strings.TrimPrefix(name, "ietf-restconf:") {
		case "data":
			some.Data = r.Data
		case "operations":
			some.Operations = r.Operations
		case "yang-library-version":
			some.Version = r.Version
		default:
			return some, wire.Invalid("fields: the root resource has data, operations and yang-library-version, and no " + strconv.Quote(name))
		}
	}
	return some, nil
}

// libraryVersion is a leaf: in JSON a string.
type libraryVersion struct {
	XMLName xml.Name `xml:"urn:ietf:params:xml:ns:yang:ietf-restconf yang-library-version"`
	Version string   `xml:",chardata"`
}

// MarshalJSON implements json.Marshaler.
func (v libraryVersion) MarshalJSON() ([]byte, error) { return []byte(`"` + v.Version + `"`), nil }

// Operation is an operation of draft-02, which names streams.
type Operation struct {
	XMLName xml.Name       // without the module
	Modules []*yang.Module `xml:"-"` // that define it; the first has it
	Streams string         `xml:"-"` // the first part of the names of its streams
}

func (o Operation) name() string { return o.Modules[0].Name + ":" + o.XMLName.Local }

// Path is the path of the operation.
func (o Operation) Path() string { return draftRoot + "/operations/" + o.name() }

// operationList is the document with the operations.
type operationList struct {
	XMLName xml.Name `xml:"urn:ietf:params:xml:ns:yang:ietf-restconf operations"`
	All     []Operation
}

// MarshalJSON implements json.Marshaler.
func (l operationList) MarshalJSON() ([]byte, error) {
	named := map[string]empty{}
	for _, o := range l.All {
		named[o.name()] = empty{}
	}
	return json.Marshal(named)
}
