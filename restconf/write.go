package restconf

import (
	"context"
	"errors"
	"net/http"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// write answers POST, PUT, PATCH and DELETE.
func (s *Server) write(w http.ResponseWriter, q *request) error {
	if m, ok := q.dialect.YANGPatchOf(q.http); ok {
		return s.patch(w, q, m)
	}
	edit, err := s.edit(w, q)
	if err != nil {
		return s.refused(q, err)
	}
	made, err := s.make(w, q, edit)
	if err != nil {
		return s.refused(q, err)
	}
	s.written(w, q, edit.Data, made)
	return nil
}

// make makes the edits of a request.
func (s *Server) make(w http.ResponseWriter, q *request, edits ...tree.Edit) (tree.Result, error) {
	// The time begins when the body is there: a client that is slow to send does not lose
	// any. A client that goes away does not end the write, since it could not know
	// whether it was made.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.http.Context()), s.cfg.Timeout)
	defer cancel()
	made, err := s.tree.Write(ctx, q.caller, edits, q.condition(), q.query.DryRun)
	noteRevision(w, made.Revision) // an error may come after the write
	return made, err
}

// refused completes the error of a write.
func (s *Server) refused(q *request, err error) error {
	var (
		fixed  *tree.NotEditableError
		denied *tree.DeniedError
	)
	switch {
	case errors.As(err, &fixed):
		p := wire.ProblemOf(err)
		p.Allow = s.methods(q)
		return p
	case errors.As(err, &denied) && denied.Full:
		s.cfg.Limited(LimitPods)
	}
	return err
}

// edit is the one edit of a plain request.
func (s *Server) edit(w http.ResponseWriter, q *request) (tree.Edit, error) {
	e := tree.Edit{Op: q.op(), At: q.target}
	if e.Op == tree.Delete {
		return e, nil
	}
	var err error
	if e.Data, err = s.readBody(w, q); err != nil {
		return e, err
	}
	if q.query.Insert != "" {
		err = s.placeEdit(q, &e)
	}
	if err == nil {
		err = q.dialect.Retag(s.tree.Check(q.caller, e))
	}
	return e, err
}

// placeEdit puts the entry of a POST or PUT where the query says (RFC 8040 sections 4.8.5
// and 4.8.6).
func (s *Server) placeEdit(q *request, e *tree.Edit) (err error) {
	switch {
	case e.Op == tree.Create && len(e.Data) > 1:
		return q.target.Invalid("insert is for one entry: POST them one by one")
	case e.Op == tree.Create:
		e.Op, e.At = tree.Insert, q.target.Child(tree.StepOf(e.Data[0]))
	case q.target.IsRoot():
		return wire.Invalid("insert is for an entry of a list that its users order")
	}
	e.Where = q.query.Insert
	e.Point, err = wire.PointOf(s.cfg.Schema, nil, e.At, e.Where, q.query.Point)
	if err == nil && e.Point != nil && e.Point.Last().Matches(e.Data[0]) {
		err = e.At.Invalid("point: an entry can't be placed by itself")
	}
	return err
}

// written answers a write that was made.
func (s *Server) written(w http.ResponseWriter, q *request, data []*yang.Data, made tree.Result) {
	status, at := q.dialect.Replaced, q.target
	switch q.http.Method {
	case http.MethodPut:
		if made.Created {
			status = http.StatusCreated
		}
	case http.MethodPost:
		status = q.dialect.Posted
		at = q.created(data)
		w.Header().Set("Location", q.location(at))
	case http.MethodPatch:
		status = http.StatusNoContent
	case http.MethodDelete:
		status = q.dialect.Deleted
	}
	if q.http.Method != http.MethodDelete && made.Revision > 0 {
		s.setVersion(w, q, made, at)
	}
	w.WriteHeader(status)
}

// created is the Location of a POST's result: the created resource if it is one, otherwise
// the target. OpenDaylight's draft-02 names the target, unless that is the datastore.
func (q *request) created(data []*yang.Data) tree.Target {
	if len(data) == 1 && (q.target.IsRoot() || !q.dialect.Draft) {
		return q.target.Child(tree.StepOf(data[0]))
	}
	return q.target
}

func (q *request) location(at tree.Target) string {
	return baseOf(q.http) + q.root.prefix + q.dialect.URL(at)
}

// baseOf is the server's address as the client knows it.
func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
