package restconf

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// maxInput bounds the body of an operation.
const maxInput = 64 << 10

// extension is what clients of OpenDaylight expect beside draft-02: an operation that names
// streams, and these streams.
type extension interface {
	Operation() discovery.Operation
	// Call answers the operation. It changes nothing.
	Call(m wire.Media, input []byte) (output any, err error)
	// Serve serves the stream of a name, as stream.Server does.
	Serve(w http.ResponseWriter, r *http.Request, name string, c stream.Caller) error
	// Redeem returns a request for a stream, with the credentials that it stands for.
	Redeem(r *http.Request) *http.Request
}

// isCall matches the requests for an operation.
func isCall(o discovery.Operation) mux.MatcherFunc {
	return func(r *http.Request, _ *mux.RouteMatch) bool { return strings.TrimRight(r.URL.Path, "/") == o.Path() }
}

// call serves an operation.
func (s *Server) call(e extension) http.HandlerFunc {
	answer := func(w http.ResponseWriter, r *http.Request) error {
		if done, err := wire.Methods(w, r, "an operation is asked with POST", http.MethodOptions, http.MethodPost); done {
			return err
		}
		m, err := wire.Draft02.BodyMedia(r)
		if err != nil {
			return err
		}
		body, err := readLimited(w, r, maxInput)
		if err != nil {
			return err
		}
		output, err := e.Call(m, body)
		if err != nil {
			return err
		}
		return discovery.Document(wire.Draft02, "output", func() any { return output }).Send(w, r)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := answer(w, r); err != nil {
			s.fail(w, r, wire.Draft02, err)
		}
	}
}

// redeem has a request made with the credentials that it stands for.
func redeem(e extension, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, e.Redeem(r)) }
}
