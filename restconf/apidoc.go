package restconf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/openapi"
	"github.com/coe-bridge/coe-bridge/yang"
)

// pagePolicy lets the page load its own parts and ask this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a document that is the same as long as the server runs.
type asset struct {
	mediaType  string
	body       []byte
	validators validators
}

func newAsset(mediaType string, body []byte) asset {
	sum := sha256.Sum256(body)
	return asset{mediaType, body, validators{state: hex.EncodeToString(sum[:16])}}
}

// documentation is the OpenAPI document and the page that shows it, by path. It is where
// clients of OpenDaylight's releases look for theirs, too.
func (s *Server) documentation() (map[string]asset, error) {
	document, err := openapi.Write(openapi.Config{
		Schema:   s.cfg.Schema,
		Version:  contentID(s.cfg.Schema),
		Writable: s.writable,
		Placed:   func(n *yang.Node) bool { return n.Kind == yang.List && n.OrderedByUser && !isUnit(n) },
		Says:     func(top *yang.Node) string { return s.readOnly[top].Says },
	})
	if err != nil {
		return nil, err
	}
	written := newAsset("application/json", document)
	assets := map[string]asset{"/openapi.json": written, "/apidoc/openapi3/single": written}
	for path, file := range map[string]struct{ name, mediaType string }{
		"/apidoc":                     {"index.html", "text/html; charset=utf-8"},
		"/apidoc/explorer":            {"index.html", "text/html; charset=utf-8"},
		"/apidoc/explorer/index.html": {"index.html", "text/html; charset=utf-8"},
		"/apidoc/apidoc.css":          {"apidoc.css", "text/css; charset=utf-8"},
		"/apidoc/apidoc.js":           {"apidoc.js", "text/javascript; charset=utf-8"},
	} {
		body, err := openapi.Page.ReadFile("page/" + file.name)
		if err != nil {
			return nil, fmt.Errorf("read the page of the API: %w", err)
		}
		assets[path] = newAsset(file.mediaType, body)
	}
	return assets, nil
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
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache") // kept, and asked for each time
	h.Set("ETag", a.validators.tag())
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if verdict := conditionsOf(r.Header).verdict(a.validators, true, true); verdict != 0 {
		w.WriteHeader(verdict)
		return
	}
	send(w, http.StatusOK, a.mediaType, a.body)
}
