package restconf

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// sent is what a client has sent to be written.
type sent struct {
	edits []tree.Edit
	patch *patch // nil for a plain request
}

// patch is what only a YANG Patch has.
type patch struct {
	id     string
	answer wire.Media
	wrong  []error // the errors of edits that are wrong in themselves
}

// read reads the edits of a request.
func (s *Server) read(w http.ResponseWriter, q *request) (sent, error) {
	if q.query.Patch != nil {
		return s.readPatch(w, q, *q.query.Patch)
	}
	e := tree.Edit{Op: q.op(), At: q.target}
	if e.Op == tree.Delete {
		return sent{edits: []tree.Edit{e}}, nil
	}
	m, err := q.dialect.BodyMedia(q.http)
	if err != nil {
		return sent{}, err
	}
	body, err := s.readBody(w, q.http)
	if err != nil {
		return sent{}, err
	}
	if e.Data, err = q.dialect.Decode(s.cfg.Schema, q.target, e.Op == tree.Create, m, body); err != nil {
		return sent{}, err
	}
	if q.query.Insert != "" {
		if e, err = s.place(q, e); err != nil {
			return sent{}, err
		}
	}
	return sent{edits: []tree.Edit{e}}, q.dialect.Retag(s.tree.Check(q.caller, e))
}

// place puts the entry of a POST or PUT where the query says (RFC 8040 sections 4.8.5 and
// 4.8.6).
func (s *Server) place(q *request, e tree.Edit) (tree.Edit, error) {
	switch {
	case e.Op == tree.Create && len(e.Data) > 1:
		return e, q.target.Invalid("insert is for one entry: POST them one by one")
	case e.Op == tree.Create:
		e.Op, e.At = tree.Insert, q.target.Child(tree.StepOf(e.Data[0]))
	case q.target.IsRoot():
		return e, wire.Invalid("insert is for an entry of a list that its users order")
	}
	var err error
	e.Where = q.query.Insert
	e.Point, err = wire.PointOf(s.cfg.Schema, nil, e.At, e.Where, q.query.Point)
	if err == nil && e.Point != nil && e.Point.Last().Matches(e.Data[0]) {
		err = e.At.Invalid("point: an entry can't be placed by itself")
	}
	return e, err
}

// readPatch reads a YANG Patch, whose data is in the encoding m.
func (s *Server) readPatch(w http.ResponseWriter, q *request, m wire.Media) (sent, error) {
	body, err := s.readBody(w, q.http)
	if err != nil {
		return sent{}, err
	}
	document, err := wire.ReadPatch(body, m)
	if err != nil {
		return sent{}, err
	}
	out := sent{patch: &patch{id: document.ID, answer: m}}
	if q.http.Header.Get("Accept") != "" {
		if out.patch.answer, err = q.dialect.Accepted(q.http); err != nil {
			return sent{}, err
		}
	}
	editable := func(at tree.Target) error {
		if s.tree.Editable(tree.Replace, at, "") == nil {
			return nil
		}
		return s.notAllowed(&request{http: q.http, root: q.root, dialect: q.dialect, target: at})
	}
	for _, one := range document.Edits {
		edit, err := one.Edit(q.dialect, s.cfg.Schema, q.target, m, editable)
		if err == nil {
			err = s.tree.Check(q.caller, edit)
		}
		if err != nil {
			out.patch.wrong = append(out.patch.wrong, &tree.EditError{ID: one.ID, Err: err})
		}
		out.edits = append(out.edits, edit)
	}
	return out, nil
}

// readBody reads a body that is not empty.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := readLimited(w, r, s.cfg.BodyLimit)
	if err == nil && len(bytes.TrimSpace(body)) == 0 {
		return nil, wire.Malformed("a body is required")
	}
	return body, err
}

// presized bounds the buffer that is allocated before a body has come.
const presized = 64 << 10

// readLimited reads a body of no more bytes than limit, and than its sender may send.
func readLimited(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	by := heldBy(r)
	limit = by.bodyLimit(limit)
	if r.ContentLength > limit {
		return nil, wire.TooBig(limit)
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, presized)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(&countedBody{http.MaxBytesReader(underneath(w), r.Body, limit), by})
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
