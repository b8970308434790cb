package restconf

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// editError is what is wrong with one edit.
type editError struct {
	id  string
	err error
}

// Error names the edit.
func (e *editError) Error() string { return "edit " + e.id + ": " + e.err.Error() }

// Unwrap is what is wrong.
func (e *editError) Unwrap() error { return e.err }

// patchStep is an edit that was understood.
type patchStep struct {
	patchEdit
	at, point target
	data      *yang.Data
}

// applyPatch answers a YANG Patch: with its status where the edits were looked at,
// and as any request otherwise.
func (s *Server) applyPatch(w http.ResponseWriter, q *request, m media) error {
	body, err := s.bodyOf(w, q)
	if err != nil {
		return err
	}
	patch, err := readPatch(body, m)
	if err != nil {
		return err
	}
	answer := m
	if q.http.Header.Get("Accept") != "" {
		if answer, err = q.dialect.accepted(q.http); err != nil {
			return err
		}
	}
	steps, wrong := s.patchSteps(q, m, patch)
	var made datastore.Change
	if len(wrong) == 0 {
		made, err = s.makePatch(q, steps)
		noteRevision(w, made.Revision) // an error may come after the write
		if err != nil && !errors.Is(err, errDryRun) {
			if p := problemOf(err); p.status == 0 || p.status >= http.StatusInternalServerError || p.status == http.StatusPreconditionFailed {
				return err
			}
			wrong = append(wrong, err)
		}
	}
	status := http.StatusOK
	if len(wrong) > 0 {
		p := problemOf(wrong[0])
		if status = p.status; status == http.StatusNotFound {
			status = http.StatusConflict // the patch's own target is no matter here
		}
		if len(p.allow) > 0 {
			w.Header().Set("Allow", strings.Join(p.allow, ", "))
		}
	} else if made.Revision > 0 {
		s.validatorsAfter(made, q, q.target).set(w.Header())
	}
	send(w, status, answer.name, patchStatus(s.cfg.Schema, answer, patch.id, wrong))
	return nil
}

// patchSteps understands all edits, and returns what is wrong with those that it
// can't.
func (s *Server) patchSteps(q *request, m media, patch yangPatch) (steps []patchStep, wrong []error) {
	for _, e := range patch.edits {
		step, err := s.patchStep(q, m, e)
		if err != nil {
			wrong = append(wrong, &editError{e.id, err})
		}
		steps = append(steps, step)
	}
	return steps, wrong
}

func (s *Server) patchStep(q *request, m media, e patchEdit) (patchStep, error) {
	step := patchStep{patchEdit: e}
	if err := e.check(); err != nil {
		return step, err
	}
	var err error
	if step.at, err = s.below(q.target, e.target); err != nil {
		return step, err
	}
	if err := s.editable(q, step.at); err != nil {
		return step, err
	}
	if e.operation == "insert" || e.operation == "move" {
		if step.point, err = s.pointOf(q.target, step.at, e.where, e.point); err != nil {
			return step, err
		}
	}
	if e.value != nil {
		data, err := s.decodeBody(&request{http: q.http, tree: q.tree, dialect: q.dialect, target: step.at}, m, e.value)
		if err != nil {
			return step, err
		}
		step.data = data[0]
	}
	return step, nil
}

// below is what a path names below a target; "/" is the target itself.
func (s *Server) below(at target, path string) (target, error) {
	return rfc8040.parseBelow(s.cfg.Schema, at, path)
}

// editable refuses what can't be edited.
func (s *Server) editable(q *request, at target) error {
	if at.isRoot() {
		return badPath(at, "an edit is for one of the top containers: name it in its target")
	}
	sub := &request{http: q.http, tree: q.tree, dialect: q.dialect, target: at}
	if slices.Contains(s.methods(sub), http.MethodPut) {
		return nil
	}
	return s.notAllowed(sub, at.path(), s.whyNot(sub))
}

// errDryRun ends the transaction of a patch that is good, and is not to be made.
var errDryRun = errors.New("nothing is to be written")

// makePatch makes all edits in one transaction. Of a dry run it returns errDryRun where
// nothing is wrong.
func (s *Server) makePatch(q *request, steps []patchStep) (datastore.Change, error) {
	ctx, cancel := s.timeToWrite(q)
	defer cancel()
	return s.store.Write(ctx, func(tx *datastore.Tx) error {
		e := newEdit(s, tx)
		if err := s.refuseForeignSteps(steps); err != nil { // as in any write, before the conditions
			return err
		}
		if err := e.precondition(q); err != nil {
			return err
		}
		for _, step := range steps {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := e.patchStep(step); err != nil {
				return &editError{step.id, err}
			}
		}
		if err := e.finish(); err != nil || !q.query.dryRun {
			return err
		}
		return errDryRun
	})
}

// refuseForeignSteps finds the first edit of what is foreign.
func (s *Server) refuseForeignSteps(steps []patchStep) error {
	for _, step := range steps {
		if err := s.refuseForeign(step.at); err != nil {
			return &editError{step.id, err}
		}
	}
	return nil
}

// patchStep makes one edit on top of those before it.
func (e *edit) patchStep(step patchStep) error {
	if step.data != nil {
		step.data = yang.Merge(nil, step.data) // a copy, which later steps may change
	}
	there, err := e.exists(step.at)
	if err != nil {
		return err
	}
	switch step.operation {
	case "create":
		if there {
			return exists(step.at)
		}
		_, err = e.put(step.at, step.data)
	case "replace":
		_, err = e.put(step.at, step.data)
	case "merge":
		if there {
			return e.patch(step.at, step.data)
		}
		_, err = e.put(step.at, step.data)
	case "delete":
		return e.delete(step.at)
	case "remove":
		if there {
			return e.delete(step.at)
		}
	case "insert":
		return e.insert(step.at, step.data, step.where, step.point)
	case "move":
		return e.move(step.at, step.where, step.point)
	}
	return err
}

// errorList is the container errors of RFC 8040, as the status has it.
type errorList struct {
	Errors []errorEntry `json:"error" xml:"error"`
}

type editStatus struct {
	ID     string    `json:"edit-id" xml:"edit-id"`
	Errors errorList `json:"errors" xml:"errors"`
}

type editStatuses struct {
	Edits []editStatus `json:"edit" xml:"edit"`
}

// patchStatus is the answer to a patch: that all is made, or what is wrong, edit by
// edit (RFC 8072 section 2.3).
func patchStatus(s *yang.Schema, m media, id string, wrong []error) []byte {
	status := struct {
		XMLName xml.Name      `json:"-"`
		ID      string        `json:"patch-id" xml:"patch-id"`
		Errors  *errorList    `json:"errors,omitempty" xml:"errors"`
		OK      []*string     `json:"ok,omitempty" xml:"-"`
		OKXML   *struct{}     `json:"-" xml:"ok"`
		Edits   *editStatuses `json:"edit-status,omitempty" xml:"edit-status"`
	}{XMLName: xml.Name{Space: patchSpace, Local: "yang-patch-status"}, ID: id}
	if len(wrong) == 0 {
		status.OK, status.OKXML = []*string{nil}, &struct{}{}
	}
	for _, err := range wrong {
		entries := errorList{errorEntries(s, problemOf(err).errors)}
		var one *editError
		if !errors.As(err, &one) {
			status.Errors = &entries
			continue
		}
		if status.Edits == nil {
			status.Edits = &editStatuses{}
		}
		status.Edits.Edits = append(status.Edits.Edits, editStatus{one.id, entries})
	}
	if m.isXML() {
		body, _ := xml.Marshal(status) // strings always encode
		return body
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]any{patchModule + ":yang-patch-status": status}) // as above
	return buf.Bytes()
}
