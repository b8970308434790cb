package tree

import (
	"errors"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// EditError says which of several edits is wrong.
type EditError struct {
	ID  string // of the edit
	Err error
}

// Error names the edit.
func (e *EditError) Error() string { return "edit " + e.ID + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *EditError) Unwrap() error { return e.Err }

// NotEditableError is the error of an edit of a resource that clients cannot write.
type NotEditableError struct {
	Path    string // an instance-identifier
	Message string
}

// Error is the message.
func (e *NotEditableError) Error() string { return e.Message }

// DeniedError is the error of a request that the agent of a node must not make.
type DeniedError struct {
	// Full is set if the node has as many entries as it may have.
	Full    bool
	Message string // for the agent
}

// Error is the message.
func (e *DeniedError) Error() string { return e.Message }

// ConditionError is the error of a write whose Condition does not hold.
type ConditionError struct{ At Target }

// Error says what to do.
func (e *ConditionError) Error() string {
	return "the resource is not as the request's conditions say: GET it, and try again with its new ETag"
}

// Invalid is the error of a request for t that is wrong in itself.
func (t Target) Invalid(message string) error {
	return &yang.Error{Type: "protocol", Tag: "invalid-value", Path: t.Path(), Message: message}
}

func exists(t Target) error {
	return &yang.Error{Type: "protocol", Tag: "data-exists", Path: t.Path(), Message: "it exists already: PUT replaces it"}
}

func missing(t Target) error {
	return &yang.Error{Type: "protocol", Tag: "data-missing", Path: t.Path(), Message: "there is no such data"}
}

func inUse(t Target, message string) error {
	return &yang.Error{Type: "application", Tag: "in-use", Path: t.Path(), Message: message}
}

func keyIsFixed(t Target) error {
	return t.Invalid(t.Node().Name + " is a key: to change it, delete the entry and make another")
}

// AsErrors finds the errors about data in err.
func AsErrors(err error) (yang.Errors, bool) {
	if many, ok := errors.AsType[yang.Errors](err); ok {
		return many, true
	}
	if one, ok := errors.AsType[*yang.Error](err); ok {
		return yang.Errors{one}, true
	}
	return nil, false
}

// MapErrors changes copies of the errors about data in err.
func MapErrors(err error, change func(*yang.Error)) error {
	found, ok := AsErrors(err)
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

// asRefusal makes the error of a check one about data. Its paths are below path, the
// path of the data that were checked.
func asRefusal(err error, path string) error {
	if err == nil {
		return nil
	}
	if _, ok := AsErrors(err); !ok {
		err = &yang.Error{Type: "application", Tag: "invalid-value", Message: err.Error()}
	}
	return MapErrors(err, func(e *yang.Error) { e.Path = strings.TrimSuffix(path+"/"+e.Path, "/") })
}
