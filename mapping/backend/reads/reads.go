// Package reads remembers the sessions of a backend's Reads, so that its Watch can
// report each session that has ended.
package reads

// Sessions are the sessions that successful Reads used, until Ended has reported that
// one of them has ended. Several callers may Read, and each relies on what it has read.
// The zero value has no session. The caller locks.
type Sessions[S comparable] struct {
	last  S
	ended bool // the session of an earlier Read
}

// Used notes that a Read used a session.
func (r *Sessions[S]) Used(s S) {
	r.ended = r.endsWith(s)
	r.last = s
}

// Ended reports whether a Read used another session than the current one, which may be
// zero. It reports that once.
func (r *Sessions[S]) Ended(current S) bool {
	ended := r.endsWith(current)
	if ended {
		*r = Sessions[S]{}
	}
	return ended
}

func (r *Sessions[S]) endsWith(s S) bool {
	var none S
	return r.ended || r.last != none && r.last != s
}
