package restconf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// write answers POST, PUT, PATCH and DELETE: one transaction each.
func (s *Server) write(w http.ResponseWriter, q *request) error {
	if m, ok := q.dialect.yangPatchOf(q.http); ok {
		return s.applyPatch(w, q, m)
	}
	var data []*yang.Data
	if q.http.Method != http.MethodDelete {
		var err error
		if data, err = s.readBody(w, q); err != nil {
			return err
		}
	}
	if err := s.confineEntries(q, data); err != nil {
		return err
	}
	ctx, cancel := s.timeToWrite(q)
	defer cancel()
	done, err := s.admitEntries(ctx, q, data)
	if err != nil {
		return err
	}
	defer done()
	var created bool
	made, err := s.store.Write(ctx, func(tx *datastore.Tx) (err error) {
		e := newEdit(s, tx)
		if err := e.confineDelete(q); err != nil {
			return err
		}
		if err := s.refuseForeign(q.target); err != nil {
			return err
		}
		if err := e.precondition(q); err != nil {
			return err
		}
		if created, err = e.make(q, data); err != nil {
			return err
		}
		return e.finish()
	})
	noteRevision(w, made.Revision) // an error may come after the write
	if err != nil {
		return err
	}
	s.written(w, q, data, created, made)
	return nil
}

// timeToWrite bounds a write from when its body is there: a client that is slow to send
// takes nothing from it. One that goes away does not end it, which would leave open
// whether it was made.
func (s *Server) timeToWrite(q *request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(q.http.Context()), s.cfg.Timeout)
}

// make does what the request's method says, and tells whether a PUT's target was not
// there before.
func (e *edit) make(q *request, data []*yang.Data) (created bool, err error) {
	switch {
	case q.replacesWhole() && q.query.insert != "":
		return false, badQuery("insert is for an entry of a list that its users order")
	case q.replacesWhole() && q.http.Method == http.MethodPut:
		return false, e.putWhole(data)
	case q.replacesWhole():
		return false, e.patchWhole(data)
	}
	switch q.http.Method {
	case http.MethodPut:
		if q.query.insert != "" {
			return e.place(q, q.target, data[0])
		}
		return e.put(q.target, data[0])
	case http.MethodPost:
		if q.query.insert == "" {
			return false, e.post(q.target, data)
		}
		if len(data) > 1 {
			return false, badPath(q.target, "insert is for one entry: POST them one by one")
		}
		_, err = e.place(q, append(slices.Clone(q.target), stepOf(data[0])), data[0])
	case http.MethodPatch:
		err = e.patch(q.target, data[0])
	case http.MethodDelete:
		err = e.delete(q.target)
	}
	return false, err
}

// written answers a write that was made.
func (s *Server) written(w http.ResponseWriter, q *request, data []*yang.Data, created bool, made datastore.Change) {
	status, at := q.dialect.replaced, q.target
	switch q.http.Method {
	case http.MethodPut:
		if created {
			status = http.StatusCreated
		}
	case http.MethodPost:
		status = q.dialect.posted
		at = q.created(data)
		w.Header().Set("Location", q.location(at))
	case http.MethodPatch:
		status = http.StatusNoContent
	case http.MethodDelete:
		status = q.dialect.deleted
	}
	if q.http.Method != http.MethodDelete && made.Revision > 0 {
		s.validatorsAfter(made, q, at).set(w.Header())
	}
	w.WriteHeader(status)
}

// created is where a POST's result is: the created resource where it is one,
// otherwise the target. OpenDaylight's draft-02 names the target whatever was
// made in it, unless that is the datastore.
func (q *request) created(data []*yang.Data) target {
	if len(data) == 1 && (q.target.isRoot() || !q.dialect.draft) {
		return append(slices.Clone(q.target), stepOf(data[0]))
	}
	return q.target
}

func (q *request) location(at target) string {
	return baseOf(q.http) + q.tree.prefix + q.dialect.url(at)
}

// baseOf is where the client has found the server.
func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// readBody reads and decodes a body. For POST it returns the target's children
// that are to be made, otherwise the target itself.
func (s *Server) readBody(w http.ResponseWriter, q *request) ([]*yang.Data, error) {
	m, err := q.dialect.bodyMedia(q.http)
	if err != nil {
		return nil, err
	}
	body, err := s.bodyOf(w, q)
	if err != nil {
		return nil, err
	}
	if q.replacesWhole() {
		return s.decodeWhole(q, m, body)
	}
	return s.decodeBody(q, m, body)
}

// bodyOf reads a body that has something in it.
func (s *Server) bodyOf(w http.ResponseWriter, q *request) ([]byte, error) {
	limit := heldBy(q.http).bodyLimit(s.cfg.BodyLimit)
	if q.http.ContentLength > limit {
		return nil, tooBig(limit)
	}
	body, err := readLimited(w, q.http, limit)
	if err == nil && len(bytes.TrimSpace(body)) == 0 {
		return nil, malformed("a body is required")
	}
	return body, err
}

// presized is the most that is made room for before anything of a body has come.
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
		refused *problem
	)
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &large):
		return nil, tooBig(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(http.StatusRequestTimeout, "transport", "operation-failed", "the body did not come in time: send it within "+bodyTimeout.String())
	case err != nil:
		return nil, malformed("the body could not be read: " + err.Error())
	}
	return buf.Bytes(), nil
}

// countedBody is a body whose bytes count for who sends it.
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

func (s *Server) decodeBody(q *request, m media, body []byte) ([]*yang.Data, error) {
	outermost, qualified := m.codec.outermost(body)
	children := q.http.Method == http.MethodPost
	asChildren := children
	if q.dialect.draft {
		asChildren = q.bodyHasChildren(outermost, children)
	}
	at := q.target
	if !asChildren {
		if outermost != "" && outermost != at.node().Name {
			return nil, q.wantsTarget()
		}
		at = at.parent()
	}
	data, err := m.codec.decode(s.cfg.Schema, body, at.schema(), at.path(), q.dialect.mode)
	switch {
	case err != nil:
	case !q.dialect.draft && !qualified:
		err = withPath(malformed("the outermost name in a body has to be \"module:name\""), at.path())
	default:
		err = s.refuse(q, data, at.path())
	}
	if err != nil {
		return nil, q.dialect.retag(err)
	}
	if !asChildren {
		if err := q.isTarget(data); err != nil {
			return nil, err
		}
	}
	switch {
	case asChildren && !children:
		return []*yang.Data{{Node: q.target.node(), Children: data}}, nil
	case !asChildren && children:
		data = data[0].Children
	}
	if len(data) == 0 {
		return nil, malformed("the body has nothing in it")
	}
	return data, nil
}

// bodyHasChildren tells which shape a draft-02 body has: the children of the
// target, or the target itself. The published examples use both with POST and
// with PUT, and which it is shows in the name of the first member. That only
// works for containers; an entry of a list is always named by its list.
func (q *request) bodyHasChildren(outermost string, children bool) bool {
	if q.target.isRoot() || q.target.node().Kind != yang.Container {
		return children
	}
	node := q.target.node()
	isChild, isTarget := node.Child("", outermost) != nil, outermost == node.Name
	if isChild == isTarget {
		return children
	}
	return isChild
}

// isTarget checks that a body holds the one instance that the path names.
func (q *request) isTarget(data []*yang.Data) error {
	node := q.target.node()
	if len(data) != 1 || data[0].Node != node {
		return q.wantsTarget()
	}
	if s := q.target.last(); !s.matches(data[0]) {
		return &yang.Error{
			Type: "protocol", Tag: "invalid-value", Path: q.target.path(),
			Message: "the key in the body, " + strings.Join(stepOf(data[0]).keys, " ") + ", is not the path's, " + strings.Join(s.keys, " "),
		}
	}
	return nil
}

// wantsTarget is the error of a body that holds anything but the target.
func (q *request) wantsTarget() error {
	node := q.target.node()
	return withPath(malformed("the body has to hold "+node.Module.Name+":"+node.Name+" and nothing else"), q.target.path())
}

// refuse finds what a client sent and can't write.
func (s *Server) refuse(q *request, data []*yang.Data, at string) error {
	if q.target.isRoot() { // below it the path has told already
		if err := s.refuseReadOnly(q, data); err != nil {
			return err
		}
	}
	if q.dialect.draft {
		if err := refuseUnreachable(data, at); err != nil {
			return err
		}
	}
	return refuseState(data, at)
}

// refuseReadOnly finds read-only trees among the top containers that a client
// sent to the datastore as a whole.
func (s *Server) refuseReadOnly(q *request, tops []*yang.Data) error {
	for _, top := range tops {
		if _, fixed := s.readOnly[top.Node]; fixed {
			return s.notAllowed(q, top.Path(""), s.comesFrom(top.Node))
		}
	}
	return nil
}

// refuseState finds state in what a client sent.
func refuseState(data []*yang.Data, at string) error {
	for _, d := range data {
		if !d.Node.Config {
			return &yang.Error{
				Type: "protocol", Tag: "invalid-value", Path: d.Path(at),
				Message: d.Node.Name + " is state, which only this server writes: leave it out",
			}
		}
		if len(d.Children) > 0 {
			if err := refuseState(d.Children, d.Path(at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuseUnreachable finds entries that no path of draft-02 reaches, since an empty key
// has no place in one. What is within an entry can be written with that.
func refuseUnreachable(data []*yang.Data, at string) error {
	for _, d := range data {
		if !isUnit(d.Node) {
			if err := refuseUnreachable(d.Children, d.Path(at)); err != nil {
				return err
			}
			continue
		}
		if i := slices.Index(d.Key(), ""); i >= 0 {
			return &yang.Error{
				Type: "protocol", Tag: "invalid-value", Path: d.Path(at),
				Message: "the key " + d.Node.Keys[i].Name + " is empty, and no path could name the entry: give it one",
			}
		}
	}
	return nil
}
