package restconf

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// readBody reads and decodes a body. For POST it returns the target's children
// that are to be made, otherwise the target itself.
func (s *Server) readBody(w http.ResponseWriter, q *request) ([]*yang.Data, error) {
	m, err := q.dialect.BodyMedia(q.http)
	if err != nil {
		return nil, err
	}
	body, err := s.bodyOf(w, q)
	if err != nil {
		return nil, err
	}
	if q.target.IsRoot() && q.http.Method != http.MethodPost {
		return q.dialect.DecodeWhole(s.cfg.Schema, m, body)
	}
	return q.dialect.DecodeBody(s.cfg.Schema, q.target, q.http.Method == http.MethodPost, m, body)
}

// bodyOf reads a body that has something in it.
func (s *Server) bodyOf(w http.ResponseWriter, q *request) ([]byte, error) {
	limit := heldBy(q.http).bodyLimit(s.cfg.BodyLimit)
	if q.http.ContentLength > limit {
		return nil, wire.TooBig(limit)
	}
	body, err := readLimited(w, q.http, limit)
	if err == nil && len(bytes.TrimSpace(body)) == 0 {
		return nil, wire.Malformed("a body is required")
	}
	return body, err
}

// presized bounds the buffer that is allocated before a body has come.
const presized = 64 << 10

// readLimited reads a body of no more bytes than limit.
func readLimited(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, presized)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(&countedBody{http.MaxBytesReader(underneath(w), r.Body, limit), heldBy(r)})
	var (
		large   *http.MaxBytesError
		refused *wire.Problem
	)
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &large):
		return nil, wire.TooBig(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, wire.NewProblem(http.StatusRequestTimeout, "transport", "operation-failed", "the body did not come in time: send it within "+bodyTimeout.String())
	case err != nil:
		return nil, wire.Malformed("the body could not be read: " + err.Error())
	}
	return buf.Bytes(), nil
}

// countedBody is a body whose bytes count for its sender.
type countedBody struct {
	io.Reader
	by *held
}

// Read implements io.Reader.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if refused := c.by.takeBody(int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}
