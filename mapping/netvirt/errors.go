package netvirt

import (
	"errors"
	"fmt"
)

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

// DeferredError names the changes that a backend has not made yet, because the network still uses what they change or
// replace. The backend has made all others. Nothing makes them but a later Write.
type DeferredError struct {
	// Have has the object that the backend has for the key of each of these changes; nil if it has none.
	Have map[Key]Object
}

// Error implements error.
func (e *DeferredError) Error() string {
	return fmt.Sprintf("%d changes wait for the network", len(e.Have))
}
