package restconf

import (
	"context"
	"net/http"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// write answers POST, PUT, PATCH and DELETE.
func (s *Server) write(w http.ResponseWriter, q *request) error {
	in, err := s.read(w, q)
	if err != nil {
		return err
	}
	if in.patch != nil {
		return s.writePatch(w, q, in)
	}
	made, err := s.commit(w, q, in)
	if err != nil {
		return err
	}
	status := q.dialect.Replaced
	switch q.http.Method {
	case http.MethodPut:
		if made.Created {
			status = http.StatusCreated
		}
	case http.MethodPost:
		status = q.dialect.Posted
		w.Header().Set("Location", baseOf(q.http)+q.root.prefix+q.dialect.URL(q.written(in)))
	case http.MethodPatch:
		status = http.StatusNoContent
	case http.MethodDelete:
		status = q.dialect.Deleted
	}
	w.WriteHeader(status)
	return nil
}

// writePatch answers a YANG Patch: with its status if its edits were read, and as any
// request otherwise.
func (s *Server) writePatch(w http.ResponseWriter, q *request, in sent) error {
	wrong := in.patch.wrong
	if len(wrong) == 0 {
		if _, err := s.commit(w, q, in); err != nil {
			if p := wire.ProblemOf(err); p.Status == 0 || p.Status >= http.StatusInternalServerError || p.Status == http.StatusPreconditionFailed {
				return err
			}
			wrong = []error{err}
		}
	}
	status := http.StatusOK
	if len(wrong) > 0 {
		p := wire.ProblemOf(wrong[0])
		if status = p.Status; status == http.StatusNotFound {
			status = http.StatusConflict // the patch's own target is not what is missing
		}
		if len(p.Allow) > 0 {
			w.Header().Set("Allow", strings.Join(p.Allow, ", "))
		}
	}
	answer := in.patch.answer
	wire.Send(w, status, answer.Name, wire.PatchStatus(s.cfg.Schema, answer, in.patch.id, wrong))
	return nil
}

// commit makes the edits of a request, and puts the validators of what it has made into the
// header of the answer.
func (s *Server) commit(w http.ResponseWriter, q *request, in sent) (tree.Result, error) {
	// The time begins when the body is there: a client that is slow to send does not lose
	// any. A client that goes away does not end the write, since it could not know
	// whether it was made.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.http.Context()), s.cfg.Timeout)
	defer cancel()
	made, err := s.tree.Write(ctx, q.caller, in.edits, q.condition(), q.query.DryRun)
	noteRevision(w, made.Revision) // an error may come after the write
	if err == nil && made.Revision > 0 && q.http.Method != http.MethodDelete {
		s.setVersion(w, q, made, q.written(in))
	}
	return made, err
}

// written is the resource that a write is about. That of a POST is the created resource if
// it is one, otherwise the target. OpenDaylight's draft-02 names the target, unless that is
// the datastore.
func (q *request) written(in sent) tree.Target {
	if q.http.Method == http.MethodPost && len(in.edits[0].Data) == 1 && (q.target.IsRoot() || !q.dialect.Draft) {
		return q.target.Child(tree.StepOf(in.edits[0].Data[0]))
	}
	return q.target
}

// baseOf is the server's address as the client knows it.
func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
