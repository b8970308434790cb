package netvirt

import "errors"

// ErrRejected marks an error of a backend that will never accept an object as it is.
// Retrying is useless until the object or the backend's other content changes.
var ErrRejected = errors.New("rejected by the backend")

// RejectedError names the changes that a backend will never accept as they are. It is an
// ErrRejected.
type RejectedError struct {
	Keys []Key // of the changes
	Err  error // the reason, with the object that is in conflict
}

// Error implements error.
func (e *RejectedError) Error() string { return ErrRejected.Error() + ": " + e.Err.Error() }

// Unwrap returns ErrRejected and the reason.
func (e *RejectedError) Unwrap() []error { return []error{ErrRejected, e.Err} }
