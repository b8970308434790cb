// Package reads records the sessions that a backend's Reads used, so that its Watch can
// report when one of them has ended.
package reads

// Sessions records the sessions that successful Reads used, until Ended has reported that
// one of them has ended. Several callers may Read, and each relies on the model that it
// has read. The zero value has no session. The caller must lock it.
type Sessions[S comparable] struct {
	last  S
	ended bool // the session of an earlier Read has ended
}

// Used records that a Read used a session.
func (r *Sessions[S]) Used(s S) {
	r.ended = r.endsWith(s)
	r.last = s
}

// Ended reports whether a Read used a session that is not the current one. It reports
// this once. current is the zero value if there is no session.
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
