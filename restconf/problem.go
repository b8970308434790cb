package restconf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// problem is an answer that is an error.
type problem struct {
	status int
	errors yang.Errors
	allow  []string // of a 405
}

// Error joins the messages.
func (p *problem) Error() string { return p.errors.Error() }

// statusOf gives each error-tag its status (RFC 8040 section 7).
var statusOf = map[string]int{
	"in-use":                  http.StatusConflict,
	"lock-denied":             http.StatusConflict,
	"resource-denied":         http.StatusConflict,
	"data-exists":             http.StatusConflict,
	"data-missing":            http.StatusNotFound,
	"invalid-value":           http.StatusBadRequest,
	"missing-attribute":       http.StatusBadRequest,
	"bad-attribute":           http.StatusBadRequest,
	"unknown-attribute":       http.StatusBadRequest,
	"missing-element":         http.StatusBadRequest,
	"bad-element":             http.StatusBadRequest,
	"unknown-element":         http.StatusBadRequest,
	"unknown-namespace":       http.StatusBadRequest,
	"malformed-message":       http.StatusBadRequest,
	"too-big":                 http.StatusRequestEntityTooLarge,
	"access-denied":           http.StatusForbidden,
	"operation-not-supported": http.StatusMethodNotAllowed,
	"operation-failed":        http.StatusInternalServerError,
}

func newProblem(status int, kind, tag, message string) *problem {
	return &problem{status: status, errors: yang.Errors{{Type: kind, Tag: tag, Message: message}}}
}

func badPath(t target, message string) error {
	return &yang.Error{Type: "protocol", Tag: "invalid-value", Path: t.path(), Message: message}
}

func unsupportedMedia(header string, d *dialect) error {
	return newProblem(http.StatusUnsupportedMediaType, "protocol", "invalid-value", header+" has to be "+d.mediaNames())
}

func notAcceptable(d *dialect) error {
	return newProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+d.mediaNames())
}

func tooBig(limit int64) error {
	return newProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big",
		fmt.Sprintf("the body is larger than %d bytes: split the request, or raise the server's body limit", limit))
}

func malformed(message string) error {
	return &yang.Error{Type: "protocol", Tag: "malformed-message", Message: message}
}

func exists(t target) error {
	return &yang.Error{Type: "protocol", Tag: "data-exists", Path: t.path(), Message: "it exists already: PUT replaces it"}
}

func missing(t target) error {
	return &yang.Error{Type: "protocol", Tag: "data-missing", Path: t.path(), Message: "there is no such data"}
}

// manyInXML is the error of a GET of several instances, which are no XML document
// (RFC 8040 section 4.3).
func manyInXML(t target) error {
	return badPath(t, "there are several entries, and an XML document has one root: GET one by its key, what holds them, or JSON")
}

// missingGet is what a GET of absent data answers.
func (d *dialect) missingGet(t target) error {
	return &problem{status: http.StatusNotFound, errors: yang.Errors{{
		Type: "application", Tag: d.missingTag, Path: t.path(), Message: "there is no such data",
	}}}
}

// retag gives an error that was found in a body or key the dialect's tag.
func (d *dialect) retag(err error) error {
	if d.bodyTag == "" {
		return err
	}
	return mapErrors(err, func(e *yang.Error) { e.Tag = d.bodyTag })
}

// withPath gives errors that have no path this one.
func withPath(err error, path string) error {
	return mapErrors(err, func(e *yang.Error) {
		if e.Path == "" {
			e.Path = path
		}
	})
}

// mapErrors changes copies of the errors about data in err.
func mapErrors(err error, change func(*yang.Error)) error {
	found, ok := asErrors(err)
	if !ok {
		return err
	}
	changed := make(yang.Errors, len(found))
	for i, e := range found {
		one := *e
		change(&one)
		changed[i] = &one
	}
	return changed
}

// asErrors recognises an error about data.
func asErrors(err error) (yang.Errors, bool) {
	var many yang.Errors
	if errors.As(err, &many) {
		return many, true
	}
	var one *yang.Error
	if errors.As(err, &one) {
		return yang.Errors{one}, true
	}
	return nil, false
}

// problemOf finds the answer for an error.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	if data, ok := asErrors(err); ok {
		return &problem{status: statusOf[data[0].Tag], errors: data}
	}
	var limit *datastore.LimitError
	switch {
	case errors.As(err, &limit):
		return newProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big", err.Error())
	case errors.Is(err, datastore.ErrUnavailable), errors.Is(err, datastore.ErrFull), errors.Is(err, datastore.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newProblem(http.StatusServiceUnavailable, "application", "operation-failed", err.Error())
	}
	return newProblem(http.StatusInternalServerError, "application", "operation-failed", err.Error())
}

// retryAfter is in seconds, for who was told that the datastore is away.
const retryAfter = 1

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d *dialect, err error) {
	p := problemOf(err)
	h := w.Header()
	if len(p.allow) > 0 {
		h.Set("Allow", strings.Join(p.allow, ", "))
	}
	switch {
	case p.status == http.StatusUnsupportedMediaType && r.Method == http.MethodPatch && d.patches != "":
		h.Set("Accept-Patch", d.patches) // RFC 5789 section 2.2
	case p.status == http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retryAfter))
		s.log.Warn("request could not be served", "err", err)
	case p.status >= http.StatusInternalServerError || p.status == 0:
		p.status = http.StatusInternalServerError
		s.log.Error("request failed", "err", err)
	}
	m := d.errorMedia(r)
	send(w, p.status, m.name, m.codec.errors(s.cfg.Schema, d, p.errors))
}

// errorEntry is an error as bodies have it.
type errorEntry struct {
	Type   string `json:"error-type" xml:"error-type"`
	Tag    string `json:"error-tag" xml:"error-tag"`
	AppTag string `json:"error-app-tag,omitempty" xml:"error-app-tag,omitempty"`
	Path   string `json:"error-path,omitempty" xml:"-"`
	// PathXML is Path in its other form.
	PathXML *xmlPath `json:"-" xml:"error-path"`
	Message string   `json:"error-message,omitempty" xml:"error-message,omitempty"`
}

func errorEntries(s *yang.Schema, errs yang.Errors) []errorEntry {
	list := make([]errorEntry, len(errs))
	for i, e := range errs {
		list[i] = errorEntry{e.Type, e.Tag, e.AppTag, e.Path, newXMLPath(s, e.Path), e.Message}
	}
	return list
}

// send answers with a body.
func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away is no concern of ours
}
