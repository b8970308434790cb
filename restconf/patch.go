package restconf

import (
	"net/http"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// patch answers a YANG Patch: with its status if its edits were read, and as any request
// otherwise.
func (s *Server) patch(w http.ResponseWriter, q *request, m wire.Media) error {
	body, err := s.bodyOf(w, q)
	if err != nil {
		return err
	}
	patch, err := wire.ReadPatch(body, m)
	if err != nil {
		return err
	}
	answer := m
	if q.http.Header.Get("Accept") != "" {
		if answer, err = q.dialect.Accepted(q.http); err != nil {
			return err
		}
	}
	edits, wrong := s.patchEdits(q, m, patch)
	var made tree.Result
	if len(wrong) == 0 {
		if made, err = s.make(w, q, edits...); err != nil {
			if p := wire.ProblemOf(err); p.Status == 0 || p.Status >= http.StatusInternalServerError || p.Status == http.StatusPreconditionFailed {
				return err
			}
			wrong = append(wrong, err)
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
	} else if made.Revision > 0 {
		s.setVersion(w, q, made, q.target)
	}
	wire.Send(w, status, answer.Name, wire.PatchStatus(s.cfg.Schema, answer, patch.ID, wrong))
	return nil
}

// patchEdits are the edits of a patch, and what is wrong with each that is wrong in
// itself.
func (s *Server) patchEdits(q *request, m wire.Media, patch wire.Patch) (edits []tree.Edit, wrong []error) {
	editable := func(at tree.Target) error {
		if s.tree.Editable(tree.Replace, at, "") == nil {
			return nil
		}
		return s.notAllowed(&request{http: q.http, root: q.root, dialect: q.dialect, target: at})
	}
	for _, one := range patch.Edits {
		edit, err := one.Edit(q.dialect, s.cfg.Schema, q.target, m, editable)
		if err == nil {
			err = s.tree.Check(q.caller, edit)
		}
		if err != nil {
			wrong = append(wrong, &tree.EditError{ID: one.ID, Err: err})
		}
		edits = append(edits, edit)
	}
	return edits, wrong
}
