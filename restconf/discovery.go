package restconf

import (
	"encoding/xml"
	"maps"
	"strconv"
	"strings"

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
	hostMetaXML  = `<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0"><Link rel="restconf" href="` + apiRoot + `"/></XRD>`
	hostMetaJSON = `{"links":[{"rel":"restconf","href":"` + apiRoot + `"}]}`
)

// discoveryPages are the pages of a schema and of streams, by path.
func discoveryPages(schema *yang.Schema, streams monitoring) map[string]page {
	pages := map[string]page{
		"/.well-known/host-meta":      hostMeta(),
		"/.well-known/host-meta.json": textPage(rfc8040, "application/json", hostMetaJSON),
		apiRoot + "/operations":       documentPage(rfc8040, "ietf-restconf:operations", operations),
		draftRoot + "/operations":     documentPage(draft02, "operations", draftOperations),
	}
	version := schema.Module(libraryModule).Revision
	for _, root := range []string{apiRoot, draftRoot} {
		pages[root] = rootPage(version)
		pages[root+"/yang-library-version"] = documentPage(rfc8040, "ietf-restconf:yang-library-version", func() any {
			return libraryVersion{Version: version}
		})
	}
	maps.Copy(pages, modulePages(schema))
	maps.Copy(pages, draftModules(schema))
	pages[draftRoot+"/streams"] = documentPage(draft02, "streams", streams.draft)
	return pages
}

// hostMeta is XML, or JSON for who prefers that.
func hostMeta() page {
	return page{dialect: rfc8040, types: []string{"application/xrd+xml", "application/json", "application/xml", "text/xml"}, write: func(mediaType string) ([]byte, error) {
		if mediaType == "application/json" {
			return []byte(hostMetaJSON), nil
		}
		return []byte(hostMetaXML), nil
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
func rootPage(version string) page {
	written := func(root root8040) page {
		return documentPage(rfc8040, "ietf-restconf:restconf", func() any { return root })
	}
	all := root8040{Data: &struct{}{}, Operations: &struct{}{}, Version: version}
	p := written(all)
	p.query = func(raw string) (page, error) {
		asked, err := rootQuery(raw)
		switch {
		case err != nil:
			return page{}, err
		case asked.fields != "":
			some, err := all.fields(asked.fields)
			return written(some), err
		case asked.depth == 1:
			return written(root8040{}), nil
		}
		return written(all), nil
	}
	return p
}

// rootQuery reads the parameters that the root resource has.
func rootQuery(raw string) (query, error) {
	var asked query
	values, err := parameters(raw)
	for name, given := range values {
		if name != "depth" && name != "fields" {
			return asked, badQuery("the root resource has no query parameter " + name + ": want depth or fields")
		}
		if err = rfc8040.parameter(&asked, name, given, true); err != nil {
			return asked, err
		}
	}
	return asked, err
}

// fields are those children of the root resource that a fields parameter names. Of data
// and operations nothing is in it.
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
			return some, badQuery("fields: the root resource has data, operations and yang-library-version, and no " + strconv.Quote(name))
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

// operations are none: no module has an rpc.
func operations() any {
	return struct {
		XMLName xml.Name `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf operations"`
	}{}
}

// draftOperations are those of draft-02: that which names a stream (salremote.go).
func draftOperations() any {
	return struct {
		XMLName   xml.Name `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf operations"`
		Subscribe empty    `json:"sal-remote:create-data-change-event-subscription" xml:"urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote create-data-change-event-subscription"`
	}{}
}
