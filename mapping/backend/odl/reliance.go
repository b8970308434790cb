package odl

// reliance is the sessions that successful Reads used, until Watch has reported that one of
// them has ended. There may be several callers of Read, and each of them relies on what it has
// read.
type reliance struct {
	last  *session
	ended bool // the session of an earlier Read
}

// on notes that a Read used a session.
func (r *reliance) on(s *session) {
	r.ended = r.ended || r.last != nil && r.last != s
	r.last = s
}

// end reports whether the session of a Read is no longer the current one, which may be nil. It
// reports that once.
func (r *reliance) end(current *session) bool {
	ended := r.ended || r.last != nil && r.last != current
	if ended {
		*r = reliance{}
	}
	return ended
}
