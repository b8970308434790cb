package restconf

import (
	"context"
	"net/http"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// get answers GET and HEAD.
func (s *Server) get(w http.ResponseWriter, q *request) error {
	m, err := q.dialect.Accepted(q.http)
	if err != nil {
		return err
	}
	if q.dialect.Draft && !q.target.IsRoot() && tree.IsLeaf(q.target.Node()) {
		return q.target.Invalid(q.target.Node().Name + " is a leaf: GET what holds it")
	}
	asked, err := s.question(q)
	if err != nil {
		return err
	}
	v := tagged{s.tree.Version(asked), m}
	body, err := s.body(q, asked, m)
	if err != nil {
		return err
	}
	if body == nil {
		return q.dialect.MissingGet(q.target)
	}
	verdict := conditionsOf(q.http.Header).verdict(v, true, true)
	switch {
	case verdict == http.StatusPreconditionFailed:
		return &tree.ConditionError{At: q.target}
	case s.tree.HasMore(asked):
		verdict = 0
	}
	h := w.Header()
	h["Vary"] = byAccept
	v.set(h)
	if verdict != 0 {
		w.WriteHeader(verdict)
		return nil
	}
	wire.Send(w, http.StatusOK, m.Name, body)
	return nil
}

// question is what a GET asks of the tree.
func (s *Server) question(q *request) (tree.Question, error) {
	asked := tree.Question{
		At: q.target, Part: q.root.part, Depth: q.query.Depth, Keys: q.dialect.Draft, Defaults: q.query.Defaults,
		UnsetLeaf: q.dialect == wire.RFC8040, Base: baseOf(q.http),
	}
	if asked.Part == tree.PartAll {
		asked.Part = q.query.Content
	}
	var err error
	if q.query.Fields != "" {
		asked.Fields, err = wire.ParseFields(s.cfg.Schema, q.target.Schema(), q.query.Fields)
	}
	return asked, err
}

// body is the answer to a GET; nil if there is nothing. In JSON, what is stored is
// answered without parsing it.
func (s *Server) body(q *request, asked tree.Question, m wire.Media) ([]byte, error) {
	if !m.IsXML() && !q.query.Pretty {
		if units, ok := s.tree.Stored(asked); ok {
			return q.dialect.JoinUnits(q.target, units), nil
		}
	}
	ctx, cancel := context.WithTimeout(q.http.Context(), s.cfg.Timeout)
	defer cancel()
	found, err := s.tree.Read(ctx, asked)
	if err != nil {
		return nil, err
	}
	return q.dialect.Encode(m, q.target, found, q.query.Pretty)
}
