package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Problem is an error with its HTTP status.
type Problem struct {
	Status int
	Errors yang.Errors
	Allow  []string // of a 405
}

// Error joins the messages.
func (p *Problem) Error() string { return p.Errors.Error() }

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

// NewProblem is a Problem with one error.
func NewProblem(status int, kind, tag, message string) *Problem {
	return &Problem{Status: status, Errors: yang.Errors{{Type: kind, Tag: tag, Message: message}}}
}

// ReadMethods are the methods of a resource that can only be read.
var ReadMethods = []string{http.MethodOptions, http.MethodHead, http.MethodGet}

// NotAllowed is the error of a method that a resource does not have. It has the methods allow.
func NotAllowed(message string, allow ...string) *Problem {
	p := NewProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", message)
	p.Allow = allow
	return p
}

// Methods answers OPTIONS with the methods that a resource has, and refuses any other method.
// done is false if the request has one of the methods.
func Methods(w http.ResponseWriter, r *http.Request, refusal string, has ...string) (done bool, err error) {
	switch {
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", strings.Join(has, ", "))
		return true, nil
	case slices.Contains(has, r.Method):
		return false, nil
	}
	return true, NotAllowed(refusal, has...)
}

// At gives the errors a path.
func (p *Problem) At(path string) *Problem {
	for _, e := range p.Errors {
		e.Path = path
	}
	return p
}

// TooBig is the error of a body that is larger than limit.
func TooBig(limit int64) error {
	return NewProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big",
		fmt.Sprintf("the body is larger than %d bytes: split the request, or raise the server's body limit", limit))
}

// Malformed is the error of a body that cannot be read.
func Malformed(message string) error {
	return &yang.Error{Type: "protocol", Tag: "malformed-message", Message: message}
}

// malformedAt is Malformed for a body that is about t.
func malformedAt(t tree.Target, message string) error {
	return &yang.Error{Type: "protocol", Tag: "malformed-message", Path: t.Path(), Message: message}
}

// MissingGet is the answer to a GET of missing data.
func (d *Dialect) MissingGet(t tree.Target) error {
	return &Problem{Status: http.StatusNotFound, Errors: yang.Errors{{
		Type: "application", Tag: d.missingTag, Path: t.Path(), Message: "there is no such data",
	}}}
}

// Retag gives an error in a body or key the dialect's tag.
func (d *Dialect) Retag(err error) error {
	if d.bodyTag == "" {
		return err
	}
	return tree.MapErrors(err, func(e *yang.Error) { e.Tag = d.bodyTag })
}

// WithPath gives errors that have no path this one.
func WithPath(err error, path string) error {
	return tree.MapErrors(err, func(e *yang.Error) {
		if e.Path == "" {
			e.Path = path
		}
	})
}

// ProblemOf finds the answer for an error.
func ProblemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if data, ok := tree.AsErrors(err); ok {
		return &Problem{Status: statusOf[data[0].Tag], Errors: data}
	}
	var (
		limit     *datastore.LimitError
		fixed     *tree.NotEditableError
		condition *tree.ConditionError
		denied    *tree.DeniedError
	)
	switch {
	case errors.As(err, &fixed):
		return NewProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", fixed.Message).At(fixed.Path)
	case errors.As(err, &condition):
		return NewProblem(http.StatusPreconditionFailed, "protocol", "operation-failed", condition.Error()).At(condition.At.Path())
	case errors.As(err, &denied) && denied.Full:
		return NewProblem(http.StatusForbidden, "application", "resource-denied", denied.Message)
	case errors.As(err, &denied):
		return NewProblem(http.StatusForbidden, "protocol", "access-denied", denied.Message)
	case errors.As(err, &limit):
		return NewProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big", err.Error())
	case errors.Is(err, datastore.ErrUnavailable), errors.Is(err, datastore.ErrFull), errors.Is(err, datastore.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return NewProblem(http.StatusServiceUnavailable, "application", "operation-failed", err.Error())
	}
	return NewProblem(http.StatusInternalServerError, "application", "operation-failed", err.Error())
}

// ErrorEntry is an error in a body.
type ErrorEntry struct {
	Type   string `json:"error-type" xml:"error-type"`
	Tag    string `json:"error-tag" xml:"error-tag"`
	AppTag string `json:"error-app-tag,omitempty" xml:"error-app-tag,omitempty"`
	Path   string `json:"error-path,omitempty" xml:"-"`
	// PathXML is Path in XML.
	PathXML *XMLPath `json:"-" xml:"error-path"`
	Message string   `json:"error-message,omitempty" xml:"error-message,omitempty"`
}

func errorEntries(s *yang.Schema, errs yang.Errors) []ErrorEntry {
	list := make([]ErrorEntry, len(errs))
	for i, e := range errs {
		list[i] = ErrorEntry{e.Type, e.Tag, e.AppTag, e.Path, newXMLPath(s, e.Path), e.Message}
	}
	return list
}

// Send answers with a body.
func Send(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}
