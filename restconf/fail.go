package restconf

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// retryAfter is the Retry-After of a 503, in seconds.
const retryAfter = 1

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d *wire.Dialect, err error) {
	p := wire.ProblemOf(err)
	h := w.Header()
	if len(p.Allow) > 0 {
		h.Set("Allow", strings.Join(p.Allow, ", "))
	}
	switch {
	case p.Status == http.StatusUnsupportedMediaType && r.Method == http.MethodPatch && d.Patches != "":
		h.Set("Accept-Patch", d.Patches) // RFC 5789 section 2.2
	case p.Status == http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retryAfter))
		s.log.Warn("request could not be served", "err", err)
	case p.Status >= http.StatusInternalServerError || p.Status == 0:
		p.Status = http.StatusInternalServerError
		s.log.Error("request failed", "err", err)
	}
	m := d.ErrorMedia(r)
	wire.Send(w, p.Status, m.Name, d.EncodeErrors(m, s.cfg.Schema, p.Errors))
}

// servePage answers a request for a document.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, p discovery.Page) {
	if err := p.Serve(w, r); err != nil {
		s.fail(w, r, p.Dialect, err)
	}
}
