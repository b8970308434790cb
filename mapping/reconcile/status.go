package reconcile

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Status is how far the backend is.
type Status struct {
	// InSync is set if every source is complete, every acknowledged change of the datastore was
	// marked, no scope is behind, and the backend has exactly what is wanted. A scope that was compared before the sources
	// were complete must be compared again. The results of a Look count for the interval at which a Loop that runs
	// reads the backend again.
	InSync   bool
	Complete bool
	Peer     PeerStatus
	// Compared is when the Look began whose results these are. Looking is when the Look began that is in progress; zero if
	// none is.
	Compared, Looking time.Time
	// ClaimError is why addresses cannot be chosen and recorded, or empty.
	ClaimError string
	Scopes     []ScopeStatus // sorted by scope
}

// PeerStatus is how the backend answered last.
type PeerStatus struct {
	Name      string
	OK        bool
	LastError string    // of the last failure; kept after recovery
	Since     time.Time // when OK became what it is
}

// ScopeStatus is how far one scope is.
type ScopeStatus struct {
	Scope        netvirt.Scope
	InSync       bool
	Behind       time.Time // since when it is behind; zero when it is not
	Wanted       int64     // revision of the datastore that was mapped last
	Programmed   int64     // revision that the backend has
	MappedAt     time.Time // when it was mapped last
	ProgrammedAt time.Time // when the backend last had it as it was wanted
	Objects      int       // wanted objects of the backend's kinds
	Written      int       // objects that the backend has
	Confirmed    int       // of these, those that lack nothing
	Lacks        []Lack    // of objects that the backend has and the network not; sorted
	LastError    string
	ErrorTime    time.Time
	Problems     []coe.Problem
}

type scopeStatus struct {
	wanted, programmed int64
	want               netvirt.Parts
	problems           []coe.Problem
	lastError          string
	errorTime          time.Time
	unanswered         bool // lastError is that the backend did not answer
	mappedAt           time.Time
	programmedAt       time.Time
	differs            bool // as Look found
	// once is set when it was programmed, epoch is when that was last (Loop.epoch).
	once  bool
	epoch uint64
}

// Status returns how far the backend is now.
func (l *Loop) Status() Status {
	st := l.status()
	l.mu.RLock()
	defer l.mu.RUnlock()
	lacks := l.lacks(st.Scopes)
	for i := range st.Scopes {
		one := &st.Scopes[i]
		count := lacks[one.Scope]
		one.Written, one.Lacks = l.have[one.Scope].Len(), count.lacks
		one.Confirmed = one.Written - count.objects
	}
	return st
}

// status is the Status without what has to be counted.
func (l *Loop) status() Status {
	complete, caughtUp := l.source.Complete(), l.source.CaughtUp()
	lag := l.lag()
	l.mu.RLock()
	defer l.mu.RUnlock()
	st := Status{Complete: complete, Peer: l.peer, Compared: l.compared, Looking: l.lookSince, ClaimError: l.cfg.Claims.failure()}
	for s, one := range l.scopes {
		st.Scopes = append(st.Scopes, l.scopeStatus(s, one, lag[s]))
	}
	for s, behind := range lag {
		if l.scopes[s] == nil { // it was not processed yet
			st.Scopes = append(st.Scopes, l.scopeStatus(s, &scopeStatus{}, behind))
		}
	}
	slices.SortFunc(st.Scopes, func(a, b ScopeStatus) int {
		return strings.Compare(string(a.Scope), string(b.Scope))
	})
	st.InSync = complete && caughtUp && st.Peer.OK && st.ClaimError == "" && len(lag) == 0 && len(l.uncertain) == 0 && !l.differs() && !l.isOld()
	return st
}

// isOld reports whether Look has found these results too long ago.
func (l *Loop) isOld() bool { return !l.compared.IsZero() && time.Since(l.compared) > l.cfg.Resync }

// differs reports whether Look found a scope of the backend that differs from the wanted one.
func (l *Loop) differs() bool {
	for _, one := range l.scopes {
		if one.differs {
			return true
		}
	}
	return false
}

// lag returns the scopes that are behind, and since when. The claims are asked
// first: a scope is marked here before it is settled there, so none slips
// through between the two.
func (l *Loop) lag() map[netvirt.Scope]time.Time {
	claims := l.cfg.Claims.lag()
	here := l.worker.lag()
	for s, t := range claims {
		if since, found := here[s]; !found || t.Before(since) {
			here[s] = t
		}
	}
	return here
}

func (l *Loop) scopeStatus(s netvirt.Scope, one *scopeStatus, behind time.Time) ScopeStatus {
	return ScopeStatus{
		Scope: s, InSync: behind.IsZero() && one.lastError == "" && !one.differs, Behind: behind,
		Wanted: one.wanted, Programmed: one.programmed, MappedAt: one.mappedAt, ProgrammedAt: one.programmedAt,
		Objects:   one.want.Len(),
		LastError: one.lastError, ErrorTime: one.errorTime,
		Problems: one.problems,
	}
}

// Confirmed calls yield with each confirmed object, in no order, until yield returns false. While
// the backend's objects are unknown, the last known ones count. The loop waits during the call.
func (l *Loop) Confirmed(yield func(netvirt.Object) bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, parts := range l.have {
		for _, part := range parts {
			for _, o := range part.Model {
				if l.Lacks(o) == "" && !yield(o) {
					return
				}
			}
		}
	}
}

func (l *Loop) scope(s netvirt.Scope) *scopeStatus {
	one := l.scopes[s]
	if one == nil {
		one = &scopeStatus{}
		l.scopes[s] = one
	}
	return one
}

// mapped notes what was mapped of a scope.
func (l *Loop) mapped(s netvirt.Scope, revision int64, want netvirt.Parts, problems []coe.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.scope(s)
	one.wanted, one.want, one.problems, one.mappedAt = revision, want, problems, time.Now()
}

// programmed notes that the backend has the scopes' model of a revision. A scope of which
// nothing is left is forgotten.
func (l *Loop) programmed(scopes []netvirt.Scope, revision int64, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range scopes {
		one := l.scope(s)
		one.lastError, one.unanswered, one.programmedAt = "", false, time.Now()
		if complete {
			one.programmed = revision
			delete(l.uncertain, s)
		} else {
			l.uncertain[s] = false
		}
		if s != netvirt.Cluster && len(one.want) == 0 && len(one.problems) == 0 && len(l.have[s]) == 0 {
			delete(l.scopes, s)
		}
	}
	l.answeredThese()
}

// failed notes that the scopes' model could not be written.
func (l *Loop) failed(scopes []netvirt.Scope, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, rejected := time.Now(), errors.Is(err, netvirt.ErrRejected)
	for _, s := range scopes {
		one := l.scope(s)
		one.lastError, one.errorTime, one.unanswered = err.Error(), now, !rejected
	}
	if rejected {
		l.answeredThese()
		return
	}
	l.answered(err)
}

// answeredThese notes that the backend answered for some scopes: it answers, unless it has
// not answered for others when they were tried last.
func (l *Loop) answeredThese() {
	for _, one := range l.scopes {
		if one.unanswered {
			return
		}
	}
	l.answered(nil)
}

// answered notes how the backend answered, and logs when that turns.
func (l *Loop) answered(err error) {
	switch {
	case err == nil && !l.peer.OK:
		l.log.Info("backend answers")
		l.peer.OK, l.peer.Since = true, time.Now()
	case err != nil && (l.peer.OK || l.peer.Since.IsZero()):
		l.log.Error("backend does not answer; retrying until it does", "err", err)
		l.peer.OK, l.peer.Since = false, time.Now()
	}
	if err != nil {
		l.peer.LastError = err.Error()
	}
}

// Has is what the backend has under a key of a scope, or had last while that is
// unknown; nil for nothing.
func (l *Loop) Has(s netvirt.Scope, k netvirt.Key) netvirt.Object {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.have[s].Get(k)
}

// Count is how many objects of a kind the backend has, or had last while that is
// unknown.
func (l *Loop) Count(kind netvirt.Kind) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for _, parts := range l.have {
		for _, part := range parts {
			for k := range part.Model {
				if k.Kind == kind {
					n++
				}
			}
		}
	}
	return n
}
