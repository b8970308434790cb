package datastore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The errors that callers tell apart.
var (
	// ErrUnavailable: etcd could not be asked or did not answer in time. Whether
	// a write took place is unknown; to repeat it is safe.
	ErrUnavailable = errors.New("the datastore is not available")
	// ErrFull: etcd takes no more data until its quota is raised.
	ErrFull = errors.New("the datastore is full: raise --quota (external etcd: --quota-backend-bytes), then disarm the NOSPACE alarm")
	// ErrDeposed: another process leads, nothing was written.
	ErrDeposed = errors.New("leadership was lost")
	// ErrClosed: the datastore was closed meanwhile.
	ErrClosed = errors.New("the datastore is closed")
	// ErrInUse: the data directory is locked.
	ErrInUse = errors.New("another process uses it: stop that one, or give this one its own --data-dir")
)

// LimitError says that a request needs a larger transaction than the etcd
// servers take. Nothing was written.
type LimitError struct {
	Flag string // the etcd flag to raise
	Need string // what the request needs
}

// Error tells what to raise.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the request needs %s in one etcd transaction: raise %s on the etcd servers, or split the request", e.Need, e.Flag)
}

// classify gives an error of etcd's client one of the classes above; verb says
// what was tried.
func classify(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: %w", verb, ErrFull)
	case isUnavailable(err):
		return fmt.Errorf("%s: %w: %w", verb, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func isUnavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	// A stopped etcd has no code for this one.
	return strings.Contains(err.Error(), raft.ErrStopped.Error())
}

// limitError recognises a transaction that is too large for the servers.
func limitError(err error, ops, bytes int) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return &LimitError{Flag: "--max-txn-ops", Need: fmt.Sprintf("%d operations", ops)}
	case errors.Is(err, rpctypes.ErrRequestTooLarge), isMessageTooLarge(err):
		return &LimitError{Flag: "--max-request-bytes", Need: fmt.Sprintf("%d bytes", bytes)}
	}
	return nil
}

// isMessageTooLarge: the transport refuses what is far above the limit before
// etcd looks at it. It has no error of its own for that.
func isMessageTooLarge(err error) bool {
	return code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

func code(err error) codes.Code {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return etcd.Code()
	}
	return status.Code(err)
}
