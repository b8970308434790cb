package restconf

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/restconf/openapi"
	"github.com/coe-bridge/coe-bridge/yang"
)

// pagePolicy lets the page load its own parts and ask this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a document that is the same as long as the server runs.
type asset func() (tagged, error)

// tagged is what an asset is once somebody asked for it.
type tagged struct {
	mediaType  string
	body       []byte
	validators validators
}

func newTagged(mediaType string, body []byte) tagged {
	sum := sha256.Sum256(body)
	return tagged{mediaType, body, validators{state: hex.EncodeToString(sum[:16])}}
}

// documentation is the OpenAPI document and the page that shows it, by path. They are
// where clients of OpenDaylight's releases look for theirs, too.
func (s *Server) documentation() map[string]asset {
	described := asset(sync.OnceValues(s.describe))
	page := pagePart("index.html", "text/html; charset=utf-8")
	return map[string]asset{
		"/openapi.json":               described,
		"/apidoc/openapi3/single":     described,
		"/apidoc":                     page,
		"/apidoc/explorer":            page,
		"/apidoc/explorer/index.html": page,
		"/apidoc/apidoc.css":          pagePart("apidoc.css", "text/css; charset=utf-8"),
		"/apidoc/apidoc.js":           pagePart("apidoc.js", "text/javascript; charset=utf-8"),
	}
}

// describe writes the OpenAPI document.
func (s *Server) describe() (tagged, error) {
	body, err := openapi.Write(openapi.Config{
		Schema:   s.cfg.Schema,
		Version:  contentID(s.cfg.Schema),
		Writable: s.writable,
		Placed:   func(n *yang.Node) bool { return n.Kind == yang.List && n.OrderedByUser && !isUnit(n) },
		Says:     func(top *yang.Node) string { return s.readOnly[top].Says },
	})
	return newTagged("application/json", body), err
}

// pagePart is a file of the page.
func pagePart(name, mediaType string) asset {
	return sync.OnceValues(func() (tagged, error) {
		body, err := openapi.Page.ReadFile("page/" + name)
		return newTagged(mediaType, body), err
	})
}

// serveAsset answers a request for an asset. Who has it already is told so.
func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request, a asset) {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", strings.Join(pageMethods, ", "))
		return
	case http.MethodGet, http.MethodHead:
	default:
		refused := newProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", "this resource can only be read")
		refused.allow = pageMethods
		s.fail(w, r, rfc8040, refused)
		return
	}
	d, err := a()
	if err != nil {
		s.fail(w, r, rfc8040, err)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache") // kept, and asked for each time
	h.Set("ETag", d.validators.tag())
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if verdict := conditionsOf(r.Header).verdict(d.validators, true, true); verdict != 0 {
		w.WriteHeader(verdict)
		return
	}
	send(w, http.StatusOK, d.mediaType, d.body)
}
