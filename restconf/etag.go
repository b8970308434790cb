package restconf

import (
	"net/http"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// weak is before an entity-tag that is equal for equivalent answers.
const weak = "W/"

// inXML ends the entity-tag of an answer in XML.
const inXML = "+xml"

// tagged is the version of an answer. Entity-tags are strong, since If-Match takes no
// others. So an answer in XML has another tag than in JSON; a write takes either, since it
// is about the tree.
type tagged struct {
	tree.Version
	media wire.Media
}

// tag is the entity-tag in quotes.
func (v tagged) tag() string {
	if v.media.IsXML() {
		return `"` + v.Tag + inXML + `"`
	}
	return `"` + v.Tag + `"`
}

// isAnswer reports whether a tag is that of the same answer.
func (v tagged) isAnswer(tag string) bool { return v.Tag != "" && tag == v.tag() }

// isVersion reports whether a tag is that of the same version, in any encoding.
func (v tagged) isVersion(tag string) bool {
	return v.Tag != "" && (tag == `"`+v.Tag+`"` || tag == `"`+v.Tag+inXML+`"`)
}

// set puts the validators into the header of an answer.
func (v tagged) set(h http.Header) {
	if v.Tag == "" {
		return
	}
	h["Etag"] = []string{v.tag()}
	h["Last-Modified"] = []string{v.Modified.UTC().Format(http.TimeFormat)}
}

// setVersion puts the validators of what a write has made into its answer's header.
func (s *Server) setVersion(w http.ResponseWriter, q *request, made tree.Result, at tree.Target) {
	m, err := q.dialect.Accepted(q.http)
	if err != nil {
		m = q.dialect.Media[0]
	}
	tagged{s.tree.VersionAfter(made, at), m}.set(w.Header())
}

// byAccept and noStore are values of headers. Caches cannot keep an answer: state in it
// changes, and its validators do not.
var (
	byAccept = []string{"Accept"}
	noStore  = []string{"no-store"}
)
