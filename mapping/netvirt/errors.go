package netvirt

import "errors"

// ErrRejected is in every error that says that a backend will never take an
// object as it is, so that trying again is of no use.
var ErrRejected = errors.New("rejected by the backend")

// RejectedError names the changes that a backend will never take as they are.
type RejectedError struct {
	Keys []Key // of the changes
	Err  error // why, naming what stands in the way
}

// Error says why.
func (e *RejectedError) Error() string { return ErrRejected.Error() + ": " + e.Err.Error() }

// Unwrap makes the error an ErrRejected, and its cause known.
func (e *RejectedError) Unwrap() []error { return []error{ErrRejected, e.Err} }
