package restconf

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/openapi"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// pagePolicy lets the page load its own parts and ask this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a document that does not change while the server runs.
type asset func() (representation, error)

// representation is an asset as it is sent.
type representation struct {
	mediaType string
	body      []byte
	version   tagged
}

func represent(mediaType string, body []byte) representation {
	sum := sha256.Sum256(body)
	return representation{mediaType, body, tagged{Version: tree.Version{Tag: hex.EncodeToString(sum[:16])}}}
}

// documentation is the OpenAPI document and the page that shows it, by path. They are
// where clients of OpenDaylight's releases look for theirs, too.
func (s *Server) documentation() map[string]http.HandlerFunc {
	described := asset(sync.OnceValues(s.describe))
	page := pagePart("index.html", "text/html; charset=utf-8")
	assets := map[string]asset{
		"/openapi.json":               described,
		"/apidoc/openapi3/single":     described,
		"/apidoc":                     page,
		"/apidoc/explorer":            page,
		"/apidoc/explorer/index.html": page,
		"/apidoc/apidoc.css":          pagePart("apidoc.css", "text/css; charset=utf-8"),
		"/apidoc/apidoc.js":           pagePart("apidoc.js", "text/javascript; charset=utf-8"),
	}
	serve := map[string]http.HandlerFunc{}
	for path, a := range assets {
		serve[path] = func(w http.ResponseWriter, r *http.Request) { s.serveAsset(w, r, a) }
	}
	return serve
}

// describe writes the OpenAPI document.
func (s *Server) describe() (representation, error) {
	body, err := openapi.Write(openapi.Config{
		Schema:   s.cfg.Schema,
		Version:  discovery.ContentID(s.modules),
		Writable: s.tree.Writable,
		Placed:   func(n *yang.Node) bool { return n.Kind == yang.List && n.OrderedByUser && !tree.IsUnit(n) },
		Says:     s.tree.Says,
	})
	return represent("application/json", body), err
}

// pagePart is a file of the page.
func pagePart(name, mediaType string) asset {
	return sync.OnceValues(func() (representation, error) {
		body, err := openapi.Page.ReadFile("page/" + name)
		return represent(mediaType, body), err
	})
}

// serveAsset answers a request for an asset, with 304 if the client has it already.
func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request, a asset) {
	if done, err := wire.Methods(w, r, "this resource can only be read", wire.ReadMethods...); done {
		if err != nil {
			s.fail(w, r, wire.RFC8040, err)
		}
		return
	}
	d, err := a()
	if err != nil {
		s.fail(w, r, wire.RFC8040, err)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache") // kept, and asked for each time
	h.Set("ETag", d.version.tag())
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if verdict := conditionsOf(r.Header).verdict(d.version, true, true); verdict != 0 {
		w.WriteHeader(verdict)
		return
	}
	wire.Send(w, http.StatusOK, d.mediaType, d.body)
}
