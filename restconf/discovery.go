package restconf

import (
	"encoding/xml"
	"maps"

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
		pages[root] = documentPage(rfc8040, "ietf-restconf:restconf", func() any { return root8040{Version: version} })
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
	return page{rfc8040, []string{"application/xrd+xml", "application/json", "application/xml", "text/xml"}, func(mediaType string) ([]byte, error) {
		if mediaType == "application/json" {
			return []byte(hostMetaJSON), nil
		}
		return []byte(hostMetaXML), nil
	}}
}

// root8040 is the API's root resource (RFC 8040 section 3.3).
type root8040 struct {
	XMLName    xml.Name `json:"-" xml:"urn:ietf:params:xml:ns:yang:ietf-restconf restconf"`
	Data       struct{} `json:"data" xml:"data"`
	Operations struct{} `json:"operations" xml:"operations"`
	Version    string   `json:"yang-library-version" xml:"yang-library-version"`
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
